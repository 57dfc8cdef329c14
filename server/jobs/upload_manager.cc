#include "server/jobs/upload_manager.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "engine/base/units.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/time_util.h"
#include "server/access/call.h"
#include "server/jobs/page_token.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/request_replay.h"
#include "server/reasons.h"
#include "server/store/upload_files.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
using google::protobuf::util::TimeUtil;
namespace {

constexpr char kFilter[] = "uploads";
// A bound for those that announce next to nothing.
constexpr int64_t kMaxUploads = 1000;
constexpr char kUploadPrefix[] = "uploads/";

std::string NewUploadName() {
  constexpr std::string_view kAlphabet = "abcdefghijkmnpqrstuvwxyz23456789";
  std::random_device random;
  std::string id = "u";
  for (int i = 0; i < 12; ++i) id += kAlphabet[random() % kAlphabet.size()];
  return kUploadPrefix + id;
}

absl::StatusOr<int64_t> FreeBytes(const std::string& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat(path, ": cannot learn its free space: ", std::strerror(errno)),
                 {{"file", path}});
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

// Calls `see` with every string of the message.
void VisitStrings(const google::protobuf::Message& message,
                  const std::function<void(const std::string&)>& see) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        see(field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                 : reflection.GetString(message, field));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        VisitStrings(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                          : reflection.GetMessage(message, field),
                     see);
      }
    }
  }
}

}  // namespace

// ---- Creating ----

absl::StatusOr<UploadManager::Begun> UploadManager::BeginCreate(
    const v1::CreateUploadRequest& request) {
  Begun begun;
  PENSTOCK_ASSIGN_OR_RETURN(begun.reply, Replay<v1::CreateUploadResponse>(table_.store(), request));
  if (begun.reply) return begun;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredUpload> incoming, store_.Incomplete());
  for (const StoredUpload& stored : incoming) {
    begun.incoming[stored.upload.name()] = stored.bytes;
  }
  return begun;
}

absl::StatusOr<v1::CreateUploadResponse> UploadManager::FinishCreate(
    const v1::CreateUploadRequest& request, int64_t outstanding_bytes) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, Replay<v1::CreateUploadResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t bytes, CheckUploadFiles(request));
  PENSTOCK_ASSIGN_OR_RETURN(const UploadStore::Totals totals, store_.CountAll());
  if (totals.uploads >= kMaxUploads || bytes > options_.max_bytes - totals.bytes) {
    return Error(
        absl::StatusCode::kResourceExhausted, reason::kUploadLimit,
        absl::StrCat("the upload has ", FormatBytes(bytes), "; ", totals.uploads,
                     " others have announced ", FormatBytes(totals.bytes), ", and all may have ",
                     FormatBytes(options_.max_bytes), " and be ", kMaxUploads,
                     "; delete some (penstock delete uploads/ID), or raise "
                     "max_upload_bytes of penstockd"),
        {{"needed_bytes", absl::StrCat(bytes)},
         {"used_bytes", absl::StrCat(totals.bytes)},
         {"limit_bytes", absl::StrCat(options_.max_bytes)}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t free, FreeBytes(directory_.Uploads()));
  if (bytes > free - outstanding_bytes) {
    return Error(
        absl::StatusCode::kResourceExhausted, reason::kDiskInsufficient,
        absl::StrCat("the upload has ", FormatBytes(bytes), ", and ", directory_.path(), " has ",
                     FormatBytes(free), " free, of which ", FormatBytes(outstanding_bytes),
                     " belong to uploads that are coming in; free space on the daemon's "
                     "machine"),
        {{"needed_bytes", absl::StrCat(bytes)},
         {"usable_bytes", absl::StrCat(free - outstanding_bytes)}});
  }
  v1::CreateUploadResponse response;
  v1::Upload& upload = *response.mutable_upload();
  upload.set_name(request.upload_id().empty() ? NewUploadName()
                                              : kUploadPrefix + request.upload_id());
  *upload.mutable_files() = request.files();
  *upload.mutable_create_time() = TimeUtil::GetCurrentTime();
  upload.set_owner(CurrentUser());
  // Before the row: a row without a directory would take no bytes. One without a row goes at start.
  if (!store_.Get(upload.name()).ok()) {
    PENSTOCK_RETURN_IF_ERROR(directory_.MakeIncoming(upload.name()));
  }
  AddTimes(upload);
  upload.mutable_received_bytes()->Resize(upload.files_size(), 0);
  const auto record = MakeRecord(request, response);
  PENSTOCK_RETURN_IF_ERROR(store_.Insert(upload, bytes, record ? &*record : nullptr));
  return response;
}

// ---- Reading ----

void UploadManager::AddTimes(v1::Upload& upload) const {
  if (upload.complete()) {
    upload.set_directory(directory_.Upload(upload.name()));
    upload.clear_expire_time();
    return;
  }
  const std::optional<time_t> last = UploadFiles::LastActivity(directory_, upload.name());
  if (!last) return;
  *upload.mutable_expire_time() =
      TimeUtil::SecondsToTimestamp(int64_t{*last} + options_.lifetime.count());
}

absl::StatusOr<v1::Upload> UploadManager::Get(const std::string& name) {
  PENSTOCK_ASSIGN_OR_RETURN(StoredUpload stored, store_.Get(name));
  AddTimes(stored.upload);
  return std::move(stored.upload);
}

absl::StatusOr<v1::ListUploadsResponse> UploadManager::List(const v1::ListUploadsRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size()));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t before,
                            ParsePageToken(request.page_token(), kFilter, INT64_MAX));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<StoredUpload> found, store_.List(before, size + 1));
  v1::ListUploadsResponse response;
  for (size_t i = 0; i < found.size(); ++i) {
    if (response.uploads_size() == size) {
      response.set_next_page_token(MakePageToken(kFilter, found[i - 1].row));
      break;
    }
    AddTimes(found[i].upload);
    *response.add_uploads() = std::move(found[i].upload);
  }
  return response;
}

absl::StatusOr<std::string> UploadManager::DirectoryOf(const std::string& name) {
  PENSTOCK_ASSIGN_OR_RETURN(const StoredUpload stored, store_.Get(name));
  if (stored.upload.complete()) return directory_.Upload(name);
  return Error(absl::StatusCode::kFailedPrecondition, reason::kUploadIncomplete,
               absl::StrCat(name, " is not complete; send the rest and finish it (FinishUpload)"),
               {{"upload", name}});
}

// ---- Use by jobs ----

std::set<std::string> UploadManager::UsedBy(const v1::JobSpec& spec) const {
  std::set<std::string> names;
  if (CheckUploadName(spec.start_checkpoint(), "start_checkpoint").ok()) {
    names.insert(spec.start_checkpoint());
  }
  const std::string root = directory_.Uploads() + "/";
  // Every string, so that no field with a path can be forgotten.
  VisitStrings(spec, [&](const std::string& text) {
    absl::string_view rest = text;
    if (!absl::ConsumePrefix(&rest, root)) return;
    const std::string name = absl::StrCat(kUploadPrefix, rest.substr(0, rest.find('/')));
    if (CheckUploadName(name, "name").ok()) names.insert(name);
  });
  return names;
}

absl::Status UploadManager::CheckUsable(const v1::JobSpec& spec) {
  for (const std::string& name : UsedBy(spec)) {
    PENSTOCK_RETURN_IF_ERROR(DirectoryOf(name).status());
  }
  return absl::OkStatus();
}

absl::Status UploadManager::CheckNotInUse(const std::string& name) {
  for (const auto& [row, active] : table_.active()) {
    if (!active->stored.job.has_train()) continue;
    if (!UsedBy(active->stored.job.train()).contains(name)) continue;
    return Error(absl::StatusCode::kFailedPrecondition, reason::kUploadInUse,
                 absl::StrCat(name, " is used by ", active->name(),
                              "; wait for the end of that job, or cancel it"),
                 {{"upload", name}, {"used_by", active->name()}});
  }
  return absl::OkStatus();
}

// ---- Completing ----

absl::StatusOr<std::optional<v1::FinishUploadResponse>> UploadManager::BeginFinish(
    const v1::FinishUploadRequest& request) {
  return Replay<v1::FinishUploadResponse>(table_.store(), request);
}

absl::StatusOr<v1::FinishUploadResponse> UploadManager::SetComplete(
    const v1::FinishUploadRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, BeginFinish(request));
  if (replay) return *replay;
  v1::FinishUploadResponse response;
  v1::Upload& upload = *response.mutable_upload();
  PENSTOCK_ASSIGN_OR_RETURN(upload, Get(request.name()));
  upload.set_complete(true);
  AddTimes(upload);
  for (const v1::FileEntry& file : upload.files()) upload.add_received_bytes(file.bytes());
  const auto record = MakeRecord(request, response);
  PENSTOCK_RETURN_IF_ERROR(store_.SetComplete(request.name(), record ? &*record : nullptr));
  return response;
}

// ---- Deleting ----

absl::Status UploadManager::Discard(const std::string& name) const {
  PENSTOCK_RETURN_IF_ERROR(directory_.DiscardPath(directory_.Incoming(name)));
  return directory_.DiscardPath(directory_.Upload(name));
}

absl::StatusOr<v1::DeleteUploadResponse> UploadManager::Delete(
    const v1::DeleteUploadRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(auto replay, Replay<v1::DeleteUploadResponse>(table_.store(), request));
  if (replay) return *replay;
  PENSTOCK_RETURN_IF_ERROR(store_.Get(request.name()).status());
  PENSTOCK_RETURN_IF_ERROR(CheckNotInUse(request.name()));
  v1::DeleteUploadResponse response;
  const auto record = MakeRecord(request, response);
  PENSTOCK_RETURN_IF_ERROR(store_.Remove(request.name(), record ? &*record : nullptr));
  if (absl::Status discarded = Discard(request.name()); !discarded.ok()) {
    // The upload is gone all the same; the next start moves its files.
    spdlog::error("{}: {}", request.name(), std::string(discarded.message()));
  }
  return response;
}

std::vector<std::string> UploadManager::DeleteExpired() {
  std::vector<std::string> deleted;
  const absl::StatusOr<std::vector<StoredUpload>> incoming = store_.Incomplete();
  if (!incoming.ok()) {
    spdlog::error("cannot look for expired uploads: {}", std::string(incoming.status().message()));
    return deleted;
  }
  for (const StoredUpload& stored : *incoming) {
    const std::string& name = stored.upload.name();
    const std::optional<time_t> last = UploadFiles::LastActivity(directory_, name);
    if (!last || time(nullptr) - *last < options_.lifetime.count()) continue;
    absl::Status removed = store_.Remove(name, nullptr);
    if (removed.ok()) removed = Discard(name);
    if (removed.ok()) {
      spdlog::info("{} has expired: nothing came for {} s", name, options_.lifetime.count());
      deleted.push_back(name);
    } else {
      spdlog::error("{} has expired: {}", name, std::string(removed.message()));
    }
  }
  return deleted;
}

absl::Status UploadManager::Recover() {
  PENSTOCK_RETURN_IF_ERROR(store_.LoadOwners());
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredUpload> all, store_.List(INT64_MAX, INT64_MAX));
  std::set<std::string> known;
  for (const StoredUpload& stored : all) {
    const std::string& name = stored.upload.name();
    known.insert(name);
    if (stored.upload.complete()) continue;
    if (access(directory_.Upload(name).c_str(), F_OK) == 0) {
      // Checked and moved, but the crash came before that was noted.
      PENSTOCK_RETURN_IF_ERROR(store_.SetComplete(name, nullptr));
    } else {
      PENSTOCK_RETURN_IF_ERROR(directory_.MakeIncoming(name));
    }
  }
  if (absl::Status discarded = directory_.DiscardUnknownUploads(known); !discarded.ok()) {
    spdlog::warn("what is left of deleted uploads stays: {}", std::string(discarded.message()));
  }
  return absl::OkStatus();
}

}  // namespace penstock::server
