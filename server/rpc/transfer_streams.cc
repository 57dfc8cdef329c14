#include "server/rpc/transfer_streams.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace penstock::server {

absl::Status TransferStreams::Begin() {
  if (open_.fetch_add(1, std::memory_order_relaxed) < most_) return absl::OkStatus();
  End();
  return Error(absl::StatusCode::kResourceExhausted, reason::kTooManyStreams,
               absl::StrCat(most_,
                            " files are being sent and fetched, as many as may (max_streams); "
                            "try later"),
               {{"limit", absl::StrCat(most_)}, {"retry_seconds", "5"}});
}

}  // namespace penstock::server
