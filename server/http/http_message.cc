#include "server/http/http_message.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "proto/message_print.h"
#include "server/rpc/grpc_status.h"
#include "server/store/log_file.h"

namespace penstock::server {
namespace {

constexpr char kJson[] = "application/json; charset=utf-8";
constexpr size_t kMaxSegments = 8;
constexpr size_t kMaxParameters = 16;

absl::Status BadTarget(std::string_view target, const std::string& expected) {
  const std::string found = ValidUtf8(std::string(target.substr(0, 200)));
  return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
               absl::StrCat("the path is ", found, "; expected ", expected),
               {{"field", "path"}, {"found", found}, {"expected", expected}});
}

// Nothing if a percent sign is followed by anything but two hexadecimal digits, or what comes out
// has a control character or is no UTF-8.
std::optional<std::string> Decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const std::string_view digits = text.substr(i + 1, 2);
      if (digits.size() != 2 || !absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) ||
          !absl::ascii_isxdigit(static_cast<unsigned char>(digits[1]))) {
        return std::nullopt;
      }
      c = absl::HexStringToBytes({digits.data(), digits.size()})[0];
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return std::nullopt;
    decoded += c;
  }
  if (ValidUtf8(decoded) != decoded) return std::nullopt;
  return decoded;
}

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace

absl::StatusOr<HttpTarget> ParseTarget(std::string_view target) {
  if (target.empty() || target[0] != '/') return BadTarget(target, "one that starts with /");
  const size_t question = target.find('?');
  const std::string_view path = target.substr(1, question == target.npos ? question : question - 1);
  HttpTarget parsed;
  for (const absl::string_view raw :
       absl::StrSplit(absl::string_view(path.data(), path.size()), '/', absl::SkipEmpty())) {
    const auto segment = Decode({raw.data(), raw.size()});
    if (!segment || *segment == "." || *segment == "..") {
      return BadTarget(target, "plain names between the slashes, in UTF-8, percent-encoded");
    }
    parsed.path.push_back(*segment);
    if (parsed.path.size() > kMaxSegments) return BadTarget(target, "a path that this version has");
  }
  if (question == target.npos) return parsed;
  const std::string_view query = target.substr(question + 1);
  for (const absl::string_view pair :
       absl::StrSplit(absl::string_view(query.data(), query.size()), '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> split =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const auto key = Decode({split.first.data(), split.first.size()});
    const auto value = Decode({split.second.data(), split.second.size()});
    if (!key || !value || parsed.query.size() >= kMaxParameters ||
        !parsed.query.emplace(*key, *value).second) {
      return BadTarget(target, "a query of a few parameters, each once, percent-encoded UTF-8");
    }
  }
  return parsed;
}

bool IsLoopbackHost(std::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port = colon != host.npos && (bracket == host.npos || bracket < colon);
  const std::string name =
      absl::AsciiStrToLower(std::string(has_port ? host.substr(0, colon) : host));
  if (has_port && host.find_first_not_of("0123456789", colon + 1) != host.npos) return false;
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]";
}

HttpResponse JsonResponse(const google::protobuf::Message& message) {
  return {.status = 200, .content_type = kJson, .body = MessageToJson(message)};
}

HttpResponse ErrorResponse(const absl::Status& status) {
  return ErrorResponse(HttpStatusOf(status.code()), status);
}

HttpResponse ErrorResponse(int http_status, const absl::Status& status) {
  return {.status = http_status, .content_type = kJson, .body = MessageToJson(ToRpcStatus(status))};
}

}  // namespace penstock::server
