#include "client/credentials.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kTokenBytes = 68;  // "pst_" and 64 digits

absl::Status Invalid(const std::string& source, const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat(source, ": ", what));
}

absl::StatusOr<std::string> ReadFile(const std::string& source, const std::string& path) {
  std::ifstream file(path);
  if (!file) return Invalid(source, absl::StrCat(path, " cannot be read: ", strerror(errno)));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.size() > kMaxFileBytes) return Invalid(source, absl::StrCat(path, " is too large"));
  return text;
}

// Never says what it found: a wrong file may hold another secret.
absl::StatusOr<std::string> CheckToken(const std::string& source, const std::string& text) {
  const std::string token(absl::StripAsciiWhitespace(text));
  if (absl::StartsWith(token, "pst_") && token.size() == kTokenBytes) return token;
  return Invalid(source,
                 "it holds no token; expected pst_ and 64 digits, as "
                 "`penstock admin token create` prints it");
}

absl::StatusOr<std::string> FindToken(const CredentialOptions& options,
                                      const GetEnvironment& environment) {
  if (!options.token_file.empty()) {
    struct stat info {};
    const bool there = stat(options.token_file.c_str(), &info) == 0;
    if (there && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
      return Invalid("--token-file", absl::StrCat(options.token_file, " is open to other users; ",
                                                  "chmod 600 ", options.token_file));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile("--token-file", options.token_file));
    return CheckToken("--token-file", text);
  }
  if (const auto token = environment("PENSTOCK_TOKEN")) {
    return CheckToken("PENSTOCK_TOKEN", *token);
  }
  return "";
}

bool StaysOnThisMachine(const std::string& target) {
  return absl::StartsWith(target, "unix:") || absl::StartsWith(target, "127.0.0.1:") ||
         absl::StartsWith(target, "[::1]:") || absl::StartsWith(target, "localhost:");
}

}  // namespace

absl::StatusOr<Credentials> FindCredentials(const CredentialOptions& options,
                                            const Endpoint& endpoint,
                                            const GetEnvironment& environment) {
  Credentials found;
  PENSTOCK_ASSIGN_OR_RETURN(found.token, FindToken(options, environment));
  if (!endpoint.tls) {
    if (!options.tls_ca.empty() || !options.tls_cert.empty() || !options.tls_key.empty()) {
      return Invalid("--tls-ca, --tls-cert, --tls-key",
                     absl::StrCat("the endpoint ", endpoint.target,
                                  " has no TLS; write it as https://host:port"));
    }
    if (!found.token.empty() && !StaysOnThisMachine(endpoint.target)) {
      return Invalid(endpoint.source,
                     absl::StrCat("the token would go to ", endpoint.target,
                                  " in plain text; write the endpoint as https://host:port"));
    }
    return found;
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return Invalid("--tls-cert, --tls-key", "a client certificate needs both");
  }
  const std::string ca =
      !options.tls_ca.empty() ? options.tls_ca : environment("PENSTOCK_TLS_CA").value_or("");
  if (!ca.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(found.tls_ca, ReadFile("--tls-ca", ca));
  }
  if (!options.tls_cert.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(found.tls_cert, ReadFile("--tls-cert", options.tls_cert));
    PENSTOCK_ASSIGN_OR_RETURN(found.tls_key, ReadFile("--tls-key", options.tls_key));
  }
  return found;
}

}  // namespace penstock::client
