// TLS on the TCP port: who is believed, what is reloaded, what is refused at start.
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <thread>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "server/access/method_table.h"
#include "server/listeners.h"
#include "server/reasons.h"
#include "server/tls_files.h"
#include "tests/server/door_fixture.h"
#include "tests/server/test_certificates.h"

namespace penstock::server {
namespace {

using testing::HasSubstr;

constexpr char kInfo[] = "penstock.v1.AdminService/GetServerInfo";

// Whether a client that knows no newer version, and no other ciphers, is served.
bool ShakesHands(const std::string& address, int newest_version, const char* ciphers) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_security_level(context, 0);  // it would agree to anything
  SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context, newest_version);
  EXPECT_EQ(SSL_CTX_set_cipher_list(context, ciphers), 1) << ciphers;
  EXPECT_EQ(SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>("\x02h2"), 3),
            0);
  BIO* const connection = BIO_new_ssl_connect(context);
  BIO_set_conn_hostname(connection, address.c_str());
  const bool done = BIO_do_handshake(connection) == 1;
  ERR_clear_error();
  BIO_free_all(connection);
  SSL_CTX_free(context);
  return done;
}

class TlsTest : public DoorTest {
 protected:
  TlsTest() {
    WriteServer(Sign(authority_, {.common_name = "penstockd"}));
    options_.tls.set_certificate(directory_.path() + "/server.pem");
    options_.tls.set_key(directory_.path() + "/server.key");
  }

  void WriteServer(const TestCertificate& certificate) {
    WriteTestFile(directory_.path() + "/server.key", certificate.key);
    WriteTestFile(directory_.path() + "/server.pem", certificate.certificate);
  }
  void AskForCertificates() {
    WriteTestFile(directory_.path() + "/clients.pem", client_authority_.certificate);
    options_.tls.set_client_authorities(directory_.path() + "/clients.pem");
    internal::MappedSubject& subject = *options_.tls.add_subjects();
    subject.set_common_name("Ann's laptop");
    subject.set_user("ann");
    subject.set_role("user");
  }
  std::shared_ptr<grpc::Channel> ConnectTls(const TestCertificate& trusted,
                                            const TestCertificate& own = {}) {
    return Connect(grpc::SslCredentials({.pem_root_certs = trusted.certificate,
                                         .pem_private_key = own.key,
                                         .pem_cert_chain = own.certificate}));
  }
  static std::string UserOf(const RawReply& reply) {
    v1::GetServerInfoResponse info;
    if (!reply.status.ok() || reply.messages.empty()) return "";
    info.ParseFromString(reply.messages[0]);
    return info.caller().user();
  }

  const TestCertificate authority_ = MakeAuthority("authority");
  const TestCertificate client_authority_ = MakeAuthority("client authority");
};

TEST_F(TlsTest, ServesTlsWithTokensAndNothingInPlainText) {
  Start();
  const Headers ann = As("ann", v1::ROLE_USER);
  const auto trusting = ConnectTls(authority_);
  EXPECT_EQ(UserOf(CallRaw(trusting, kInfo, "", ann)), "ann");
  EXPECT_EQ(ErrorInfoOf(CallRaw(trusting, kInfo, "", {}).status).reason(), reason::kTokenMissing);
  EXPECT_TRUE(CallRaw(trusting, "grpc.health.v1.Health/Check", "", {}).status.ok());
  // Without TLS, and with an authority that has not signed.
  EXPECT_EQ(CallRaw(Connect(), kInfo, "", ann).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(CallRaw(ConnectTls(client_authority_), kInfo, "", ann).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  // The socket goes on as before.
  EXPECT_EQ(UserOf(CallRaw(client_->channel, kInfo, "", {})), "local");
}

TEST_F(TlsTest, NobodyTalksItDownToAnOldVersionOrNoCipher) {
  Start();
  const std::string address = daemon_->tcp_address();
  EXPECT_TRUE(ShakesHands(address, TLS1_3_VERSION, "ALL"));
  EXPECT_TRUE(ShakesHands(address, TLS1_2_VERSION, "ALL"));
  EXPECT_FALSE(ShakesHands(address, TLS1_1_VERSION, "ALL"));
  EXPECT_FALSE(ShakesHands(address, TLS1_VERSION, "ALL"));
  for (const char* weak : {"eNULL", "aNULL", "kRSA+AES128"}) {
    EXPECT_FALSE(ShakesHands(address, TLS1_2_VERSION, weak)) << weak;
  }
}

TEST_F(TlsTest, ReadsRenewedCertificatesWithoutARestart) {
  Start();
  const Headers ann = As("ann", v1::ROLE_USER);
  ASSERT_EQ(UserOf(CallRaw(ConnectTls(authority_), kInfo, "", ann)), "ann");
  const auto open = ConnectTls(authority_);
  ASSERT_EQ(UserOf(CallRaw(open, kInfo, "", ann)), "ann");

  const TestCertificate next = MakeAuthority("next authority");
  // In the middle of a renewal the two files do not fit together: what is open goes on.
  WriteTestFile(directory_.path() + "/server.key", Sign(next, {.common_name = "x"}).key);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  EXPECT_EQ(UserOf(CallRaw(open, kInfo, "", ann)), "ann");

  WriteServer(Sign(next, {.common_name = "penstockd"}));
  std::string user;
  for (int i = 0; i < 300 && user.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    user = UserOf(CallRaw(ConnectTls(next), kInfo, "", ann));
  }
  EXPECT_EQ(user, "ann");
  EXPECT_EQ(UserOf(CallRaw(open, kInfo, "", ann)), "ann") << "an open connection was cut";
}

TEST_F(TlsTest, CertificatesOfClientsNameThem) {
  AskForCertificates();
  Start();
  const auto as = [&](const std::string& name) {
    return ConnectTls(authority_, Sign(client_authority_, {.common_name = name}));
  };
  const RawReply mapped = CallRaw(as("Ann's laptop"), kInfo, "", {});
  EXPECT_EQ(UserOf(mapped), "ann") << mapped.status.error_message();
  EXPECT_EQ(
      ErrorInfoOf(CallRaw(as("Ann's laptop"), "penstock.v1.AdminService/ListTokens", "", {}).status)
          .reason(),
      reason::kRoleInsufficient);
  const grpc::Status unknown = CallRaw(as("Eve's laptop"), kInfo, "", {}).status;
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ErrorInfoOf(unknown).reason(), reason::kCertificateUnknown);
  // A certificate of nobody we know, one that has expired, none at all; and a token without one.
  const TestCertificate foreign =
      Sign(MakeAuthority("client authority"), {.common_name = "Ann's laptop"});
  EXPECT_FALSE(CallRaw(ConnectTls(authority_, foreign), kInfo, "", {}).status.ok());
  const TestCertificate expired = Sign(client_authority_, {.common_name = "Ann's laptop",
                                                           .begin = absl::Now() - absl::Hours(2),
                                                           .end = absl::Now() - absl::Hours(1)});
  EXPECT_FALSE(CallRaw(ConnectTls(authority_, expired), kInfo, "", {}).status.ok());
  EXPECT_EQ(ErrorInfoOf(CallRaw(ConnectTls(authority_), kInfo, "", {}).status).reason(),
            reason::kTokenMissing);
  EXPECT_EQ(UserOf(CallRaw(ConnectTls(authority_), kInfo, "", As("bob", v1::ROLE_VIEWER))), "bob");
}

TEST_F(TlsTest, WhatCannotBeServedIsNamedAtStart) {
  const std::string directory = directory_.path();
  const TestCertificate good = Sign(authority_, {.common_name = "penstockd"});
  const TestCertificate other = Sign(authority_, {.common_name = "penstockd"});
  const TestCertificate expired = Sign(authority_, {.common_name = "penstockd",
                                                    .begin = absl::Now() - absl::Hours(2),
                                                    .end = absl::Now() - absl::Hours(1)});
  const TestCertificate early = Sign(authority_, {.common_name = "penstockd",
                                                  .begin = absl::Now() + absl::Hours(1),
                                                  .end = absl::Now() + absl::Hours(2)});
  const internal::TlsConfig whole = options_.tls;
  const auto problem = [&](const TestCertificate& files, auto change) {
    WriteServer(files);
    options_.tls = whole;
    change(options_.tls);
    const auto started = Daemon::Start(options_);
    EXPECT_FALSE(started.ok());
    EXPECT_EQ(ReasonOf(started.status()), reason::kConfigInvalid);
    return std::string(started.status().message());
  };
  const auto nothing = [](internal::TlsConfig&) {};
  EXPECT_THAT(problem(expired, nothing), HasSubstr("has expired at"));
  EXPECT_THAT(problem(expired, nothing), HasSubstr("server.pem"));
  EXPECT_THAT(problem(early, nothing), HasSubstr("check the clock"));
  EXPECT_THAT(problem({good.certificate, other.key}, nothing), HasSubstr("is not the key of"));
  EXPECT_THAT(problem({"no", good.key}, nothing), HasSubstr("holds no certificate"));
  EXPECT_THAT(problem({good.certificate, "no"}, nothing), HasSubstr("holds no private key"));
  EXPECT_THAT(problem({good.certificate, good.certificate}, nothing),
              HasSubstr("holds no private key"));
  EXPECT_THAT(problem(good, [](auto& tls) { tls.clear_key(); }), HasSubstr("tls.key: no file"));
  EXPECT_THAT(problem(good, [](auto& tls) { tls.set_certificate("/none.pem"); }),
              HasSubstr("/none.pem cannot be read: No such file"));
  EXPECT_THAT(problem(good, [](auto& tls) { tls.set_client_authorities("/none.pem"); }),
              HasSubstr("tls.client_authorities"));
  EXPECT_THAT(problem(good, [](auto& tls) { tls.add_subjects()->set_common_name("x"); }),
              HasSubstr("tls.subjects[0].role"));
  EXPECT_THAT(problem(good,
                      [](auto& tls) {
                        auto& subject = *tls.add_subjects();
                        subject.set_common_name("x");
                        subject.set_user("ann");
                        subject.set_role("admin");
                      }),
              HasSubstr("client_authorities is not"));
  EXPECT_THAT(problem(good, [&](auto& tls) { chmod(tls.key().c_str(), 0644); }),
              HasSubstr("chmod o="));
  WriteServer(good);
  options_.tls = whole;
  Start();
}

TEST(AddressTest, NothingButLoopbackWithoutTlsAndIdentity) {
  for (const char* address : {"127.0.0.1:0", "localhost:7070", "[::1]:7070"}) {
    EXPECT_TRUE(CheckAddress("listen", address, Protection::kNone).ok()) << address;
  }
  for (const char* address : {"0.0.0.0:7070", "[::]:7070", "192.168.0.7:1", "lab-box:7070",
                              "127.0.0.1.example.org:1", "127.0.0.2:7070"}) {
    const absl::Status refused = CheckAddress("listen", address, Protection::kNone);
    EXPECT_EQ(ReasonOf(refused), reason::kConfigInvalid) << address;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("require_token"));
    EXPECT_TRUE(CheckAddress("listen", address, Protection::kTlsAndIdentity).ok()) << address;
  }
  for (const char* address :
       {"", "7070", ":7070", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"}) {
    EXPECT_FALSE(CheckAddress("listen", address, Protection::kTlsAndIdentity).ok()) << address;
  }
}

TEST_F(TlsTest, AnAddressOfTheNetworkNeedsBoth) {
  options_.listen = "0.0.0.0:0";
  options_.require_token = false;
  EXPECT_EQ(ReasonOf(Daemon::Start(options_).status()), reason::kConfigInvalid);
  const internal::TlsConfig tls = options_.tls;
  options_.require_token = true;
  options_.tls.Clear();
  EXPECT_EQ(ReasonOf(Daemon::Start(options_).status()), reason::kConfigInvalid);
  options_.tls = tls;
  DaemonTest::Start();
  EXPECT_FALSE(daemon_->lets_in_strangers());
}

}  // namespace
}  // namespace penstock::server
