#include "client/credentials.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/access_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace penstock::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CredentialOptions TokenFile(const std::string& path) {
  CredentialOptions options;
  options.token_file = path;
  return options;
}

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    std::string pattern = ::testing::TempDir() + "/penstock-credentials-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) directory_ = pattern;
  }
  ~CredentialsTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = absl::StrCat(directory_, "/", name);
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  absl::StatusOr<Credentials> Find(const CredentialOptions& options,
                                   const std::string& target = "127.0.0.1:1",
                                   std::map<std::string, std::string> environment = {}) {
    const bool tls = target.rfind("https://", 0) == 0;
    const Endpoint endpoint{tls ? target.substr(8) : target, "--endpoint", tls};
    return FindCredentials(options, endpoint,
                           [environment](const std::string& name) -> std::optional<std::string> {
                             const auto found = environment.find(name);
                             if (found == environment.end()) return std::nullopt;
                             return found->second;
                           });
  }
  std::string Problem(const CredentialOptions& options, const std::string& target,
                      std::map<std::string, std::string> environment = {}) {
    return std::string(Find(options, target, std::move(environment)).status().message());
  }

  const std::string token_ = "pst_" + std::string(64, 'a');
  std::string directory_;
};

TEST_F(CredentialsTest, TheFileComesBeforeTheEnvironmentAndNobodyElseMayReadIt) {
  const std::string other = "pst_" + std::string(64, 'b');
  const std::map<std::string, std::string> environment{{"PENSTOCK_TOKEN", other}};
  EXPECT_EQ(Find({})->token, "");
  EXPECT_EQ(Find({}, "unix:/s", environment)->token, other);
  const std::string path = Write("token", token_ + "\n", 0600);
  EXPECT_EQ(Find(TokenFile(path), "unix:/s", environment)->token, token_);
  for (const int mode : {0640, 0604, 0620, 0601}) {
    chmod(path.c_str(), static_cast<mode_t>(mode));
    EXPECT_THAT(Problem(TokenFile(path), "unix:/s", environment), HasSubstr("chmod 600"));
  }
  EXPECT_THAT(Problem(TokenFile("/none"), "unix:/s"), HasSubstr("/none cannot be read"));
}

TEST_F(CredentialsTest, WhatIsNoTokenIsNotShown) {
  for (const std::string text : {"hunter2", "pst_short", "", "Bearer x"}) {
    const std::string path = Write("wrong", text, 0600);
    EXPECT_THAT(Problem(TokenFile(path), "unix:/s"), HasSubstr("holds no token"));
    if (!text.empty()) {
      EXPECT_THAT(Problem(TokenFile(path), "unix:/s"), Not(HasSubstr(text)));
    }
  }
}

TEST_F(CredentialsTest, ATokenDoesNotLeaveTheMachineInPlainText) {
  const std::map<std::string, std::string> environment{{"PENSTOCK_TOKEN", token_}};
  for (const char* target : {"127.0.0.1:7", "[::1]:7", "localhost:7", "unix:/s"}) {
    EXPECT_TRUE(Find({}, target, environment).ok()) << target;
  }
  for (const char* target : {"lab:7", "10.0.0.1:7", "127.0.0.1.example.org:7", "localhost.x:7"}) {
    EXPECT_THAT(Problem({}, target, environment), HasSubstr("plain text")) << target;
    EXPECT_TRUE(Find({}, target).ok()) << target;  // without one there is nothing to lose
    EXPECT_TRUE(Find({}, absl::StrCat("https://", target), environment).ok()) << target;
  }
}

TEST_F(CredentialsTest, TlsFilesAreReadAndBelongToTls) {
  const std::string ca = Write("ca.pem", "authority", 0644);
  const std::string own = Write("own.pem", "own", 0644), key = Write("own.key", "key", 0600);
  const auto found =
      Find({.token_file = {}, .tls_ca = ca, .tls_cert = own, .tls_key = key}, "https://lab:7");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->tls_ca, "authority");
  EXPECT_EQ(found->tls_cert, "own");
  EXPECT_EQ(found->tls_key, "key");
  EXPECT_EQ(Find({}, "https://lab:7", {{"PENSTOCK_TLS_CA", ca}})->tls_ca, "authority");
  EXPECT_EQ(Find({}, "lab:7", {{"PENSTOCK_TLS_CA", ca}})->tls_ca, "");
  CredentialOptions options;
  options.tls_ca = ca;
  EXPECT_THAT(Problem(options, "lab:7"), HasSubstr("https://host:port"));
  options = {};
  options.tls_cert = own;
  EXPECT_THAT(Problem(options, "https://lab:7"), HasSubstr("needs both"));
}

TEST(PeriodTest, IsANumberAndAUnit) {
  EXPECT_EQ(*ParsePeriod("90s"), absl::Seconds(90));
  EXPECT_EQ(*ParsePeriod("15m"), absl::Minutes(15));
  EXPECT_EQ(*ParsePeriod("12h"), absl::Hours(12));
  EXPECT_EQ(*ParsePeriod("30d"), absl::Hours(720));
  for (const char* text : {"", "d", "30", "0d", "-1d", "1w", "1.5h", "9223372036854775807d"}) {
    EXPECT_FALSE(ParsePeriod(text).ok()) << text;
  }
}

}  // namespace
}  // namespace penstock::client
