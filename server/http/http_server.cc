#include "server/http/http_server.h"

#include <list>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"
#include "boost/beast/ssl.hpp"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "spdlog/spdlog.h"
#include "xxhash.h"

namespace penstock::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using beast::error_code;

constexpr uint32_t kMaxHeadBytes = 16 << 10;
constexpr size_t kReadBufferBytes = 32 << 10;
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kLinger{2000};

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return Error(absl::StatusCode::kFailedPrecondition, reason::kConfigInvalid,
               absl::StrCat("cannot serve HTTP on ", address, ": ", why),
               {{"field", "http_listen"}, {"found", address}});
}

absl::Status BadRequest(const std::string& message) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid, message);
}

std::string ETagOf(std::string_view body) {
  return absl::StrCat("\"", absl::Hex(XXH3_64bits(body.data(), body.size()), absl::kZeroPad16),
                      "\"");
}

// Scripts, styles and data come from this port only, nobody frames it, and where it leads learns
// not from where.
void SetSecurityHeaders(http::fields& fields) {
  fields.set("Content-Security-Policy",
             "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  fields.set("X-Frame-Options", "DENY");
  fields.set("X-Content-Type-Options", "nosniff");
  fields.set("Referrer-Policy", "no-referrer");
  fields.set("Cross-Origin-Resource-Policy", "same-origin");
}

// Whoever handshakes now gets the certificate as it lies there now; if it is broken, the one that
// was read at start.
int UseNewestCertificate(SSL* connection, void* tls) {
  const auto& files = *static_cast<const HttpTls*>(tls);
  if (SSL_use_certificate_chain_file(connection, files.certificate.c_str()) != 1 ||
      SSL_use_PrivateKey_file(connection, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    spdlog::warn("{} and {} cannot be read; the certificate of before serves on", files.certificate,
                 files.key);
  }
  return 1;
}

absl::StatusOr<tcp::endpoint> EndpointOf(asio::io_context& io, const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon == address.npos ? 0 : colon);
  int port = -1;
  if (host.empty() || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return CannotListen(address, "expected HOST:PORT; port 0 picks one");
  }
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  error_code error;
  const asio::ip::address literal = asio::ip::make_address(host, error);
  if (!error) return tcp::endpoint(literal, static_cast<uint16_t>(port));
  const auto found = tcp::resolver(io).resolve(host, std::to_string(port), error);
  if (error || found.empty()) return CannotListen(address, "no such host");
  return found.begin()->endpoint();
}

// Of the message, not of the connection.
bool IsHttpError(error_code error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

// One connection: kReading --request--> kWorking --reply--> kWriting --> kReading. Belongs to the
// server's thread; only the reply of a handler comes from others, by post.
class Session : public std::enable_shared_from_this<Session> {
 public:
  using Plain = beast::tcp_stream;
  using Encrypted = beast::ssl_stream<beast::tcp_stream>;
  using Closed = std::function<void(Session*)>;

  Session(tcp::socket socket, asio::ssl::context* tls, const HttpOptions& options,
          const HttpHandler& handler, Closed closed)
      : options_(options), handler_(handler), closed_(std::move(closed)) {
    if (tls == nullptr) {
      stream_.emplace<Plain>(std::move(socket));
    } else {
      stream_.emplace<Encrypted>(std::move(socket), *tls);
    }
  }

  void Begin() {
    if (auto* encrypted = std::get_if<Encrypted>(&stream_)) {
      Lowest().expires_after(options_.read_limit);
      encrypted->async_handshake(
          asio::ssl::stream_base::server,
          [self = shared_from_this()](error_code error) { error ? self->Close() : self->Read(); });
    } else {
      Read();
    }
  }

  bool IsWorking() const { return working_; }
  void Close() {
    const auto self = shared_from_this();  // closed_ lets go of it
    error_code ignored;
    Lowest().socket().shutdown(tcp::socket::shutdown_both, ignored);
    Lowest().close();
    closed_(this);
  }

 private:
  Plain& Lowest() {
    if (auto* encrypted = std::get_if<Encrypted>(&stream_))
      return beast::get_lowest_layer(*encrypted);
    return std::get<Plain>(stream_);
  }

  void Read() {
    working_ = false;
    parser_.emplace();
    parser_->header_limit(kMaxHeadBytes);
    // Of the whole request, however many reads it takes.
    Lowest().expires_after(options_.read_limit);
    const auto done = [self = shared_from_this()](error_code error, size_t) {
      self->OnRead(error);
    };
    std::visit([&](auto& stream) { ReadFrom(stream, done); }, stream_);
  }
  template <typename Done>
  void ReadFrom(std::monostate&, const Done&) {}
  template <typename Stream, typename Done>
  void ReadFrom(Stream& stream, const Done& done) {
    http::async_read(stream, buffer_, *parser_, done);
  }

  void OnRead(error_code error) {
    if (error && !IsHttpError(error)) return Close();
    working_ = true;
    if (error) {
      keep_alive_ = false;
      if (error == http::error::header_limit || error == http::error::buffer_overflow) {
        return Write(ErrorResponse(
            431, BadRequest(absl::StrCat("the head of the request has more than ", kMaxHeadBytes,
                                         " bytes; send fewer or shorter headers"))));
      }
      if (error == http::error::unexpected_body) {
        return Write(
            ErrorResponse(413, BadRequest("the request has a body; this port only reads")));
      }
      return Write(ErrorResponse(
          BadRequest(absl::StrCat("this is no HTTP/1.1 request: ", error.message()))));
    }
    Dispatch();
  }

  void Dispatch() {
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive();
    head_only_ = message.method() == http::verb::head;
    const auto text = [&](http::field field) { return std::string(message[field]); };
    HttpRequest request{.target = std::string(message.target()),
                        .host = text(http::field::host),
                        .authorization = text(http::field::authorization),
                        .if_none_match = text(http::field::if_none_match)};
    if_none_match_ = request.if_none_match;
    if (message.method() != http::verb::get && !head_only_) {
      keep_alive_ = false;
      return Write(ErrorResponse(
          405, BadRequest("the method is not GET; jobs are changed over gRPC (penstock)")));
    }
    if (options_.host_check == HostCheck::kLoopback && !IsLoopbackHost(request.host)) {
      keep_alive_ = false;
      return Write(ErrorResponse(
          421, BadRequest("the Host header names another machine; this port serves localhost, "
                          "127.0.0.1 and [::1] only, also through ssh -L")));
    }
    handler_(std::move(request), [weak = weak_from_this()](std::function<HttpResponse()> make) {
      const std::shared_ptr<Session> self = weak.lock();
      if (self == nullptr) return;
      asio::post(self->Lowest().get_executor(),
                 [self, make = std::move(make)] { self->Write(make()); });
    });
  }

  void Write(HttpResponse response) {
    const std::string etag = ETagOf(response.body);
    const bool unchanged = response.status == 200 && if_none_match_ == etag;
    reply_.emplace(static_cast<http::status>(unchanged ? 304 : response.status), 11);
    reply_->set(http::field::server, absl::StrCat("penstockd/", Version()));
    SetSecurityHeaders(*reply_);
    reply_->set(http::field::cache_control, "no-cache");
    if (response.status == 200) reply_->set(http::field::etag, etag);
    if (response.status == 401) reply_->set(http::field::www_authenticate, "Bearer");
    if (response.status == 405) reply_->set(http::field::allow, "GET, HEAD");
    if (!unchanged) {
      reply_->set(http::field::content_type, response.content_type);
      reply_->content_length(response.body.size());
      if (!head_only_) reply_->body() = std::move(response.body);
    }
    reply_->keep_alive(keep_alive_);
    Lowest().expires_after(options_.write_limit);
    const auto done = [self = shared_from_this()](error_code error, size_t) {
      self->reply_.reset();
      if (error) return self->Close();
      self->keep_alive_ ? self->Read() : self->Linger();
    };
    std::visit([&](auto& stream) { WriteTo(stream, done); }, stream_);
  }
  template <typename Done>
  void WriteTo(std::monostate&, const Done&) {}
  template <typename Stream, typename Done>
  void WriteTo(Stream& stream, const Done& done) {
    http::async_write(stream, *reply_, done);
  }

  // Closing while bytes of the client are unread would reset the connection, and it would never see
  // why it was refused: so they are read, for a while.
  void Linger() {
    working_ = false;
    error_code ignored;
    Lowest().socket().shutdown(tcp::socket::shutdown_send, ignored);
    Lowest().expires_after(kLinger);
    Discard();
  }
  void Discard() {
    buffer_.clear();
    Lowest().async_read_some(buffer_.prepare(kReadBufferBytes),
                             [self = shared_from_this()](error_code error, size_t) {
                               error ? self->Close() : self->Discard();
                             });
  }

  const HttpOptions& options_;
  const HttpHandler& handler_;
  const Closed closed_;
  std::variant<std::monostate, Plain, Encrypted> stream_;
  beast::flat_buffer buffer_{kReadBufferBytes};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<http::response<http::string_body>> reply_;
  std::string if_none_match_;
  bool keep_alive_ = false;
  bool head_only_ = false;
  bool working_ = false;
};

}  // namespace

class HttpServer::Core {
 public:
  Core(HttpOptions options, HttpHandler handler)
      : options_(std::move(options)), handler_(std::move(handler)) {}

  absl::Status Open() {
    if (options_.tls) PENSTOCK_RETURN_IF_ERROR(OpenTls());
    PENSTOCK_ASSIGN_OR_RETURN(const tcp::endpoint endpoint, EndpointOf(io_, options_.address));
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return CannotListen(options_.address, error.message());
    return absl::OkStatus();
  }

  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  const HttpOptions& options() const { return options_; }

  void Run() {
    Accept();
    thread_ = std::thread([this] { io_.run(); });
    pthread_setname_np(thread_.native_handle(), "http");
  }

  void Stop() {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      while (!sessions_.empty()) sessions_.front()->Close();
    });
    thread_.join();
  }

 private:
  absl::Status OpenTls() {
    tls_.emplace(asio::ssl::context::tls_server);
    error_code error;
    tls_->use_certificate_chain_file(options_.tls->certificate, error);
    if (error)
      return CannotListen(options_.address, options_.tls->certificate + ": " + error.message());
    tls_->use_private_key_file(options_.tls->key, asio::ssl::context::pem, error);
    if (error) return CannotListen(options_.address, options_.tls->key + ": " + error.message());
    SSL_CTX_set_min_proto_version(tls_->native_handle(), TLS1_2_VERSION);
    SSL_CTX_set_cert_cb(tls_->native_handle(), UseNewestCertificate, &*tls_files_);
    return absl::OkStatus();
  }

  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (error) {
        // No descriptors left, as a rule: not again at once.
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([this](error_code) {
          if (acceptor_.is_open()) Accept();
        });
        return;
      }
      if (MakeRoom()) Add(std::move(socket));
      Accept();
    });
  }

  // False if every connection is at work. Else there is room for one more.
  bool MakeRoom() {
    if (static_cast<int64_t>(sessions_.size()) < options_.max_connections) return true;
    for (const auto& session : sessions_) {
      if (session->IsWorking()) continue;
      session->Close();
      return true;
    }
    return false;
  }

  void Add(tcp::socket socket) {
    auto session = std::make_shared<Session>(
        std::move(socket), tls_ ? &*tls_ : nullptr, options_, handler_, [this](Session* closed) {
          sessions_.remove_if([closed](const auto& one) { return one.get() == closed; });
        });
    sessions_.push_back(session);
    session->Begin();
  }

  const HttpOptions options_;
  const HttpHandler handler_;
  std::optional<HttpTls> tls_files_ = options_.tls;  // where OpenSSL's callback reads them
  std::optional<asio::ssl::context> tls_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer pause_{io_};
  std::list<std::shared_ptr<Session>> sessions_;  // oldest first
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Core> core, std::string url)
    : core_(std::move(core)), url_(std::move(url)) {}
HttpServer::~HttpServer() { Stop(); }
void HttpServer::Stop() { core_->Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options,
                                                              HttpHandler handler) {
  auto core = std::make_unique<Core>(std::move(options), std::move(handler));
  PENSTOCK_RETURN_IF_ERROR(core->Open());
  const std::string& address = core->options().address;
  std::string url = absl::StrCat(core->options().tls ? "https://" : "http://",
                                 address.substr(0, address.rfind(':')), ":", core->port());
  core->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(core), std::move(url)));
}

}  // namespace penstock::server
