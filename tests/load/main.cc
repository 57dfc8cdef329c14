// penstock_load_test: a real penstockd with a filled store, a job that trains, watchers and
// clients; optionally killed again and again. Prints how long calls took, what the daemon took of
// the machine and what the job's steps took; exit code 1 if a reply or an event was lost or came
// twice, or if the daemon's memory grew. Times are printed and, unless --max_... say so, not
// judged: machines are shared.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/job_file.h"
#include "engine/base/status.h"
#include "tests/load/clients.h"
#include "tests/load/daemon_process.h"
#include "tests/load/filled_store.h"
#include "tests/load/findings.h"
#include "tests/load/watchers.h"

namespace penstock::load {
namespace {

struct Flags {
  DaemonArgs daemon;
  std::string job_file;
  std::vector<std::string> running;
  int64_t stored_jobs = 10'000;
  int64_t watchers = 1000;
  int64_t all_jobs_watchers = -1;
  int64_t clients = 100;
  double calls_per_second = 200;
  int64_t seconds = 60;
  int64_t kills = 0;
  double max_read_ms = 0, max_submit_ms = 0;
  double max_growth = 0.25;
  double max_step_growth = 0;
};

// Of the job that trains, its settings beside those of the file: steps long enough to be measured
// and never the last.
const std::vector<std::string> kRunning = {
    "batch.tokens_per_step=16384", "batch.micro_batch_tokens=2048", "schedule.max_steps=1000000",
    "checkpoints.every_steps=1000000", "evaluation.every_steps=1000000"};

absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::UnknownError(status.error_message());
}

class LoadTest {
 public:
  explicit LoadTest(Flags flags) : flags_(std::move(flags)), daemon_(flags_.daemon) {}

  absl::Status Run() {
    PENSTOCK_RETURN_IF_ERROR(PrepareStore());
    PENSTOCK_RETURN_IF_ERROR(StartJob());
    quiet_step_ = MedianStep(flags_.seconds / 2);
    const ProcessUse quiet = daemon_.Use();
    EventLog start = ReadEvents(daemon_, {.running_job = running_job_}, findings_);
    start.events = 0;
    RecentJobs recent;
    const int64_t all_jobs =
        flags_.all_jobs_watchers >= 0 ? flags_.all_jobs_watchers : flags_.watchers / 20;
    const int64_t follow = (flags_.watchers - all_jobs) / 3;
    Watchers watchers({.all_jobs = all_jobs,
                       .running = flags_.watchers - all_jobs - follow,
                       .follow = follow,
                       .start = start},
                      daemon_, recent, findings_);
    if (!Await([&] { return watchers.caught_up() >= flags_.watchers - follow; })) {
      return absl::DeadlineExceededError("the watchers do not catch up");
    }
    Clients clients({.spec = spec_,
                     .clients = flags_.clients,
                     .calls_per_second = flags_.calls_per_second,
                     .stored_jobs = flags_.stored_jobs,
                     .running_job = running_job_},
                    daemon_, recent, findings_);
    absl::SleepFor(absl::Seconds(flags_.seconds) / 10);  // everything has been touched once
    PENSTOCK_RETURN_IF_ERROR(Load(watchers, quiet));
    PENSTOCK_RETURN_IF_ERROR(KillAgainAndAgain());
    clients.Stop();
    return Check(watchers, clients, start);
  }

 private:
  absl::Status PrepareStore() {
    PENSTOCK_ASSIGN_OR_RETURN(spec_, client::LoadJobFile(flags_.job_file, {}));
    PENSTOCK_RETURN_IF_ERROR(daemon_.Start());
    v1::CreateJobRequest request;
    *request.mutable_spec() = spec_;
    request.set_validate_only(true);  // one that nothing runs
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Job job, Create(request));
    daemon_.Kill();
    PENSTOCK_RETURN_IF_ERROR(FillStore(daemon_.state(), job, flags_.stored_jobs));
    const absl::Time begin = absl::Now();
    PENSTOCK_RETURN_IF_ERROR(daemon_.Start());
    std::printf("%ld jobs in the store; penstockd starts in %.2f s\n",
                static_cast<long>(flags_.stored_jobs), absl::ToDoubleSeconds(absl::Now() - begin));
    return absl::OkStatus();
  }

  absl::StatusOr<v1::Job> Create(const v1::CreateJobRequest& request) {
    grpc::ClientContext context;
    v1::CreateJobResponse response;
    PENSTOCK_RETURN_IF_ERROR(ToStatus(Stub()->CreateJob(&context, request, &response)));
    return response.job();
  }

  absl::Status StartJob() {
    v1::CreateJobRequest request;
    std::vector<std::string> settings = kRunning;
    settings.insert(settings.end(), flags_.running.begin(), flags_.running.end());
    PENSTOCK_ASSIGN_OR_RETURN(*request.mutable_spec(), client::ChangeJobSpec(spec_, settings));
    request.mutable_spec()->mutable_queue()->set_priority(v1::PRIORITY_HIGH);
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Job job, Create(request));
    running_job_ = job.name();
    if (Await([&] { return StepsDone() >= 5; })) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(running_job_, " does not train"));
  }

  template <typename Condition>
  static bool Await(Condition condition) {
    for (int i = 0; i < 1200; ++i) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return false;
  }

  std::unique_ptr<v1::JobService::Stub> Stub() const {
    return v1::JobService::NewStub(daemon_.Connect());
  }

  int64_t StepsDone() {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name(running_job_);
    v1::GetJobResponse response;
    (void)Stub()->GetJob(&context, request, &response);
    return response.job().progress().step();
  }

  // In milliseconds, of those steps that the job takes from now on.
  double MedianStep(int64_t seconds) {
    v1::ListJobMetricsRequest request;
    request.set_name(running_job_);
    request.set_first_step(StepsDone() + 2);
    request.set_max_points(10'000);
    absl::SleepFor(absl::Seconds(seconds));
    v1::ListJobMetricsResponse response;
    const auto has_points = [&] {
      grpc::ClientContext context;
      return Stub()->ListJobMetrics(&context, request, &response).ok() &&
             !response.points().empty();
    };
    if (!Await(has_points)) {  // a step may take long on a busy machine
      findings_.Add("the job took no step in the time that was measured");
      return 0;
    }
    std::vector<double> times;
    for (const v1::StepMetrics& point : response.points()) times.push_back(point.step_seconds());
    std::sort(times.begin(), times.end());
    return 1000 * times[times.size() / 2];
  }

  absl::Status Load(const Watchers& watchers, const ProcessUse& quiet) {
    const ProcessUse first = daemon_.Use();
    const ProcessUse own_first = UseOf(getpid());
    const int64_t messages = watchers.messages();
    findings_.Measure(true);
    // Memory is looked at twice, after the daemon has seen all kinds of calls.
    loaded_step_ = MedianStep(flags_.seconds / 2);
    const ProcessUse half = daemon_.Use();
    absl::SleepFor(absl::Seconds(flags_.seconds - flags_.seconds / 2));
    findings_.Measure(false);
    const ProcessUse last = daemon_.Use(), own_last = UseOf(getpid());
    const auto seconds = static_cast<double>(flags_.seconds);
    std::printf("%ld watchers, %ld clients, %ld s\n", static_cast<long>(flags_.watchers),
                static_cast<long>(flags_.clients), static_cast<long>(flags_.seconds));
    std::printf("  %-10s %8s %9s %9s %9s\n", "", "calls/s", "p50 ms", "p99 ms", "max ms");
    for (size_t i = 0; i < kMethodNames.size(); ++i) {
      const Quantiles times = findings_.Times(static_cast<Method>(i));
      std::printf("  %-10s %8.1f %9.2f %9.2f %9.2f\n", kMethodNames[i],
                  static_cast<double>(times.count) / seconds, times.p50_ms, times.p99_ms,
                  times.max_ms);
    }
    constexpr double kMiB = 1 << 20;
    std::printf(
        "  watchers got %.0f messages/s; penstockd took %.2f CPUs, clients and watchers %.2f\n",
        static_cast<double>(watchers.messages() - messages) / seconds,
        (last.cpu_seconds - first.cpu_seconds) / seconds,
        (own_last.cpu_seconds - own_first.cpu_seconds) / seconds);
    std::printf("  penstockd's memory: quiet %.1f MiB, under load %.1f, %.1f, %.1f MiB\n",
                static_cast<double>(quiet.resident_bytes) / kMiB,
                static_cast<double>(first.resident_bytes) / kMiB,
                static_cast<double>(half.resident_bytes) / kMiB,
                static_cast<double>(last.resident_bytes) / kMiB);
    std::fflush(stdout);
    if (static_cast<double>(last.resident_bytes) >
        (1 + flags_.max_growth) * static_cast<double>(half.resident_bytes)) {
      findings_.Add("penstockd's memory grows");
    }
    JudgeTimes();
    return absl::OkStatus();
  }

  void JudgeTimes() {
    const auto judge = [&](Method method, double limit) {
      const double p99 = findings_.Times(method).p99_ms;
      if (limit > 0 && p99 > limit) {
        findings_.Add(absl::StrCat("p99 of ", kMethodNames[static_cast<size_t>(method)], " is ",
                                   p99, " ms, expected at most ", limit));
      }
    };
    judge(Method::kGet, flags_.max_read_ms);
    judge(Method::kList, flags_.max_read_ms);
    judge(Method::kSubmit, flags_.max_submit_ms);
  }

  // Machines grow slower and faster by themselves, so the load is compared with before and after.
  void JudgeStep() {
    const double after = MedianStep(flags_.seconds / 2);
    const double growth = 2 * loaded_step_ / (quiet_step_ + after) - 1;
    std::printf(
        "the job's step: quiet %.2f and, afterwards, %.2f ms; under load %.2f ms (medians; "
        "%+.2f %%)\n",
        quiet_step_, after, loaded_step_, 100 * growth);
    if (flags_.max_step_growth > 0 && growth > flags_.max_step_growth) {
      findings_.Add("the job's steps take longer under load");
    }
  }

  absl::Status KillAgainAndAgain() {
    for (int64_t i = 0; i < flags_.kills; ++i) {
      absl::SleepFor(absl::Milliseconds(500 + 300 * (i % 5)));
      daemon_.Kill();
      PENSTOCK_RETURN_IF_ERROR(daemon_.Start());
    }
    if (flags_.kills > 0) {
      std::printf("%ld kills of penstockd\n", static_cast<long>(flags_.kills));
    }
    return absl::OkStatus();
  }

  absl::Status Check(Watchers& watchers, const Clients& clients, const EventLog& start) {
    const EventLog end = ReadEvents(daemon_, start, findings_);
    if (!Await([&] { return watchers.HaveSeen(end); })) {
      findings_.Add("watchers do not get the last events");
    }
    watchers.CheckEvents(end, findings_);
    watchers.Stop();
    CheckSubmissions(clients.submissions(), daemon_, findings_);
    JudgeStep();
    std::printf("%zu submits, %llu events, %ld watch messages checked: %ld findings\n",
                clients.submissions().size(), static_cast<unsigned long long>(end.events),
                static_cast<long>(watchers.messages()), static_cast<long>(findings_.count()));
    for (const std::string& text : findings_.texts()) std::printf("  %s\n", text.c_str());
    if (findings_.count() == 0) return absl::OkStatus();
    return absl::InternalError("the daemon did not hold what is asked of it");
  }

  const Flags flags_;
  double quiet_step_ = 0, loaded_step_ = 0;  // milliseconds
  Findings findings_;
  DaemonProcess daemon_;
  v1::JobSpec spec_;
  std::string running_job_;
};

// Each watcher has a connection at both ends.
void RaiseFileLimit() {
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace penstock::load

int main(int argc, char** argv) {
  using penstock::load::Flags;
  Flags flags;
  CLI::App app("penstockd under load");
  app.add_option("--bin", flags.daemon.bin, "Where penstockd and penstock-worker are")->required();
  app.add_option("--job", flags.job_file, "Job file of the jobs that are submitted")->required();
  app.add_option("--running_set", flags.running,
                 "Sets a field of the job that trains: limits.compute_threads=4; repeatable")
      ->allow_extra_args(false);
  app.add_option("--stored_jobs", flags.stored_jobs)->check(CLI::PositiveNumber);
  app.add_option("--watchers", flags.watchers)->check(CLI::PositiveNumber);
  app.add_option("--all_jobs_watchers", flags.all_jobs_watchers,
                 "Of these, how many watch every job; default a twentieth");
  app.add_option("--clients", flags.clients)->check(CLI::PositiveNumber);
  app.add_option("--calls_per_second", flags.calls_per_second,
                 "Of all clients together; 0: each calls again as soon as it is answered");
  app.add_option("--seconds", flags.seconds, "Measured; half of that before without load")
      ->check(CLI::Range(2, 100'000));
  app.add_option("--kills", flags.kills, "SIGKILLs of penstockd, after what is measured");
  app.add_option("--daemon_cpus", flags.daemon.daemon_cpus, "As taskset takes them; default all");
  app.add_option("--worker_cpus", flags.daemon.worker_cpus, "Likewise, for the job that runs");
  app.add_option("--max_read_ms", flags.max_read_ms, "Judge p99 of GetJob and ListJobs");
  app.add_option("--max_submit_ms", flags.max_submit_ms, "Judge p99 of CreateJob");
  app.add_option("--max_growth", flags.max_growth,
                 "Of the daemon's memory, in the second half of the load");
  app.add_option("--max_step_growth", flags.max_step_growth,
                 "Judge the job's median step under load: 0.01 is 1% more than without");
  CLI11_PARSE(app, argc, argv);
  flags.daemon.allowed_root = flags.job_file.substr(0, flags.job_file.rfind('/'));
  flags.daemon.max_streams = flags.watchers + 10;
  penstock::load::RaiseFileLimit();
  const absl::Status done = penstock::load::LoadTest(flags).Run();
  if (!done.ok()) std::printf("%s\n", std::string(done.message()).c_str());
  return done.ok() ? 0 : 1;
}
