#include "tests/fuzz/driver.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <thread>

#include "absl/strings/str_cat.h"

namespace penstock::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

// What the child tells the parent; it outlives the child.
struct Shared {
  std::atomic<int64_t> next_case;  // the case being run, or about to be
  std::atomic<int64_t> accepted;
  std::atomic<int64_t> slowest_case;
  std::atomic<double> slowest_seconds;
  std::atomic<bool> done;
  char violation[16384];  // of the case, with a zero at its end; "" if there is none
};

class SharedPage {
 public:
  SharedPage() {
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    shared_ = new (memory) Shared();
  }
  ~SharedPage() { munmap(shared_, sizeof(Shared)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  Shared* operator->() const { return shared_; }

 private:
  Shared* shared_;
};

struct Bounds {
  int64_t end_case = 0;
  std::optional<Clock::time_point> deadline;
  bool Over(int64_t next) const {
    return next >= end_case || (deadline && Clock::now() >= *deadline);
  }
};

// In the child: cases until the end or the first violation. Never returns.
[[noreturn]] void RunCases(const TargetFactory& factory, const RunArgs& args, const Bounds& bounds,
                           const SharedPage& shared) {
  {
    std::unique_ptr<Target> target = factory.make(args.testdata);
    for (int64_t number = shared->next_case; !bounds.Over(number); ++number) {
      shared->next_case = number;
      Random random(args.seed + number / kCasesOfASeed, number % kCasesOfASeed);
      const Clock::time_point start = Clock::now();
      const absl::StatusOr<Outcome> outcome = target->RunCase(random);
      const std::chrono::duration<double> taken = Clock::now() - start;
      if (taken.count() > shared->slowest_seconds) {
        shared->slowest_seconds = taken.count();
        shared->slowest_case = number;
      }
      if (!outcome.ok()) {
        const std::string text(outcome.status().message());
        std::strncpy(shared->violation, text.c_str(), sizeof(shared->violation) - 1);
        target.reset();  // with the files and processes that it has
        std::_Exit(1);
      }
      if (*outcome == Outcome::kAccepted) ++shared->accepted;
      shared->next_case = number + 1;
    }
  }
  shared->done = true;
  std::exit(0);  // not _Exit: the leak sanitizer looks now
}

int64_t ResidentBytes(pid_t child) {
  std::ifstream file(absl::StrCat("/proc/", child, "/statm"));
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Waits for the child, watching it. Why it had to be killed, or "".
std::string Watch(pid_t child, const RunArgs& args, const SharedPage& shared, int& exit_status) {
  int64_t last_case = -1;
  Clock::time_point since = Clock::now();
  std::string killed;
  for (;;) {
    const pid_t ended = waitpid(child, &exit_status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return killed;
    if (const int64_t now = shared->next_case; now != last_case) {
      last_case = now;
      since = Clock::now();
    }
    const std::chrono::duration<double> running = Clock::now() - since;
    if (killed.empty() && running.count() > args.max_case_seconds) {
      killed = absl::StrCat("ran for more than ", args.max_case_seconds, " s");
    } else if (killed.empty() && ResidentBytes(child) > args.max_memory_bytes) {
      killed = absl::StrCat("the process has more than ", args.max_memory_bytes, " bytes");
    }
    if (!killed.empty()) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string Describe(int exit_status) {
  if (WIFSIGNALED(exit_status)) {
    return absl::StrCat("died of signal ", WTERMSIG(exit_status), " (",
                        strsignal(WTERMSIG(exit_status)), ")");
  }
  return absl::StrCat("ended with status ", WEXITSTATUS(exit_status), "; see above");
}

}  // namespace

RunResult Fuzz(const TargetFactory& factory, const RunArgs& args) {
  Bounds bounds{.end_case = std::numeric_limits<int64_t>::max(), .deadline = std::nullopt};
  if (args.cases) bounds.end_case = args.first_case + *args.cases;
  if (args.seconds) {
    bounds.deadline =
        Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(*args.seconds * 1000));
  }
  const SharedPage shared;
  shared->next_case = args.first_case;
  RunResult result;
  while (!shared->done && !bounds.Over(shared->next_case) &&
         result.findings.size() < kMaxFindings) {
    std::fflush(nullptr);
    shared->violation[0] = '\0';
    const pid_t child = fork();
    if (child < 0) std::abort();
    if (child == 0) RunCases(factory, args, bounds, shared);
    int status = 0;
    std::string what = Watch(child, args, shared, status);
    if (what.empty() && shared->violation[0] != '\0') what = shared->violation;
    if (what.empty() && status != 0) what = Describe(status);
    if (what.empty()) break;
    const int64_t number = shared->next_case++;
    result.findings.push_back({.seed = args.seed + number / kCasesOfASeed,
                               .case_number = number % kCasesOfASeed,
                               .what = std::move(what)});
  }
  result.cases = shared->next_case - args.first_case;
  result.accepted = shared->accepted;
  result.slowest_case = shared->slowest_case;
  result.slowest_seconds = shared->slowest_seconds;
  return result;
}

}  // namespace penstock::fuzz
