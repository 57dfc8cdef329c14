// The HTTP port: what its parts make of hostile requests, and what a daemon serves there.
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/http/http_message.h"
#include "server/http/http_server.h"
#include "server/http/http_site.h"
#include "server/http/job_meter.h"
#include "server/http/metrics_page.h"
#include "server/http/metrics_text.h"
#include "server/http/web_files.h"
#include "server/store/segment_file.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/http_client.h"

namespace penstock::server {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

// ---- Parts ----

TEST(HttpMessageTest, ATargetIsTakenApartOrRefused) {
  const auto target = ParseTarget("/api//jobs/x%2dy?attempt=2&text=a%20%C3%A9&empty=");
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->path, (std::vector<std::string>{"api", "jobs", "x-y"}));
  EXPECT_EQ(target->query, (std::map<std::string, std::string>{
                               {"attempt", "2"}, {"text", "a \xc3\xa9"}, {"empty", ""}}));
  EXPECT_TRUE(ParseTarget("/")->path.empty());
  for (const std::string bad :
       {"", "api", "http://host/", "*", "/a/../b", "/a/%2e%2e/b", "/./a", "/a%", "/a%4", "/a%zz",
        "/a%00b", "/a%0ab", "/%ff", "/?a=1&a=2", "/?a=%", "/1/2/3/4/5/6/7/8/9"}) {
    const auto parsed = ParseTarget(bad);
    EXPECT_EQ(ReasonOf(parsed.status()), reason::kRequestInvalid) << bad;
  }
  std::string many = "/?";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&many, "k", i, "=1&");
  EXPECT_FALSE(ParseTarget(many).ok());
}

TEST(HttpMessageTest, OnlyNamesOfThisMachineAreLoopback) {
  for (const char* host : {"localhost", "LOCALHOST:80", "127.0.0.1:7071", "[::1]", "[::1]:7071"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host :
       {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80",
        "evil.example:127", "localhost:80@evil.example", "[::2]:80", "::1", "127.0.0.2",
        "localhost:", "user@localhost"}) {
    // An empty port is what some clients send.
    EXPECT_EQ(IsLoopbackHost(host), std::string(host) == "localhost:") << host;
  }
}

TEST(HttpMessageTest, AnErrorIsAStatusOfTheApi) {
  const HttpResponse response = ErrorResponse(Error(
      absl::StatusCode::kNotFound, reason::kJobNotFound, "no job \"<x>\"", {{"job", "jobs/x"}}));
  EXPECT_EQ(response.status, 404);
  const auto json = nlohmann::json::parse(response.body);
  EXPECT_EQ(json["code"], 5);
  EXPECT_EQ(json["message"], "no job \"<x>\"");
  EXPECT_EQ(json["details"][0]["reason"], "JOB_NOT_FOUND");
  EXPECT_EQ(ErrorResponse(absl::InternalError("x")).status, 500);
}

TEST(MetricsTextTest, WritesWhatPrometheusReads) {
  MetricsText text;
  text.Begin(MetricsText::Type::kGauge, "a_bytes", "Help.");
  text.Sample(0.1);
  text.Sample(std::nan(""), {{"job", "a\"b\\c\nd"}, {"x", ""}});
  text.Begin(MetricsText::Type::kCounter, "b_total", "None.");
  text.Sample(-INFINITY);
  text.Sample(1e18);
  constexpr double kBounds[] = {0.5, 1};
  constexpr int64_t kCounts[] = {1, 0, 2};
  text.Begin(MetricsText::Type::kHistogram, "c_seconds", "H.");
  text.Sample({.bounds = kBounds, .counts = kCounts, .sum = 9.25}, {"method", "M"});
  EXPECT_EQ(text.Take(),
            "# HELP a_bytes Help.\n# TYPE a_bytes gauge\na_bytes 0.1\n"
            "a_bytes{job=\"a\\\"b\\\\c\\nd\",x=\"\"} NaN\n"
            "# HELP b_total None.\n# TYPE b_total counter\nb_total -Inf\nb_total 1e+18\n"
            "# HELP c_seconds H.\n# TYPE c_seconds histogram\n"
            "c_seconds_bucket{method=\"M\",le=\"0.5\"} 1\n"
            "c_seconds_bucket{method=\"M\",le=\"1\"} 1\n"
            "c_seconds_bucket{method=\"M\",le=\"+Inf\"} 3\n"
            "c_seconds_sum{method=\"M\"} 9.25\nc_seconds_count{method=\"M\"} 3\n");
}

std::string MetricRecord(int64_t step, bool evaluation = false) {
  internal::WorkerEvent event;
  event.set_number(static_cast<uint64_t>(step));
  v1::StepMetrics& metrics = *event.mutable_metrics();
  metrics.set_step(step);
  if (evaluation) {
    metrics.mutable_evaluation()->set_loss(7);
  } else {
    metrics.set_outcome(step % 2 == 0 ? v1::STEP_OUTCOME_SKIPPED_NON_FINITE
                                      : v1::STEP_OUTCOME_APPLIED);
    metrics.set_step_seconds(2);
    metrics.set_real_tokens(10);
    metrics.mutable_device_reading()->set_power_watts(100);
    (*metrics.mutable_lane_busy_seconds())["compute"] = 1.5;
  }
  return event.SerializeAsString();
}

TEST(MeterReaderTest, AddsUpAsTheFileGrowsAndAgainFromItsStart) {
  const TestDirectory directory;
  const std::string path = directory.path() + "/metrics.seg";
  MeterReader reader(path);
  EXPECT_FALSE(*reader.Read(10)) << "no file yet";
  auto writer = SegmentWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (int64_t step = 1; step <= 3; ++step) ASSERT_TRUE(writer->Append(MetricRecord(step)).ok());
  EXPECT_TRUE(*reader.Read(2)) << "a turn of two";
  EXPECT_EQ(reader.meter().step->step(), 2);
  EXPECT_FALSE(*reader.Read(2));
  ASSERT_TRUE(writer->Append(MetricRecord(3, /*evaluation=*/true)).ok());
  ASSERT_TRUE(writer->Append(MetricRecord(4)).ok());
  EXPECT_FALSE(*reader.Read(100));
  MeterReader again(path);
  EXPECT_FALSE(*again.Read(100));
  for (const JobMeter* meter : {&reader.meter(), &again.meter()}) {
    EXPECT_EQ(meter->step->step(), 4);
    EXPECT_EQ(meter->evaluation->evaluation().loss(), 7);
    EXPECT_EQ(meter->steps.at(v1::STEP_OUTCOME_APPLIED), 2);
    EXPECT_EQ(meter->steps.at(v1::STEP_OUTCOME_SKIPPED_NON_FINITE), 2);
    EXPECT_EQ(meter->step_seconds, 8);
    EXPECT_EQ(meter->real_tokens, 40);
    EXPECT_EQ(meter->energy_joules, 800);
    EXPECT_EQ(meter->lane_busy_seconds.at("compute"), 6);
  }
}

// ---- The server ----

class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpOptions options = {}) {
    options.address = "127.0.0.1:0";
    auto started =
        HttpServer::Start(std::move(options), [this](HttpRequest request, HttpRespond respond) {
          if (request.target == "/later") {
            later_ = std::move(respond);
            ++requests_;
            return;
          }
          ++requests_;
          respond([request] {
            return HttpResponse{.content_type = "text/plain", .body = request.target};
          });
        });
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  int port() const { return PortOf(server_->url()); }
  HttpReply Fetch(const std::string& bytes) { return HttpConnection(port()).Ask(bytes); }

  std::atomic<int> requests_ = 0;
  HttpRespond later_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersOneAfterTheOtherAndWhatHasNotChangedOnce) {
  Start();
  HttpConnection connection(port());
  const HttpReply first = connection.Ask(Get("/a"));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "/a");
  EXPECT_THAT(first.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(first.headers.at("content-security-policy"), Not(HasSubstr("unsafe-inline")));
  EXPECT_EQ(first.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(first.headers.at("referrer-policy"), "no-referrer");
  const HttpReply second = connection.Ask(Get("/a", {{"If-None-Match", first.headers.at("etag")}}));
  EXPECT_EQ(second.status, 304);
  EXPECT_EQ(second.body, "");
  EXPECT_EQ(connection.Ask(Get("/b", {{"If-None-Match", first.headers.at("etag")}})).body, "/b");
  const HttpReply head = connection.Ask("HEAD /abc HTTP/1.1\r\nHost: localhost\r\n\r\n", "HEAD");
  EXPECT_EQ(head.headers.at("content-length"), "4");
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(connection.Ask(Get("/c")).body, "/c");
}

TEST_F(HttpServerTest, RefusesWhatIsNoGet) {
  Start();
  const auto status = [this](const std::string& bytes) { return Fetch(bytes).status; };
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
  EXPECT_EQ(status("DELETE /api/jobs/x HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nabcd"), 413);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "4\r\nabcd\r\n0\r\n\r\n"),
            413);
  EXPECT_EQ(status("\x16\x03\x01 what\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), 421) << "no Host";
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 421);
  EXPECT_EQ(requests_, 0);
  EXPECT_EQ(Fetch(Get("/fine")).status, 200);
}

TEST_F(HttpServerTest, ALongHeadIsRefusedBeforeItIsKept) {
  Start();
  EXPECT_EQ(Fetch("GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\n\r\n").status, 431);
  std::string flood = "GET / HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&flood, "X-", i, ": 1\r\n");
  EXPECT_EQ(Fetch(flood + "\r\n").status, 431);
  EXPECT_EQ(requests_, 0);
}

TEST_F(HttpServerTest, ARequestThatDripsIsCutAndAFullHouseMakesRoom) {
  Start({.max_connections = 4, .read_limit = milliseconds(400)});
  // Sends a byte now and then for ever; each byte comes well before the limit.
  HttpConnection dripping(port());
  bool cut = false;
  for (int i = 0; i < 1000 && !cut; ++i) {
    cut = !dripping.Send("a") || dripping.Closed();
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(cut);

  std::vector<std::unique_ptr<HttpConnection>> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(std::make_unique<HttpConnection>(port()));
  EXPECT_EQ(Fetch(Get("/in")).body, "/in");
}

// Requests with bytes changed, left out, doubled: each gets a reply or a closed connection, and the
// server stays.
TEST_F(HttpServerTest, MangledRequestsDoNoHarm) {
  Start({.read_limit = milliseconds(50)});
  std::mt19937 random(7);
  const std::string whole = Get("/api/jobs?page_size=3", {{"Authorization", "Bearer x"},
                                                          {"If-None-Match", "\"0\""},
                                                          {"Content-Length", "0"},
                                                          {"Connection", "keep-alive"}});
  for (int round = 0; round < 400; ++round) {
    std::string bytes = whole + whole;
    for (int change = 0; change < 4; ++change) {
      const size_t at = random() % bytes.size();
      const size_t length = random() % 8;
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, length);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), length));
      }
    }
    const HttpReply reply = Fetch(bytes);
    EXPECT_TRUE(reply.status == 0 || (reply.status >= 200 && reply.status < 500)) << bytes;
  }
  EXPECT_EQ(Fetch(Get("/alive")).body, "/alive");
}

TEST_F(HttpServerTest, AReplyMayComeLateOrAfterTheEnd) {
  Start();
  HttpConnection connection(port());
  ASSERT_TRUE(connection.Send(Get("/later")));
  for (int i = 0; i < 1000 && requests_ == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  later_([] { return HttpResponse{.content_type = "text/plain", .body = "now"}; });
  EXPECT_EQ(connection.Read("GET").body, "now");
  ASSERT_TRUE(connection.Send(Get("/later")));
  for (int i = 0; i < 1000 && requests_ == 1; ++i) std::this_thread::sleep_for(milliseconds(5));
  server_->Stop();
  later_([] { return HttpResponse{}; });
  EXPECT_TRUE(connection.Closed());
}

TEST_F(HttpServerTest, AnAddressThatIsTakenOrNoneIsAConfigError) {
  Start();
  const auto start = [](const std::string& address) {
    return HttpServer::Start({.address = address}, [](HttpRequest, HttpRespond) {}).status();
  };
  for (const std::string& address : {absl::StrCat("127.0.0.1:", port()), std::string("127.0.0.1"),
                                     std::string("127.0.0.1:99999"), std::string(":80")}) {
    EXPECT_EQ(ReasonOf(start(address)), reason::kConfigInvalid) << address;
  }
}

// Writes a key and a certificate for `name`, signed by itself.
void WriteCertificate(const HttpTls& files, const std::string& name) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate, subject);
  X509_sign(certificate, key, EVP_sha256());
  FILE* file = std::fopen(files.key.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  file = std::fopen(files.certificate.c_str(), "w");
  PEM_write_X509(file, certificate);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

// The name in the certificate that the server shows; empty if there is no handshake.
std::string CertificateName(int port, int max_version = 0) {
  const HttpConnection connection(port);
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (max_version != 0) SSL_CTX_set_max_proto_version(context, max_version);
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, connection.fd());
  std::string name;
  if (SSL_connect(ssl) == 1) {
    X509* certificate = SSL_get1_peer_certificate(ssl);
    char text[64] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text,
                              sizeof text);
    name = text;
    X509_free(certificate);
  }
  SSL_free(ssl);
  SSL_CTX_free(context);
  return name;
}

TEST_F(HttpServerTest, TlsTakesARenewedCertificateAndNoOldVersion) {
  const TestDirectory directory;
  const HttpTls files{.certificate = directory.path() + "/c.pem",
                      .key = directory.path() + "/k.pem"};
  const auto missing =
      HttpServer::Start({.address = "127.0.0.1:0", .tls = files}, [](HttpRequest, HttpRespond) {});
  EXPECT_EQ(ReasonOf(missing.status()), reason::kConfigInvalid);
  WriteCertificate(files, "first");
  Start({.tls = files});
  EXPECT_THAT(server_->url(), HasSubstr("https://"));
  EXPECT_EQ(CertificateName(port()), "first");
  WriteCertificate(files, "second");
  EXPECT_EQ(CertificateName(port()), "second");
  EXPECT_EQ(CertificateName(port(), TLS1_1_VERSION), "");
  // Plain text on a TLS port gets no answer.
  EXPECT_EQ(HttpConnection(port()).Ask(Get("/")).status, 0);
  std::ofstream(files.certificate) << "no certificate";
  EXPECT_EQ(CertificateName(port()), "first") << "the one that was read at start";
}

// ---- A daemon ----

class DaemonHttpTest : public DaemonTest {
 protected:
  void SetUp() override { options_.http_listen = "127.0.0.1:0"; }
  HttpReply Fetch(const std::string& path, const Headers& headers = {}) {
    return HttpConnection(PortOf(daemon_->http_address())).Ask(Get(path, headers));
  }
  nlohmann::json Json(const std::string& path) {
    const HttpReply reply = Fetch(path);
    EXPECT_EQ(reply.status, 200) << path << ": " << reply.body;
    return nlohmann::json::parse(reply.body);
  }
  static std::string ReasonIn(const HttpReply& reply) {
    return nlohmann::json::parse(reply.body)["details"][0]["reason"];
  }
};

TEST_F(DaemonHttpTest, SaysWhereItServes) {
  Start();
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(client_->admin->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.http_address(), daemon_->http_address());
  std::ifstream file(directory_.state() + "/endpoint.json");
  EXPECT_EQ(nlohmann::json::parse(file)["http_address"], daemon_->http_address());
  EXPECT_EQ(Json("/api/server")["httpAddress"], daemon_->http_address());
}

TEST_F(DaemonHttpTest, AJobIsThereAsTheApiHasIt) {
  Start();
  v1::CreateJobRequest request = MakeRequest({{"steps", "20"}, {"checkpoint_every", "10"}});
  const std::string hostile = "</script><img src=x onerror=alert(1)>";
  request.mutable_spec()->set_display_name(hostile);
  v1::Job job;
  ASSERT_TRUE(client_->Create(request, &job).ok());
  client_->WaitForEnd(job.name());

  const auto list = Json("/api/jobs");
  EXPECT_EQ(list["jobs"][0]["name"], job.name());
  EXPECT_EQ(list["jobs"][0]["train"]["displayName"], hostile);
  const std::string base = "/api/" + job.name();
  EXPECT_EQ(Json(base)["job"]["state"], "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(Json(base + "/metrics")["points"].size(), 20u);
  EXPECT_EQ(Json(base + "/metrics?first_step=5&last_step=8")["points"].size(), 4u);
  EXPECT_LE(Json(base + "/metrics?max_points=5")["points"].size(), 5u);
  const auto log = Json(base + "/log");
  EXPECT_EQ(log["lines"][0], "line 0 of attempt 1");
  const std::string rest =
      absl::StrCat(base, "/log?attempt=1&offset=", log["nextOffset"].get<int>());
  EXPECT_EQ(Json(rest)["lines"].size(), 0u);
  EXPECT_EQ(Json(base + "/checkpoints")["checkpoints"].size(), 2u);
  EXPECT_EQ(Json("/api/devices")["devices"][0]["id"], "cpu");
  EXPECT_EQ(Json(base + "/data?examples=3")["documents"], "3");
}

TEST_F(DaemonHttpTest, WhatIsNotThereIsSaidInOurForm) {
  Start();
  for (const std::string path : {"/nothing", "/api", "/api/", "/api/jobs/x/y/z", "/favicon.ico",
                                 "/../etc/passwd", "/web/app.js"}) {
    const HttpReply reply = Fetch(path);
    EXPECT_TRUE(reply.status == 404 || reply.status == 400) << path << " " << reply.status;
    EXPECT_EQ(ReasonIn(reply), "REQUEST_INVALID") << path;
  }
  EXPECT_EQ(ReasonIn(Fetch("/api/jobs/nobody-here")), "JOB_NOT_FOUND");
  for (const std::string part : {"metrics", "log", "checkpoints", "data"}) {
    EXPECT_EQ(Fetch("/api/jobs/nobody-here/" + part).status, 404) << part;
    EXPECT_EQ(Fetch("/api/jobs/..%2f..%2fx/" + part).status, 400) << part;
  }
  for (const std::string query :
       {"/api/jobs?page_size=0", "/api/jobs?page_size=x", "/api/jobs?page_token=x",
        "/api/jobs/some-job/metrics?max_points=-1", "/api/jobs/some-job/log?offset=-5",
        "/api/jobs/some-job/data?examples=1000000"}) {
    const HttpReply reply = Fetch(query);
    EXPECT_EQ(reply.status, 400) << query;
    EXPECT_EQ(ReasonIn(reply), "REQUEST_INVALID") << query;
  }
}

TEST_F(DaemonHttpTest, ThePageIsThereWithItsPartsAndNothingInline) {
  Start();
  const HttpReply page = Fetch("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  const std::regex reference("(?:src|href)=\"([a-z.]+\\.(?:js|css))\"");
  int parts = 0;
  for (std::sregex_iterator at(page.body.begin(), page.body.end(), reference), end; at != end;
       ++at, ++parts) {
    EXPECT_EQ(Fetch("/" + (*at)[1].str()).status, 200) << (*at)[1];
  }
  EXPECT_EQ(parts, 3);
  // The policy would forbid it.
  EXPECT_FALSE(std::regex_search(page.body, std::regex("<script>|<style|style=| on[a-z]+=")));
}

TEST_F(DaemonHttpTest, ReadinessGoesWhenItDrainsAndLivenessStays) {
  Start();
  EXPECT_EQ(Fetch("/healthz").status, 200);
  EXPECT_EQ(Fetch("/readyz").status, 200);
  daemon_->BeginDrain(OnDrain::kRunOn);
  EXPECT_EQ(Fetch("/healthz").status, 200);
  EXPECT_EQ(Fetch("/readyz").status, 503);
  EXPECT_THAT(Fetch("/metrics").body, HasSubstr("\npenstock_accepting_jobs 0\n"));
}

TEST_F(DaemonHttpTest, TheDoorIsAskedForEverythingThatSaysAnything) {
  options_.require_token = true;
  Start();
  v1::CreateTokenRequest request;
  request.set_user("ada");
  request.set_role(v1::ROLE_VIEWER);
  v1::CreateTokenResponse made;
  grpc::ClientContext context;
  ASSERT_TRUE(client_->admin->CreateToken(&context, request, &made).ok());
  const std::string right = "Bearer " + made.secret();
  for (const std::string open : {"/", "/app.js", "/healthz", "/readyz"}) {
    EXPECT_EQ(Fetch(open).status, 200) << open;
  }
  for (const std::string closed :
       {"/metrics", "/api/server", "/api/devices", "/api/jobs", "/api/jobs/some-job",
        "/api/jobs/some-job/metrics", "/api/jobs/some-job/log", "/api/jobs/some-job/checkpoints",
        "/api/jobs/some-job/data"}) {
    const HttpReply reply = Fetch(closed);
    EXPECT_EQ(reply.status, 401) << closed;
    EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer") << closed;
    EXPECT_EQ(Fetch(closed, {{"Authorization", "Bearer wrong"}}).status, 401) << closed;
    EXPECT_NE(Fetch(closed, {{"Authorization", right}}).status, 401) << closed;
  }
  const HttpReply server = Fetch("/api/server", {{"Authorization", right}});
  EXPECT_EQ(nlohmann::json::parse(server.body)["caller"]["user"], "ada");
}

TEST_F(DaemonHttpTest, OtherAddressesThanLoopbackAreRefused) {
  for (const std::string address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:80", "nonsense"}) {
    options_.http_listen = address;
    const auto started = Daemon::Start(options_);
    ASSERT_FALSE(started.ok()) << address;
    EXPECT_EQ(ReasonOf(started.status()), reason::kConfigInvalid) << address;
    EXPECT_EQ(MetadataOf(started.status())["field"], "http_listen") << address;
  }
}

std::set<std::string> FamiliesOf(const std::string& page) {
  std::set<std::string> families;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() == 4 && words[1] == "TYPE") families.insert(words[2] + " " + words[3]);
  }
  return families;
}

TEST_F(DaemonHttpTest, MetricsSayWhatJobsDoAndOutliveTheDaemon) {
  options_.http_listen = "127.0.0.1:0";
  Start();
  const std::string done = client_->Submit({{"steps", "20"}, {"checkpoint_every", "10"}});
  client_->WaitForEnd(done);
  const std::string ended = Fetch("/metrics").body;
  const std::string label = "{name=\"" + done + "\"";
  EXPECT_THAT(ended, HasSubstr("penstock_job_state" + label + ",state=\"SUCCEEDED\"} 1\n"));

  const std::string runs =
      client_->Submit({{"steps", "1000"}, {"step_ms", "20"}, {"checkpoint_every", "10"}});
  client_->WaitFor(runs, [](const v1::Job& job) { return job.progress().step() >= 12; });
  const std::string queued = client_->Submit({});
  client_->WaitFor(queued, [](const v1::Job& job) {
    return job.state_reason() == v1::STATE_REASON_DEVICE_BUSY;
  });
  const auto value = [](const std::string& page, const std::string& series) {
    const size_t at = page.find("\n" + series + " ");
    EXPECT_NE(at, page.npos) << series;
    return at == page.npos ? -1 : std::stod(page.substr(at + series.size() + 2));
  };
  grpc::ClientContext context;
  v1::GetJobRequest nothing;
  nothing.set_name("jobs/nothing");
  v1::GetJobResponse none;
  EXPECT_FALSE(client_->jobs->GetJob(&context, nothing, &none).ok());
  const std::string page = Fetch("/metrics").body;
  EXPECT_EQ(
      value(page, "penstock_rpc_calls_total{method=\"JobService/GetJob\",code=\"NOT_FOUND\"}"), 1);
  EXPECT_EQ(value(page, "penstock_jobs{state=\"RUNNING\"}"), 1);
  EXPECT_EQ(value(page, "penstock_jobs{state=\"QUEUED\"}"), 1);
  EXPECT_EQ(value(page, "penstock_queued_jobs{reason=\"DEVICE_BUSY\"}"), 1);
  EXPECT_EQ(value(page, "penstock_host_memory_reserved_bytes"), 1 << 20);
  EXPECT_EQ(value(page, "penstock_host_memory_limit_bytes"), kHostBytes);
  EXPECT_EQ(value(page, "penstock_device_healthy{device=\"cpu\"}"), 1);
  EXPECT_EQ(value(page, "penstock_rpc_calls_total{method=\"JobService/CreateJob\",code=\"OK\"}"),
            3);
  EXPECT_EQ(value(page, "penstock_rpc_seconds_count{method=\"JobService/CreateJob\"}"), 3);
  EXPECT_EQ(value(page, "penstock_rpc_seconds_bucket{method=\"JobService/CreateJob\",le=\"+Inf\"}"),
            3);
  EXPECT_EQ(value(page, "penstock_device_busy{device=\"cpu\"}"), 1);
  const auto of_job = [&](const std::string& text, const std::string& name,
                          const std::string& more = "") {
    return value(text, name + "{name=\"" + runs + "\"" + more + "}");
  };
  const double steps = of_job(page, "penstock_job_steps_total", ",outcome=\"applied\"");
  EXPECT_GE(steps, 12);
  EXPECT_EQ(of_job(page, "penstock_job_tokens_total"), 100 * steps);
  EXPECT_EQ(of_job(page, "penstock_job_step_seconds_total"), 0.5 * steps);
  EXPECT_EQ(of_job(page, "penstock_job_lane_busy_seconds_total", ",lane=\"compute\""),
            0.25 * steps);
  EXPECT_EQ(of_job(page, "penstock_job_loss"), 1 / steps);
  EXPECT_GE(of_job(page, "penstock_job_checkpoint_step"), 10);
  EXPECT_EQ(of_job(page, "penstock_job_steps_total", ",outcome=\"skipped_non_finite\""), 0);
  EXPECT_EQ(of_job(page, "penstock_job_attempts"), 1);

  Restart();
  client_->WaitForState(runs, v1::JOB_STATE_RUNNING);
  EXPECT_GE(of_job(Fetch("/metrics").body, "penstock_job_steps_total", ",outcome=\"applied\""),
            steps);

  // Each family has its row in the table, and each row its family.
  std::ifstream file(PENSTOCK_METRICS_DOC);
  std::stringstream doc;
  doc << file.rdbuf();
  const std::string text = doc.str();
  std::set<std::string> listed;
  const std::regex row("\n\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|");
  for (std::sregex_iterator at(text.begin(), text.end(), row), end; at != end; ++at) {
    listed.insert((*at)[1].str() + " " + (*at)[2].str());
  }
  EXPECT_EQ(FamiliesOf(page), listed);
}

TEST(MetricsPageTest, HostileNamesAreEscapedAndOmittedJobsCounted) {
  MetricsSnapshot snapshot;
  snapshot.omitted_jobs = 3;
  MeteredJob job;
  job.job.set_name("jobs/x");
  job.job.mutable_train()->set_display_name("a\"} 1\npenstock_fake 1 \\");
  job.meter.step.emplace().set_loss(std::nan(""));
  snapshot.jobs.push_back(job);
  const std::string page = MetricsPage(snapshot);
  EXPECT_THAT(page, HasSubstr("\npenstock_jobs_omitted 3\n"));
  EXPECT_THAT(page, HasSubstr("display_name=\"a\\\"} 1\\npenstock_fake 1 \\\\\""));
  EXPECT_THAT(page, Not(HasSubstr("\npenstock_fake")));
  EXPECT_THAT(page, HasSubstr("\npenstock_job_loss{name=\"jobs/x\"} NaN\n"));
}

}  // namespace
}  // namespace penstock::server
