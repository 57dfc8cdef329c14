#include "client/contexts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "nlohmann/json.hpp"

namespace penstock::client {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::Status NoContexts(const std::string& path) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat(path,
                            " is no file of contexts: remove it, and add them again with "
                            "`penstock context add`"),
               {{"file", path}});
}

absl::Status CannotWrite(const std::string& path) {
  return Error(absl::StatusCode::kUnavailable, reason::kIoError,
               absl::StrCat(path, " cannot be written: ", std::strerror(errno)), {{"file", path}});
}

bool WriteAll(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t put = write(fd, text.data() + written, text.size() - written);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    written += static_cast<size_t>(put);
  }
  return fsync(fd) == 0;
}

}  // namespace

std::string ContextsPath(const GetEnvironment& environment) {
  constexpr char kFile[] = "/penstock/contexts.json";
  if (const auto config = environment("XDG_CONFIG_HOME")) return absl::StrCat(*config, kFile);
  if (const auto home = environment("HOME")) return absl::StrCat(*home, "/.config", kFile);
  return "";
}

absl::StatusOr<Contexts> ReadContexts(const std::string& path) {
  Contexts contexts;
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return contexts;
  std::string text(kMaxFileBytes, '\0');
  std::ifstream file(path);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("current") || !json["current"].is_string() ||
      !json.contains("contexts") || !json["contexts"].is_object()) {
    return NoContexts(path);
  }
  for (const auto& [name, entry] : json["contexts"].items()) {
    if (!CheckContextName(name).ok() || !entry.is_object() || !entry.contains("endpoint") ||
        !entry["endpoint"].is_string()) {
      return NoContexts(path);
    }
    contexts.endpoints[name] = entry["endpoint"].get<std::string>();
  }
  contexts.current = json["current"].get<std::string>();
  if (!contexts.current.empty() && contexts.endpoints.count(contexts.current) == 0) {
    return NoContexts(path);
  }
  return contexts;
}

absl::Status WriteContexts(const std::string& path, const Contexts& contexts) {
  nlohmann::json json{{"current", contexts.current}, {"contexts", nlohmann::json::object()}};
  for (const auto& [name, endpoint] : contexts.endpoints) {
    json["contexts"][name] = {{"endpoint", endpoint}};
  }
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(directory.parent_path(), error);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return CannotWrite(path);
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);  // mode 0600
  if (fd < 0) return CannotWrite(path);
  const bool written =
      WriteAll(fd, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  const int write_error = errno;
  close(fd);
  errno = write_error;
  if (!written || rename(temporary.c_str(), path.c_str()) != 0) {
    const absl::Status status = CannotWrite(path);
    unlink(temporary.c_str());
    return status;
  }
  return absl::OkStatus();
}

absl::Status CheckContextName(const std::string& name) {
  const bool good =
      !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
      });
  if (good) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat("context: found the name \"", name.substr(0, 80),
                            "\", expected 1 to 63 letters, digits, dots, dashes and underscores"),
               {{"found", name.substr(0, 80)}});
}

}  // namespace penstock::client
