#include "client/slurm.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

// A controller that was just restarted answers after a while.
constexpr int kTries = 3;
constexpr size_t kMaxReply = 1 << 20;

// While a scope lasts, what it starts is deaf to SIGTERM, which Slurm sends to every process of a
// job.
class TerminateBlocked {
 public:
  TerminateBlocked() {
    sigset_t terminate;
    sigemptyset(&terminate);
    sigaddset(&terminate, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &terminate, &before_);
  }
  TerminateBlocked(const TerminateBlocked&) = delete;
  TerminateBlocked& operator=(const TerminateBlocked&) = delete;
  ~TerminateBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// What scontrol printed. `arguments` are of our own making.
absl::StatusOr<std::string> Scontrol(const std::string& arguments) {
  const TerminateBlocked blocked;
  std::string reply;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) absl::SleepFor(absl::Seconds(2));
    const std::string command =
        absl::StrCat("exec timeout -s KILL 18 scontrol ", arguments, " 2>&1 </dev/null");
    FILE* pipe = popen(command.c_str(), "re");
    if (pipe == nullptr) continue;
    reply.clear();
    char part[4096];
    for (size_t got = 0; (got = fread(part, 1, sizeof part, pipe)) > 0;) {
      if (reply.size() < kMaxReply) reply.append(part, got);
    }
    const int status = pclose(pipe);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return reply;
  }
  return Error(absl::StatusCode::kUnavailable, reason::kServerUnreachable,
               absl::StrCat("scontrol ", arguments, ": ",
                            std::string(absl::StripAsciiWhitespace(reply.substr(0, 500)))));
}

bool IsNumber(const std::string& text) {
  return !text.empty() && text.size() < 20 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

}  // namespace

std::optional<std::string> SlurmJobId(const GetEnvironment& environment) {
  const auto number = [&environment](const char* name) -> std::optional<std::string> {
    std::optional<std::string> value = environment(name);
    return value && IsNumber(*value) ? value : std::nullopt;
  };
  const auto array = number("SLURM_ARRAY_JOB_ID"), task = number("SLURM_ARRAY_TASK_ID");
  if (array && task) return absl::StrCat(*array, "_", *task);
  return number("SLURM_JOB_ID");
}

std::string SlurmStateIn(const std::string& text) {
  constexpr char kKey[] = " JobState=";
  const size_t found = text.find(kKey);
  if (found == std::string::npos) return "";
  const size_t start = found + sizeof kKey - 1;
  return text.substr(start, text.find_first_of(" \n", start) - start);
}

absl::StatusOr<Requeued> RequeueSlurmJob(const std::string& id) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string shown, Scontrol(absl::StrCat("-o show job ", id)));
  if (SlurmStateIn(shown) != "RUNNING") return Requeued::kNotRunning;
  PENSTOCK_RETURN_IF_ERROR(Scontrol(absl::StrCat("requeue ", id)).status());
  return Requeued::kYes;
}

}  // namespace penstock::client
