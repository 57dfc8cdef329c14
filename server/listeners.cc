#include "server/listeners.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "grpcpp/server_builder.h"
#include "server/rpc/foreign_methods.h"

namespace penstock::server {
namespace {

constexpr int kHandshakeMs = 10'000, kMaxHeaderBytes = 16 << 10, kMaxRequestBytes = 4 << 20;
constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

absl::Status BadSocket(const std::string& path, const std::string& why) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kConfigInvalid,
               absl::StrCat("cannot listen on ", path, ": ", why),
               {{"field", "socket"}, {"found", path}});
}

bool SomebodyListens(const std::string& path) {
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const bool connected =
      connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address) == 0 ||
      errno == EAGAIN;
  close(fd);
  return connected;
}

// Until a scope ends, files are made for the owner alone. The umask is the process's: a worker's
// directories that another thread makes meanwhile can still be entered.
class PrivateFiles {
 public:
  PrivateFiles() : before_(umask(0077)) {}
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;
  ~PrivateFiles() { umask(before_); }

 private:
  const mode_t before_;
};

void SetLimits(grpc::ServerBuilder& builder) {
  // Clients ping on long quiet streams, ours every 30 s, others as often as every 10; without this
  // gRPC answers too_many_pings.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  // Who connects and says nothing, or too little, keeps nobody else out and does not stay.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxHeaderBytes);
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  // Two daemons on one port would share its connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace

absl::Status CheckAddress(const std::string& field, const std::string& address,
                          Protection protection) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon == std::string::npos ? 0 : colon);
  int port = -1;
  const bool port_ok = colon != std::string::npos &&
                       absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 0 &&
                       port <= 65535;
  if (!port_ok || host.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kConfigInvalid,
                 absl::StrCat(field, " is '", address,
                              "'; expected HOST:PORT, such as 127.0.0.1:7070; port 0 picks one"),
                 {{"field", field}, {"found", address}, {"expected", "HOST:PORT"}});
  }
  if (host == "127.0.0.1" || host == "[::1]" || host == "localhost") return absl::OkStatus();
  if (protection == Protection::kTlsAndIdentity) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, reason::kConfigInvalid,
               absl::StrCat(field, " is '", address,
                            "': an address that other machines reach is served with TLS and "
                            "authentication only. Set tls.certificate, tls.key, and "
                            "require_token or tls.client_authorities; or listen on 127.0.0.1 and "
                            "forward the port with ssh"),
               {{"field", field}, {"found", address}, {"expected", "127.0.0.1:PORT"}});
}

absl::Status ClearSocketPath(const std::string& path) {
  if (path.empty() || path[0] != '/') {
    return BadSocket(path, "the path of a socket has to be absolute");
  }
  if (path.size() > kMaxSocketPath) {
    return BadSocket(
        path, absl::StrCat("the path has ", path.size(), " bytes and at most ", kMaxSocketPath,
                           " are possible; choose a shorter state_directory"));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) return BadSocket(path, "something that is no socket is there");
  if (SomebodyListens(path)) return BadSocket(path, "another process listens there");
  if (unlink(path.c_str()) != 0) {
    return BadSocket(path, absl::StrCat("cannot remove the stale socket: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Listener> Listen(const ListenArgs& args) {
  PENSTOCK_RETURN_IF_ERROR(ClearSocketPath(args.socket));
  grpc::ServerBuilder builder;
  SetLimits(builder);
  if (args.quota != nullptr) builder.SetResourceQuota(*args.quota);
  for (grpc::Service* service : args.services) builder.RegisterService(service);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  if (args.meter != nullptr) interceptors.push_back(MeterCalls(*args.meter));
  if (args.door != nullptr) interceptors.push_back(GateForeignMethods(*args.door));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  int unix_result = 0;
  int tcp_port = 0;
  builder.AddListeningPort(absl::StrCat("unix:", args.socket), grpc::InsecureServerCredentials(),
                           &unix_result);
  if (!args.tcp_address.empty()) {
    builder.AddListeningPort(
        args.tcp_address,
        args.tcp_credentials != nullptr ? args.tcp_credentials : grpc::InsecureServerCredentials(),
        &tcp_port);
  }
  Listener listener;
  {
    const PrivateFiles private_files;
    listener.server = builder.BuildAndStart();
  }
  chmod(args.socket.c_str(), 0600);
  if (listener.server == nullptr || unix_result == 0) {
    return BadSocket(args.tcp_address.empty()
                         ? args.socket
                         : absl::StrCat(args.socket, " and ", args.tcp_address),
                     "the address is taken or the directory is not writable");
  }
  if (!args.tcp_address.empty()) {
    listener.tcp_address =
        absl::StrCat(args.tcp_address.substr(0, args.tcp_address.rfind(':')), ":", tcp_port);
  }
  return listener;
}

}  // namespace penstock::server
