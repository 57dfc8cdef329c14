// A worker for tests of the daemon: speaks the whole worker protocol, trains nothing. What it does
// is in the labels of the job's spec:
//   steps, step_ms          how many steps, how long each
//   checkpoint_every        makes directories checkpoints/{step}; also when the daemon asks
//   weights                 bytes of the file in each of them
//   log_lines               lines printed before the first step
//   crash, crash_at         signal to die by before that step; crash_attempts: only up to attempt n
//   exit_at                 exits with code 0 and no result before that step
//   hang_at                 reports nothing any more from that step on
//   stuck_at                reports, but gets on no more from that step on
//   no_trace                answers a request for a timeline without writing one
//   deaf                    does not stop when it is told to
//   save_at_stop            saves a checkpoint when it stops
//   fail                    ends with outcome FAILED / DATA_INVALID
//   gpu_fault, faults       ends with DEVICE_FAILED, 1: of the hardware, 2: of the program; only up
//                           to attempt n
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "engine/base/status.h"
#include "google/protobuf/util/time_util.h"
#include "grpcpp/create_channel.h"
#include "penstock/internal/worker.grpc.pb.h"
#include "server/lock_file.h"
#include "server/status_proto.h"

namespace penstock::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

class FakeWorker {
 public:
  explicit FakeWorker(internal::Assignment assignment) : assignment_(std::move(assignment)) {
    const ProcessIdentity self = SelfIdentity();
    identity_.set_job(assignment_.job());
    identity_.set_attempt(assignment_.attempt());
    identity_.set_pid(self.pid);
    identity_.set_start_ticks(self.start_ticks);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    stub_ = internal::WorkerService::NewStub(grpc::CreateCustomChannel(
        "unix:" + assignment_.daemon_socket(), grpc::InsecureChannelCredentials(), arguments));
  }

  int Run() {
    if (!TakeLock()) return 3;
    AttachOrExit(milliseconds(30'000));
    NoteThatWeWork();
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    std::ofstream(assignment_.job_directory() + "/visible_devices")
        << (visible == nullptr ? "unset" : visible);
    for (int64_t i = 0; i < Label("log_lines", 1); ++i) {
      std::printf("line %ld of attempt %d\n", static_cast<long>(i), assignment_.attempt());
    }
    std::fflush(stdout);
    Add([](internal::WorkerEvent& event) { event.mutable_training_started(); });
    const int64_t steps = Label("steps", 3);
    for (int64_t step = 1; step <= steps && !cancelled_; ++step) Step(step, steps);
    return Finish();
  }

 private:
  int64_t Label(const std::string& key, int64_t otherwise) const {
    const auto& labels = assignment_.train().labels();
    const auto found = labels.find(key);
    return found == labels.end() ? otherwise : std::strtoll(found->second.c_str(), nullptr, 10);
  }

  bool TakeLock() {
    const std::string path = assignment_.job_directory() + "/worker.lock";
    const std::string contents = FormatWorkerLock(
        {.process = {.pid = identity_.pid(), .start_ticks = identity_.start_ticks()},
         .attempt = assignment_.attempt()});
    for (const auto end = Clock::now() + milliseconds(10'000); Clock::now() < end;) {
      auto lock = LockFile::Acquire(path, contents);
      if (lock.ok()) {
        lock_.emplace(*std::move(lock));
        return true;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  // A second lock, of another kind, that only working workers take: if it is taken, two work.
  void NoteThatWeWork() {
    const std::string path = assignment_.job_directory() + "/working";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return;
    std::ofstream(assignment_.job_directory() + "/OVERLAP") << assignment_.attempt();
    std::abort();
  }

  bool Attach(milliseconds limit) {
    internal::AttachRequest request;
    *request.mutable_identity() = identity_;
    internal::AttachResponse response;
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + limit);
    const grpc::Status status = stub_->Attach(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) std::_Exit(0);
    if (!status.ok()) return false;
    Drop(response.acknowledged());
    attached_ = true;
    return true;
  }

  void AttachOrExit(milliseconds limit) {
    const auto end = Clock::now() + limit;
    while (!Attach(milliseconds(500))) {
      if (Clock::now() > end) std::_Exit(5);
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  template <typename Fill>
  void Add(Fill fill) {
    internal::WorkerEvent event;
    event.set_number(++last_number_);
    fill(event);
    pending_.push_back(std::move(event));
  }

  void Drop(uint64_t acknowledged) {
    while (!pending_.empty() && pending_.front().number() <= acknowledged) pending_.pop_front();
  }

  bool Report() {
    if (!attached_ && !Attach(milliseconds(30))) return false;
    internal::ReportRequest request;
    *request.mutable_identity() = identity_;
    for (const auto& event : pending_) *request.add_events() = event;
    *request.mutable_progress() = progress_;
    internal::ReportResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    if (!stub_->Report(&context, request, &response).ok()) {
      attached_ = false;
      return false;
    }
    if (response.command() == internal::WORKER_COMMAND_EXIT) std::_Exit(0);
    if (response.command() == internal::WORKER_COMMAND_STOP) cancelled_ = Label("deaf", 0) == 0;
    Drop(response.acknowledged());
    const uint64_t asked = response.save_request();
    if (std::exchange(save_request_, asked) != asked && asked != 0) {
      SaveCheckpoint(progress_.step());
    }
    const uint64_t trace = response.trace_request();
    if (std::exchange(trace_request_, trace) != trace && trace != 0) WriteTrace(trace);
    return true;
  }

  void Misbehave(int64_t step) {
    if (step == Label("crash_at", -1) && assignment_.attempt() <= Label("crash_attempts", 1000)) {
      std::printf("about to die at step %ld\n", static_cast<long>(step));
      std::fflush(stdout);
      const int number = static_cast<int>(Label("crash", SIGKILL));
      signal(number, SIG_DFL);  // A sanitizer would turn the signal into an exit code.
      raise(number);
    }
    if (step == Label("exit_at", -1)) std::_Exit(0);
    while (step == Label("stuck_at", -1)) {
      Report();
      std::this_thread::sleep_for(milliseconds(50));
    }
    if (step == Label("hang_at", -1)) {
      while (true) pause();
    }
  }

  void SaveCheckpoint(int64_t step) {
    const std::string directory =
        assignment_.job_directory() + "/checkpoints/" + std::to_string(step);
    mkdir(directory.c_str(), 0700);
    std::ofstream(directory + "/weights")
        << std::string(static_cast<size_t>(Label("weights", 10)), 'w');
    Add([&](internal::WorkerEvent& event) {
      auto& checkpoint = *event.mutable_checkpoint_saved();
      checkpoint.set_step(step);
      checkpoint.set_directory(directory);
    });
  }

  // Long enough for several pieces.
  void WriteTrace(uint64_t request) {
    if (Label("no_trace", 0) == 0) {
      std::ofstream(assignment_.job_directory() + "/attempts/" +
                    std::to_string(assignment_.attempt()) + "/trace.json")
          << "{\"step\":" << progress_.step() << ",\"filler\":\"" << std::string(3 << 20, 'x')
          << "\"}";
    }
    Add([&](internal::WorkerEvent& event) { event.set_trace_written(request); });
  }

  void Step(int64_t step, int64_t steps) {
    Misbehave(step);
    std::this_thread::sleep_for(milliseconds(Label("step_ms", 1)));
    progress_.set_phase(v1::JOB_PHASE_TRAIN);
    progress_.set_step(step);
    progress_.set_total_steps(steps);
    Add([&](internal::WorkerEvent& event) {
      v1::StepMetrics& metrics = *event.mutable_metrics();
      metrics.set_step(step);
      metrics.set_loss(1.0 / static_cast<double>(step));
      metrics.set_outcome(v1::STEP_OUTCOME_APPLIED);
      metrics.set_real_tokens(100);
      metrics.set_step_seconds(0.5);
      (*metrics.mutable_lane_busy_seconds())["compute"] = 0.25;
      *metrics.mutable_time() = google::protobuf::util::TimeUtil::GetCurrentTime();
    });
    const int64_t every = Label("checkpoint_every", 0);
    if (every > 0 && step % every == 0) SaveCheckpoint(step);
    Report();
  }

  int Finish() {
    if (cancelled_ && Label("save_at_stop", 0) != 0) SaveCheckpoint(progress_.step());
    internal::AttemptOutcome outcome;
    outcome.set_result(cancelled_ ? internal::ATTEMPT_RESULT_STOPPED
                                  : internal::ATTEMPT_RESULT_SUCCEEDED);
    if (assignment_.has_export_()) outcome.add_artifacts(assignment_.export_().spec().directory());
    const int64_t gpu_fault = Label("gpu_fault", 0);
    if (gpu_fault != 0 && assignment_.attempt() <= Label("faults", 1000)) {
      outcome.set_result(internal::ATTEMPT_RESULT_FAILED);
      *outcome.mutable_error() = ToStatusProto(
          Error(absl::StatusCode::kUnavailable, reason::kDeviceFailed,
                gpu_fault == 1 ? "step 2: cudaErrorECCUncorrectable" : "cudaErrorIllegalAddress",
                {{"fault", gpu_fault == 1 ? "hardware" : "program"}}));
    }
    if (Label("fail", 0) != 0) {
      outcome.set_result(internal::ATTEMPT_RESULT_FAILED);
      *outcome.mutable_error() = ToStatusProto(
          Error(absl::StatusCode::kInvalidArgument, reason::kDataInvalid, "row 3 is no JSON"));
    }
    const std::string path = assignment_.job_directory() + "/attempts/" +
                             std::to_string(assignment_.attempt()) + "/outcome.pb";
    std::ofstream(path + ".tmp", std::ios::binary) << outcome.SerializeAsString();
    std::rename((path + ".tmp").c_str(), path.c_str());
    Add([&](internal::WorkerEvent& event) { *event.mutable_outcome() = outcome; });
    for (const auto end = Clock::now() + milliseconds(20'000);
         !pending_.empty() && Clock::now() < end;) {
      if (!Report()) std::this_thread::sleep_for(milliseconds(20));
    }
    return 0;
  }

  const internal::Assignment assignment_;
  internal::WorkerIdentity identity_;
  std::unique_ptr<internal::WorkerService::Stub> stub_;
  std::optional<LockFile> lock_;
  std::deque<internal::WorkerEvent> pending_;
  v1::JobProgress progress_;
  uint64_t last_number_ = 0;
  uint64_t save_request_ = 0;
  uint64_t trace_request_ = 0;
  bool attached_ = false;
  bool cancelled_ = false;
};

}  // namespace
}  // namespace penstock::server

int main(int argc, char** argv) {
  penstock::internal::Assignment assignment;
  if (argc != 3 || !assignment.ParseFromString(penstock::server::ReadFile(argv[2]))) return 2;
  if (assignment.has_calibration()) {
    // Its identity is its profile; storage that is not there cannot be measured.
    const penstock::internal::CalibrationWork& work = assignment.calibration();
    if (access(work.storage_directory().c_str(), W_OK) != 0) return 4;
    std::ofstream(work.profile_path()) << work.identity();
    return 0;
  }
  return penstock::server::FakeWorker(assignment).Run();
}
