#include "engine/train/left_out_data.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status.h"
#include "engine/train/file_writer.h"
#include "engine/train/rooted_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = ".left-out-";
constexpr int64_t kMost = int64_t{1} << 53;

bool ParseCount(absl::string_view text, int64_t least, int64_t& count) {
  return absl::SimpleAtoi(text, &count) && count >= least && count <= kMost;
}

}  // namespace

absl::StatusOr<std::vector<LeftOutData>> ReadLeftOutData(const std::string& directory) {
  std::map<int64_t, LeftOutData> by_number;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return std::vector<LeftOutData>();
  }
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, kPrefix)) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(rest, '-');
    LeftOutData left_out;
    int64_t number = 0;
    if (parts.size() == 3 && ParseCount(parts[0], 0, left_out.step) &&
        ParseCount(parts[1], 0, number) && ParseCount(parts[2], 1, left_out.data_steps)) {
      by_number[number] = left_out;
    }
  }
  if (error) {
    return Error(absl::StatusCode::kUnavailable, reason::kIoError,
                 absl::StrCat("cannot list ", directory, ": ", error.message()),
                 {{"file", directory}});
  }
  std::vector<LeftOutData> all;
  for (const auto& [number, left_out] : by_number) all.push_back(left_out);
  return all;
}

absl::Status NoteLeftOutData(const std::string& directory, const LeftOutData& left_out,
                             int64_t number) {
  std::error_code ignored;
  fs::create_directories(directory, ignored);  // Open() says what is wrong
  PENSTOCK_ASSIGN_OR_RETURN(const RootedDirectory opened, RootedDirectory::Open(directory));
  const std::string name =
      absl::StrCat(kPrefix, left_out.step, "-", number, "-", left_out.data_steps);
  PENSTOCK_RETURN_IF_ERROR(WriteWholeFile(opened.fd(), directory, name, "").status());
  if (fsync(opened.fd()) == 0) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, reason::kIoError,
               absl::StrCat("cannot flush ", directory, ": ", std::strerror(errno)),
               {{"file", directory}});
}

DataCursor::DataCursor(int64_t known, int64_t offset, std::vector<LeftOutData> left_out)
    : base_(0), left_out_(std::move(left_out)) {
  base_ = offset - LeftOutBefore(known);
}

int64_t DataCursor::LeftOutBefore(int64_t step) const {
  int64_t left_out = base_;
  for (const LeftOutData& each : left_out_) {
    if (each.step < step) left_out += each.data_steps;
  }
  return left_out;
}

}  // namespace penstock
