#include "server/jobs/request_replay.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/access/call.h"
#include "xxhash.h"

namespace penstock::server {

std::string RequestHash(const google::protobuf::Message& request) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    // Maps would else come in a different order each time.
    coded.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&coded);
  }
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

std::string RequestMethod(const google::protobuf::Message& request) {
  return absl::StrCat(request.GetTypeName(), " of ", CurrentUser());
}

}  // namespace penstock::server
