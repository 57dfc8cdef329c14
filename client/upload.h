// Sends files to the daemon. What has arrived stays there when the connection breaks, when the
// daemon is restarted, and when this program ends: the next try, or the next program, sends the
// rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/rpc_client.h"
#include "client/transfer_progress.h"
#include "penstock/v1/transfer_service.pb.h"

namespace penstock::client {

struct LocalFile {
  std::string source;  // where it lies here
  v1::FileEntry entry = {};
};

// A file, or the regular files beneath a directory, by path; links to files count as files.
// InvalidArgument / REQUEST_INVALID for what cannot be sent: nothing, a link to a directory, a name
// that the daemon takes for no path.
absl::StatusOr<std::vector<LocalFile>> FindLocalFiles(const std::string& path);

// Fills in the SHA-256 of each.
absl::Status HashFiles(std::vector<LocalFile>& files, TransferProgress& progress);

struct UploadArgs {
  std::vector<LocalFile> files;  // hashed
  std::string upload_id;         // empty: the daemon chooses
};
// Announces, sends what is missing, and finishes. The same files announced again within a week,
// with the same id or none, go on with the same upload.
absl::StatusOr<v1::Upload> SendUpload(RpcClient& client, const UploadArgs& args,
                                      TransferProgress& progress);

}  // namespace penstock::client
