#include "client/endpoint.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/contexts.h"
#include "engine/base/status.h"
#include "nlohmann/json.hpp"

namespace penstock::client {
namespace {

absl::Status BadEndpoint(const std::string& source, const std::string& found) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat(source, ": found \"", found,
                            "\", expected unix:/path/to/socket, /path/to/socket, host:port or "
                            "https://host:port"),
               {{"found", found}});
}

absl::StatusOr<Endpoint> Parse(const std::string& source, const std::string& text) {
  if (absl::StartsWith(text, "/")) return Endpoint{absl::StrCat("unix:", text), source, false};
  if (absl::StartsWith(text, "unix:/")) return Endpoint{text, source, false};
  const bool tls = absl::StartsWith(text, "https://");
  const std::string address = tls ? text.substr(8) : text;
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 || absl::StrContains(address, "/") ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return BadEndpoint(source, text);
  }
  return Endpoint{address, source, tls};
}

// {"socket": "/path", "tcp_address": "127.0.0.1:7070", ...}; the socket is preferred.
absl::StatusOr<Endpoint> ReadEndpointFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Error(absl::StatusCode::kNotFound, reason::kServerUnreachable,
                 absl::StrCat("PENSTOCK_ENDPOINT_FILE: ", path,
                              " cannot be read: no daemon has written it, or it has ended"),
                 {{"file", path}});
  }
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const std::string key : {"socket", "tcp_address"}) {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) continue;
    const auto& value = json[key].get_ref<const std::string&>();
    const bool tls = key == "tcp_address" && json.contains("tls") && json["tls"] == true;
    if (value.empty()) continue;
    return Parse(absl::StrCat("PENSTOCK_ENDPOINT_FILE ", path), (tls ? "https://" : "") + value);
  }
  return BadEndpoint(absl::StrCat("PENSTOCK_ENDPOINT_FILE ", path), text.substr(0, 80));
}

}  // namespace

std::optional<std::string> GetProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

absl::StatusOr<Endpoint> FindEndpoint(const std::string& flag, const GetEnvironment& environment) {
  if (!flag.empty()) return Parse("--endpoint", flag);
  if (const auto value = environment("PENSTOCK_ENDPOINT")) {
    return Parse("PENSTOCK_ENDPOINT", *value);
  }
  if (const auto path = environment("PENSTOCK_ENDPOINT_FILE")) return ReadEndpointFile(*path);
  PENSTOCK_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(ContextsPath(environment)));
  if (!contexts.current.empty()) {
    return Parse(absl::StrCat("context ", contexts.current),
                 contexts.endpoints.at(contexts.current));
  }
  if (const auto state = environment("XDG_STATE_HOME")) {
    return Endpoint{absl::StrCat("unix:", *state, "/penstock/penstock.sock"), "default", false};
  }
  if (const auto home = environment("HOME")) {
    return Endpoint{absl::StrCat("unix:", *home, "/.local/state/penstock/penstock.sock"), "default",
                    false};
  }
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               "no endpoint: give --endpoint, or set PENSTOCK_ENDPOINT or HOME");
}

}  // namespace penstock::client
