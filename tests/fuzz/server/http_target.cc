// Damaged HTTP requests, several on a connection, whole and in halves: each answer is one of HTTP,
// and an error says why as the API does.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "server/http/http_message.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/server/answer_checks.h"
#include "tests/fuzz/server/daemon_under_fire.h"
#include "tests/fuzz/server/server_targets.h"

namespace penstock::fuzz {
namespace {

constexpr int kAnswerMilliseconds = 60'000;

const std::vector<std::string>& RequestTargets() {
  static const auto* const targets = new std::vector<std::string>{
      "/",
      "/app.js",
      "/healthz",
      "/readyz",
      "/metrics",
      "/api/server",
      "/api/devices",
      "/api/jobs?page_size=3",
      "/api/jobs?page_token=AAAA",
      "/api/jobs/fuzz-one",
      "/api/jobs/fuzz-one/metrics?first_step=0&last_step=9&max_points=5",
      "/api/jobs/fuzz-one/log?attempt=1&offset=0",
      "/api/jobs/fuzz-two/checkpoints",
      "/api/jobs/fuzz-two/data?examples=2",
      "/api/jobs/../../signing.key",
      "/%2e%2e/%2e%2e/etc/passwd",
      "/api/jobs/fuzz-one%2f..%2f..%2fsigning.key/log"};
  return *targets;
}

// Its end of a connection, from some address of the loopback net: the ports of one are soon used
// up.
class Connection {
 public:
  Connection(const std::string& url, Random& random)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr =
        htonl(INADDR_LOOPBACK + (1 << 16) + static_cast<uint32_t>(random.Below(1 << 20)));
    bind(fd_, reinterpret_cast<struct sockaddr*>(&address), sizeof address);
    int port = 0;
    const std::string digits = url.substr(url.rfind(':') + 1);
    connected_ = absl::SimpleAtoi(digits, &port);
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connected_ &&
                 connect(fd_, reinterpret_cast<struct sockaddr*>(&address), sizeof address) == 0;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(fd_); }

  bool connected() const { return connected_; }
  void Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void SayNoMore() const { shutdown(fd_, SHUT_WR); }
  // All that comes until the other side closes; false if it does not.
  bool ReadToEnd(std::string& bytes) const {
    while (true) {
      struct pollfd wait {
        .fd = fd_, .events = POLLIN, .revents = 0
      };
      if (poll(&wait, 1, kAnswerMilliseconds) <= 0) return false;
      char buffer[65536];
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return true;
      bytes.append(buffer, static_cast<size_t>(n));
    }
  }

 private:
  const int fd_;
  bool connected_ = false;
};

absl::Status CheckError(int status, std::string_view body, std::string_view input) {
  const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("message") || !json["message"].is_string() ||
      json["message"].get<std::string>().empty()) {
    return Violation(absl::StrCat(status, " without a message: ", std::string(body)), input);
  }
  for (const auto& detail : json.value("details", nlohmann::json::array())) {
    if (detail.is_object() && !detail.value("reason", "").empty()) return absl::OkStatus();
  }
  return Violation(absl::StrCat(status, " without a reason: ", std::string(body)), input);
}

// One after the other, as they lie there. `answered`: one was no error.
absl::Status CheckAnswers(std::string_view bytes, std::string_view input, bool& answered) {
  static const std::set<int> expected = {200, 304, 400, 401, 403, 404,
                                         405, 413, 421, 429, 431, 503};
  while (!bytes.empty()) {
    const size_t end = bytes.find("\r\n\r\n");
    int status = 0;
    if (end == bytes.npos || !absl::StartsWith(std::string(bytes.substr(0, 9)), "HTTP/1.1 ") ||
        !absl::SimpleAtoi(std::string(bytes.substr(9, 3)), &status) || !expected.contains(status)) {
      return Violation(absl::StrCat("no answer of HTTP: ", std::string(bytes.substr(0, 300))),
                       input);
    }
    const std::string head(bytes.substr(0, end));
    bytes.remove_prefix(end + 4);
    if (head.find("\r\nContent-Security-Policy: default-src 'none'") == head.npos) {
      return Violation("an answer without its security headers: " + head, input);
    }
    answered = answered || status == 200;
    const size_t field = head.find("\r\nContent-Length: ");
    size_t length = 0;
    if (field == head.npos) {
      if (status != 304) return Violation("an answer without a length: " + head, input);
      continue;
    }
    const std::string digits = head.substr(field + 18, head.find("\r\n", field + 2) - field - 18);
    if (!absl::SimpleAtoi(digits, &length))
      return Violation("a length that is none: " + head, input);
    // An answer to HEAD has none of it; no body of ours begins so.
    if (bytes.empty() || bytes.substr(0, 9) == "HTTP/1.1 ") continue;
    if (bytes.size() < length) return Violation("an answer that is cut: " + head, input);
    const std::string_view body = bytes.substr(0, length);
    bytes.remove_prefix(length);
    if (status < 400 || body == "draining\n") continue;
    if (absl::Status wrong = CheckError(status, body, input); !wrong.ok()) return wrong;
  }
  return absl::OkStatus();
}

class HttpTarget final : public Target {
 public:
  explicit HttpTarget(const std::string& testdata) : daemon_(testdata) {}

  absl::StatusOr<Outcome> RunCase(Random& random) override {
    for (int i = 0; i < 10; ++i) {
      if (absl::Status status = CheckTarget(random); !status.ok()) return status;
    }
    std::string bytes;
    for (size_t n = random.Below(3) + 1; n > 0; --n) bytes += MakeRequest(random);
    // Parts of it into itself: a copy is changed, for a view of what is moved away has no text.
    if (!random.OneIn(3)) bytes = MutateText(bytes, dictionary_, bytes, random);
    if (random.OneIn(10)) bytes.resize(random.Below(bytes.size() + 1));
    const Connection connection(daemon_.http_address(), random);
    if (!connection.connected()) return Violation("nobody takes the connection", bytes);
    const size_t half = random.OneIn(4) ? random.Below(bytes.size() + 1) : bytes.size();
    connection.Send(std::string_view(bytes).substr(0, half));
    if (random.OneIn(20)) return Outcome::kRefused;  // and is gone
    connection.Send(std::string_view(bytes).substr(half));
    connection.SayNoMore();
    std::string answers;
    if (!connection.ReadToEnd(answers)) return Violation("it neither answers nor closes", bytes);
    bool answered = false;
    if (absl::Status status = CheckAnswers(answers, bytes, answered); !status.ok()) return status;
    if (absl::Status status = daemon_.AfterCase(); !status.ok()) return status;
    return answered ? Outcome::kAccepted : Outcome::kRefused;
  }

 private:
  // What comes of a target names nothing above, and is the same again when it is written out.
  absl::Status CheckTarget(Random& random) {
    const std::string target = MutateText(random.Pick(RequestTargets()), dictionary_,
                                          random.Pick(RequestTargets()), random);
    const auto parsed = server::ParseTarget(target);
    if (!parsed.ok()) return CheckReason(parsed.status(), target);
    std::string again;
    for (const std::string& part : parsed->path) {
      if (part.empty() || part == "." || part == "..")
        return Violation("a path that leaves", target);
      again += "/" + Encoded(part);
    }
    if (again.empty()) again = "/";
    char separator = '?';
    for (const auto& [key, value] : parsed->query) {
      again += separator + Encoded(key) + "=" + Encoded(value);
      separator = '&';
    }
    const auto twice = server::ParseTarget(again);
    if (!twice.ok() || twice->path != parsed->path || twice->query != parsed->query) {
      return Violation("another target when written out: " + again, target);
    }
    server::IsLoopbackHost(target);
    return absl::OkStatus();
  }
  static std::string Encoded(const std::string& text) {
    std::string encoded;
    for (const char c : text)
      absl::StrAppend(&encoded, "%", absl::Hex(static_cast<uint8_t>(c), absl::kZeroPad2));
    return encoded;
  }

  std::string MakeRequest(Random& random) {
    static const std::vector<std::string> methods = {"GET",  "GET",  "GET",
                                                     "HEAD", "POST", "OPTIONS"};
    static const std::vector<std::string> hosts = {"localhost", "127.0.0.1:80", "[::1]",
                                                   "evil.example", ""};
    std::string target = random.Pick(RequestTargets());
    if (random.OneIn(3)) target = MutateText(std::move(target), dictionary_, "/api/jobs/", random);
    std::string bytes = absl::StrCat(random.Pick(methods), " ", target, " HTTP/1.1\r\nHost: ",
                                     random.OneIn(4) ? random.Pick(hosts) : "localhost", "\r\n");
    if (!random.OneIn(3)) {
      absl::StrAppend(&bytes, "Authorization: Bearer ", random.Pick(daemon_.tokens()), "\r\n");
    }
    if (random.OneIn(6)) absl::StrAppend(&bytes, "If-None-Match: \"0\"\r\n");
    if (random.OneIn(10)) absl::StrAppend(&bytes, "Content-Length: ", random.Below(9), "\r\n");
    if (random.OneIn(10)) bytes += "Transfer-Encoding: chunked\r\n";
    if (random.OneIn(10)) bytes += "Connection: close\r\n";
    if (random.OneIn(10)) bytes += "Expect: 100-continue\r\n";
    if (random.OneIn(30)) {
      for (size_t n = random.Below(3000); n > 0; --n) absl::StrAppend(&bytes, "X-", n, ": 1\r\n");
    }
    return bytes + "\r\n";
  }

  DaemonUnderFire daemon_;
  const std::vector<std::string> dictionary_ = {"..",
                                                "/",
                                                "%2e%2e",
                                                "%2f",
                                                "%00",
                                                "%",
                                                "?",
                                                "&",
                                                "=",
                                                "\r\n",
                                                "\r\n\r\n",
                                                "\n",
                                                " ",
                                                ":",
                                                "HTTP/1.0",
                                                "\xff",
                                                "%ff",
                                                "%c3%a9",
                                                "#",
                                                "http://evil/",
                                                "*",
                                                "@",
                                                "page_size=-1",
                                                "GET ",
                                                "attempt=",
                                                "\t",
                                                "Host: a\r\n",
                                                "0\r\n\r\n",
                                                "a;b",
                                                "99999999999999999999"};
};

}  // namespace

std::unique_ptr<Target> MakeHttpTarget(const std::string& testdata) {
  return std::make_unique<HttpTarget>(testdata);
}

}  // namespace penstock::fuzz
