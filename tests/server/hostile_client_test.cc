// Clients that mean harm, on the TCP port: they fail, and others are answered meanwhile.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "server/access/method_table.h"
#include "tests/server/door_fixture.h"

namespace penstock::server {
namespace {

constexpr char kInfo[] = "penstock.v1.AdminService/GetServerInfo";
const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(char type, char flags, int stream, const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += type;
  frame += flags;
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + payload;
}
const std::string kSettings = Frame(4, 0, 0, "");

// A literal header field without indexing, with a new name.
std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

class Connection {
 public:
  explicit Connection(const std::string& address)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    struct sockaddr_in to {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<struct sockaddr*>(&to), sizeof to), 0);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(fd_); }

  // False once the other side has had enough.
  bool Send(const std::string& bytes) const {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Whether the other side closes within so long; what it says before is passed over.
  bool IsClosedWithin(int milliseconds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      struct pollfd wait {
        .fd = fd_, .events = POLLIN, .revents = 0
      };
      if (poll(&wait, 1, static_cast<int>(left.count())) <= 0) return false;
      char buffer[4096];
      if (recv(fd_, buffer, sizeof buffer, 0) <= 0) return true;
    }
  }

 private:
  const int fd_;
};

class HostileClientTest : public DoorTest {
 protected:
  void Start() {
    DoorTest::Start();
    vic_ = As("vic", v1::ROLE_VIEWER);
  }
  // By a new connection.
  void ExpectOthersAreAnswered() {
    const RawReply reply = CallRaw(Connect(), kInfo, "", vic_);
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  }
  Headers vic_;
};

TEST_F(HostileClientTest, ThoseWhoSayNothingOrTooLittleAreClosed) {
  Start();
  std::vector<std::unique_ptr<Connection>> silent, slow, after_preface;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<Connection>(daemon_->tcp_address()));
    slow.push_back(std::make_unique<Connection>(daemon_->tcp_address()));
    EXPECT_TRUE(slow.back()->Send(kPreface.substr(0, 5)));
    after_preface.push_back(std::make_unique<Connection>(daemon_->tcp_address()));
    EXPECT_TRUE(after_preface.back()->Send(kPreface));
  }
  ExpectOthersAreAnswered();
  // One more byte does not buy more time.
  for (const auto& connection : slow) connection->Send(kPreface.substr(5, 1));
  for (const auto* kind : {&silent, &slow, &after_preface}) {
    EXPECT_TRUE(kind->front()->IsClosedWithin(60'000));
    EXPECT_TRUE(kind->back()->IsClosedWithin(60'000));
  }
  ExpectOthersAreAnswered();
}

TEST_F(HostileClientTest, GarbageClosesTheConnection) {
  Start();
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(1 << 20, '\xff'),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, '\0'),
        kPreface + std::string(1 << 16, '\0'), kPreface + kSettings + std::string(1 << 16, '\xff'),
        // A frame of 16 MiB, as it says.
        kPreface + kSettings + std::string("\xff\xff\xff\x00\x00\x00\x00\x00\x01", 9)}) {
    const Connection connection(daemon_->tcp_address());
    connection.Send(garbage);
    EXPECT_TRUE(connection.IsClosedWithin(60'000));
    ExpectOthersAreAnswered();
  }
}

TEST_F(HostileClientTest, HeaderFloodsAreCutOff) {
  Start();
  // More than a call may have.
  Headers many = vic_;
  for (int i = 0; i < 40; ++i) many.emplace_back("x-flood", std::string(1000, 'a'));
  EXPECT_FALSE(CallRaw(Connect(), kInfo, "", many).status.ok());
  ExpectOthersAreAnswered();
  // Headers that never end: up to 64 MiB on one stream.
  const Connection connection(daemon_->tcp_address());
  ASSERT_TRUE(connection.Send(kPreface + kSettings));
  ASSERT_TRUE(connection.Send(Frame(1, 0, 1, Header("x-first", "y"))));
  std::string block;
  while (block.size() < 16'000) block += Header("x-flood", std::string(100, 'a'));
  const std::string frame = Frame(9, 0, 1, block);
  int64_t sent = 0;
  while (sent < (64 << 20) && connection.Send(frame)) sent += static_cast<int64_t>(frame.size());
  ExpectOthersAreAnswered();
  // Calls that are begun and never made, far more than one may have.
  const Connection opener(daemon_->tcp_address());
  ASSERT_TRUE(opener.Send(kPreface + kSettings));
  for (int stream = 1; stream < 20'000; stream += 2) {
    if (!opener.Send(Frame(1, 4, stream,
                           Header(":method", "POST") + Header(":scheme", "http") +
                               Header(":path", "/penstock.v1.JobService/CreateJob") +
                               Header("te", "trailers") +
                               Header("content-type", "application/grpc")))) {
      break;
    }
  }
  ExpectOthersAreAnswered();
}

TEST_F(HostileClientTest, OversizedAndBrokenMessagesAreRefused) {
  Start();
  const Headers ann = As("ann", v1::ROLE_USER);
  v1::CreateJobRequest large = MakeRequest({{"x", std::string(5 << 20, 'a')}});
  EXPECT_EQ(CallRaw(Connect(), "penstock.v1.JobService/CreateJob", large, ann).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  // Too large for those who are not let in as well, and neither reaches a handler.
  EXPECT_FALSE(CallRaw(Connect(), "penstock.v1.JobService/CreateJob", large, {}).status.ok());
  for (const std::string& broken :
       {std::string("\xff\xff\xff"), std::string("\x0a\xff\xff\xff\x7f", 5),
        std::string(1000, '\x0b')}) {
    EXPECT_FALSE(CallRaw(tcp_, "penstock.v1.JobService/CreateJob", broken, ann).status.ok());
    EXPECT_FALSE(CallRaw(tcp_, "penstock.v1.JobService/CreateJob", broken, {}).status.ok());
  }
  ExpectOthersAreAnswered();
  EXPECT_EQ(AuditLog().size(), 2u) << "the two tokens";
}

}  // namespace
}  // namespace penstock::server
