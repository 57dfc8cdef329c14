// Stands between a test program and the kernel: every call that changes files beneath a directory
// is counted and recorded, and one of them can fail, do half of its work, or end the process.
//
// A program that links this has its own write(), fsync(), rename() and so on, which the dynamic
// linker prefers to those of libc, also for calls from libstdc++. Only on Linux with a dynamic
// libc. fsync() is recorded and not done: a process that dies takes no written byte with it, and
// what a power cut takes is what tests work out from the record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::testing {

struct FileCall {
  enum class Kind : uint8_t {
    kCreate,  // a file, empty
    kMakeDirectory,
    kWrite,     // `data` at `offset`
    kReserve,   // of space; changes no content
    kSync,      // file or directory
    kRename,    // to `target`
    kExchange,  // with `target`
    kRemove,    // file or directory
  };
  Kind kind = Kind::kSync;
  std::string path;  // relative to the directory, empty for itself
  std::string target = {};
  std::string data = {};
  int64_t offset = 0;
  bool done = true;  // whether it went well
};

struct FileFault {
  enum class Kind : uint8_t {
    kNone,
    kKill,        // SIGKILL in place of the call
    kTear,        // half of a write, then SIGKILL; other calls: SIGKILL after the call
    kShorten,     // half of a write, which is what it reports; other calls go well
    kFail,        // fails with `error`
    kFailAlways,  // this and all after it
    kSlow,        // this and all after it take `milliseconds` longer
    kFailReads,   // reads of `path` fail with `error`; they are no calls that count
  };
  Kind kind = Kind::kNone;
  int64_t at = 0;  // number of the call, from 0
  int error = 0;   // an errno
  int milliseconds = 0;
  std::string path = {};  // as in FileCall
};

// Calls on files beneath `directory` count from now on. One at a time.
void StartFileFaults(const std::string& directory, const FileFault& fault);
// Ends it and gives all calls, short writes as long as they were.
std::vector<FileCall> StopFileFaults();
int64_t FileCallsSoFar();

}  // namespace penstock::testing
