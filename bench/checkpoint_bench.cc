// penstock_checkpoint_bench: how much of what a disk gives a checkpoint gets, written and loaded.
//
//   penstock_checkpoint_bench --geometry=qwen2.5-0.5b --directory=/where --threads=2
//
// Beside it the plainest programs that the same threads could be: each writes a file of its own in
// pieces of 4 MiB from one buffer, past the page cache or through it, and flushes it. Every line is
// a measurement of `repeats` in turn, best first; what is written is removed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/flags.h"
#include "bench/geometry.h"
#include "engine/base/status.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/host_store.h"
#include "engine/train/checkpoint.h"
#include "engine/train/random_init.h"
#include "engine/train/rooted_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kPiece = int64_t{4} << 20;
constexpr int64_t kBlock = 4096;

absl::Status WritePlainFile(const std::string& path, int64_t bytes, bool direct) {
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  const std::unique_ptr<std::byte, Free> buffer(
      static_cast<std::byte*>(std::aligned_alloc(kBlock, kPiece)));
  std::memset(buffer.get(), 0x5a, kPiece);
  const FileDescriptor file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600));
  if (!file.valid()) return absl::UnavailableError(absl::StrCat("cannot create ", path));
  (void)fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, bytes);
  for (int64_t at = 0; at < bytes; at += kPiece) {
    if (write(file.get(), buffer.get(), kPiece) != kPiece) {
      return absl::UnavailableError(absl::StrCat("cannot write ", path));
    }
  }
  return fsync(file.get()) == 0 ? absl::OkStatus() : absl::UnavailableError("cannot flush");
}

absl::Status WritePlainFiles(const std::string& directory, int64_t bytes, bool direct,
                             ThreadPool& pool) {
  std::vector<absl::Status> written(pool.size());
  pool.ParallelFor(pool.size(), [&](int64_t task, int) {
    written[task] =
        WritePlainFile(absl::StrCat(directory, "/plain", task), bytes / pool.size(), direct);
  });
  for (const absl::Status& status : written) PENSTOCK_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

struct Flags {
  std::string geometry = "qwen2.5-0.5b", directory;
  int64_t threads = 2, repeats = 3;
};

absl::Status Measure(const Flags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelSpec spec, FindGeometry(flags.geometry));
  const ModelLayout layout = MakeLayout(spec);
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<HostStore> store,
      HostStore::Create(layout, OptimizerState::kFloat32, GradientPlane::kNone));
  ThreadPool pool(static_cast<int>(flags.threads));
  InitializeWeights(spec, /*seed=*/1, *store, pool);
  store->TouchPages(pool);
  ExportSource source;
  source.config_json = "{}";
  const std::string checkpoint = flags.directory + "/checkpoint";
  const auto no_progress = [](int64_t, int64_t) { return absl::OkStatus(); };
  const int64_t bytes = CheckpointBytes(*store);
  const auto plain = [&](bool direct) {
    return WritePlainFiles(flags.directory, bytes, direct, pool);
  };
  struct Line {
    const char* name;
    std::function<absl::Status()> run;
    std::vector<double> rates = {};
  };
  std::vector<Line> lines = {{"plain files, past the page cache", [&] { return plain(true); }},
                             {"plain files, through the page cache", [&] { return plain(false); }},
                             {"checkpoint", [&] {
                                return WriteCheckpoint(*store, source, {.step = 1}, checkpoint,
                                                       pool, no_progress)
                                    .status();
                              }}};
  for (int64_t repeat = 0; repeat < flags.repeats; ++repeat) {
    for (Line& line : lines) {
      const Clock::time_point start = Clock::now();
      PENSTOCK_RETURN_IF_ERROR(line.run());
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      line.rates.push_back(static_cast<double>(bytes) / seconds * 1e-6);
      for (const auto& entry : fs::directory_iterator(flags.directory)) fs::remove_all(entry);
    }
  }
  std::printf("%s, %.2f GB, %d threads\n", flags.geometry.c_str(),
              static_cast<double>(bytes) * 1e-9, pool.size());
  for (Line& line : lines) {
    std::sort(line.rates.rbegin(), line.rates.rend());
    std::printf("%-38s", line.name);
    for (const double rate : line.rates) std::printf(" %6.0f", rate);
    std::printf(" MB/s\n");
  }
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  Flags flags;
  PENSTOCK_RETURN_IF_ERROR(
      ParseFlags(argc, argv,
                 {.texts = {{"geometry", &flags.geometry}, {"directory", &flags.directory}},
                  .numbers = {{"threads", &flags.threads}, {"repeats", &flags.repeats}}}));
  std::error_code error;
  if (flags.threads < 1 || flags.repeats < 1 || !fs::is_directory(flags.directory, error) ||
      !fs::is_empty(flags.directory, error)) {
    return absl::InvalidArgumentError(
        "--directory must name an empty directory, --threads and --repeats must be positive");
  }
  return Measure(flags);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const absl::Status status = penstock::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "penstock_checkpoint_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
