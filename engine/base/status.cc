#include "engine/base/status.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace penstock {
namespace {
constexpr absl::string_view kReasonUrl = "penstock/reason";
constexpr absl::string_view kMetadataPrefix = "penstock/metadata/";

// Distributions build Abseil as C++14, where its string_view is a type of its own.
absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }
}  // namespace

absl::Status Error(absl::StatusCode code, std::string_view reason, std::string_view message,
                   const ErrorMetadata& metadata) {
  absl::Status status(code, View(message));
  status.SetPayload(kReasonUrl, absl::Cord(View(reason)));
  for (const auto& [key, value] : metadata) {
    status.SetPayload(absl::StrCat(kMetadataPrefix, key), absl::Cord(value));
  }
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  auto payload = status.GetPayload(kReasonUrl);
  return payload ? std::string(*payload) : std::string(reason::kInternal);
}

ErrorMetadata MetadataOf(const absl::Status& status) {
  ErrorMetadata metadata;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    if (absl::ConsumePrefix(&url, kMetadataPrefix)) {
      metadata.emplace(std::string(url), std::string(value));
    }
  });
  return metadata;
}

absl::Status Annotate(absl::Status status, std::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(View(context), ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { annotated.SetPayload(url, value); });
  return annotated;
}

}  // namespace penstock
