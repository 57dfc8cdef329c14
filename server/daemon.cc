#include "server/daemon.h"

#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>
#include <fstream>
#include <future>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "engine/provenance/signing_key.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "nlohmann/json.hpp"
#include "server/http/http_server.h"
#include "server/http/http_site.h"
#include "server/jobs/admin_manager.h"
#include "server/jobs/calibrator.h"
#include "server/jobs/queue_pulse.h"
#include "server/jobs/task_queue.h"
#include "server/listeners.h"
#include "server/lock_file.h"
#include "server/metric_files/metric_files.h"
#include "server/notify.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/checkpoint_service.h"
#include "server/rpc/door.h"
#include "server/rpc/guarded_services.h"
#include "server/rpc/job_service.h"
#include "server/rpc/rpc_meter.h"
#include "server/rpc/transfer_service.h"
#include "server/rpc/worker_service.h"
#include "server/tls_files.h"
#include "spdlog/spdlog.h"

namespace penstock::server {
namespace {

constexpr int kApiRevision = 3;
constexpr char kHealthName[] = "penstock.v1.JobService";
constexpr int64_t kReplySeconds = 7 * 24 * 3600;
constexpr int64_t kReplies = 20'000;
constexpr int64_t kEventsOfAJob = 20'000;
// After which device time counts a thousandth and is forgotten.
constexpr int64_t kHalfLivesKept = 10;
constexpr absl::Duration kCertificateWarning = absl::Hours(14 * 24);
constexpr size_t kQuotaBytes = size_t{512} << 20;
// What calls in flight get to finish when the daemon stops.
constexpr std::chrono::milliseconds kStopGrace{1000};
// A plan can take seconds, and deleting a checkpoint longer: so many before anybody's submit waits.
constexpr int kValidationThreads = 4;
// How long the lock of a dead daemon is waited for.
constexpr std::chrono::seconds kLockOfTheDead{10};

std::string NewInstanceId() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

// A state directory that several machines see is served on one of them.
std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  return name;
}

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Whether the process that wrote these lock contents still runs.
bool HolderLives(const std::string& contents) {
  ProcessIdentity holder;
  for (const absl::string_view word : absl::StrSplit(contents, ' ')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (field.first == "pid") (void)absl::SimpleAtoi(field.second, &holder.pid);
    if (field.first == "start_ticks") (void)absl::SimpleAtoi(field.second, &holder.start_ticks);
  }
  return IdentityOf(holder.pid) == holder;
}

absl::StatusOr<LockFile> TakeStateDirectory(const StateDirectory& directory,
                                            const std::string& instance_id) {
  const ProcessIdentity self = SelfIdentity();
  const std::string contents = absl::StrCat("pid=", self.pid, " start_ticks=", self.start_ticks,
                                            " instance=", instance_id, " boot_id=", BootId());
  const auto deadline = std::chrono::steady_clock::now() + kLockOfTheDead;
  while (true) {
    absl::StatusOr<LockFile> lock = LockFile::Acquire(directory.Lock(), contents);
    if (lock.ok() || ReasonOf(lock.status()) != reason::kLockHeld) return lock;
    ErrorMetadata metadata = MetadataOf(lock.status());
    // A daemon killed while it started a worker leaves the lock to that child until its exec.
    if (!HolderLives(metadata["holder"]) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    return Error(absl::StatusCode::kFailedPrecondition, reason::kLockHeld,
                 absl::StrCat("another penstockd has ", directory.path(), " (", metadata["holder"],
                              "); use that one, stop it, or choose another state_directory"),
                 metadata);
  }
}

}  // namespace

// In the order of need; destroyed from the bottom up.
struct Daemon::Parts {
  Parts(DaemonOptions given, StateDirectory state_directory)
      : options(std::move(given)), directory(std::move(state_directory)) {}

  DaemonOptions options;
  const StateDirectory directory;
  const std::string instance_id = NewInstanceId();
  std::optional<LockFile> lock;
  std::unique_ptr<JobStore> store;
  std::string signing_public_key;
  EventHub hub;
  std::optional<CheckpointReaders> readers;
  std::optional<JobTable> table;
  std::optional<UploadManager> uploads;
  std::optional<WorkerReports> reports;
  TaskQueue control{"control"};
  TaskQueue validation{"validation", kValidationThreads};
  TaskQueue streams{"streams"};
  TaskQueue inspection{"inspection"};
  TaskQueue transfers{"transfers"};
  TaskQueue calibration{"calibration"};
  // Of the queues whose tasks are short. Scheduler and store are the control queue's, which asks.
  // The device registry has a thread that may hang in a driver, and nothing hangs with it.
  QueuePulse pulse{{&streams}};
  std::optional<Calibrator> calibrator;
  std::optional<WorkerManager> workers;
  std::optional<UploadFiles> upload_files;
  std::optional<FileSources> sources;
  std::optional<TransferStreams> transfer_streams;
  std::optional<TraceRequests> traces;
  std::optional<CheckpointManager> checkpoints;
  std::optional<JobAdmission> admission;
  std::optional<JobManager> manager;
  std::optional<SweepManager> sweeps;
  std::optional<TokenBook> tokens;
  std::optional<AdminManager> admin;
  std::optional<JobMoves> moves;
  std::optional<WatchStreams> watches;
  RpcMeter rpc_meter;
  std::optional<ServiceContext> context;
  std::optional<JobServiceImpl> job_service;
  std::optional<CheckpointServiceImpl> checkpoint_service;
  std::optional<AdminServiceImpl> admin_service;
  std::optional<TransferServiceImpl> transfer_service;
  std::optional<WorkerServiceImpl> worker_service;
  MetricFiles metric_files{directory};  // belongs to `streams`
  std::set<std::string> jobs_to_copy;   // without a worker, but maybe with points to copy
  std::optional<MetricsCollector> metrics;
  std::optional<HttpSite> site;
  std::unique_ptr<HttpServer> http;
  std::optional<Door> door;
  std::optional<GuardedJobService> guarded_jobs;
  std::optional<GuardedCheckpointService> guarded_checkpoints;
  std::optional<GuardedAdminService> guarded_admin;
  std::optional<GuardedTransferService> guarded_transfers;
  grpc::ResourceQuota quota{"penstockd"};
  Listener worker_listener;
  Listener listener;
  bool stopped = false;

  absl::Status OpenStore();
  absl::Status BuildJobs();
  void BuildServices();
  void BuildDoor(DoorOptions::Strangers strangers);
  absl::Status Recover();
  absl::Status Serve();
  absl::Status ServeHttp();
  absl::Status WriteEndpoint() const;
  void NoteTokenUse(const std::string& name, absl::Time time);
  void CheckCertificate() const;
  void WatchCertificate();
  void Tick();
  void FollowMetricFiles();
  // Replies, events and device time, so that the database has a bound.
  void ForgetTheOld();
  void DeleteExpiredUploads();
  void CalibrateNewDevice();

  // Runs on the control thread and waits for it.
  template <typename Result>
  Result OnControl(std::function<Result()> work) {
    std::promise<Result> promise;
    control.Post([&] { promise.set_value(work()); });
    return promise.get_future().get();
  }
};

absl::Status Daemon::Parts::OpenStore() {
  PENSTOCK_ASSIGN_OR_RETURN(lock, TakeStateDirectory(directory, instance_id));
  PENSTOCK_ASSIGN_OR_RETURN(store, JobStore::Open(directory.Database()));
  PENSTOCK_ASSIGN_OR_RETURN(const SigningKey key, SigningKey::LoadOrCreate(directory.SigningKey()));
  signing_public_key = key.public_key();
  return absl::OkStatus();
}

void Daemon::Parts::ForgetTheOld() {
  const int64_t oldest = static_cast<int64_t>(time(nullptr)) - kReplySeconds;
  if (absl::Status pruned = store->PruneRequests(oldest, kReplies); !pruned.ok()) {
    spdlog::error("cannot forget old replies: {}", std::string(pruned.message()));
  }
  if (absl::Status pruned = store->PruneEvents(kEventsOfAJob); !pruned.ok()) {
    spdlog::error("cannot forget old events: {}", std::string(pruned.message()));
  }
  const int64_t half_life = options.fair_share_half_life_seconds;
  const int64_t counted = half_life > 0 ? half_life * kHalfLivesKept : kReplySeconds;
  if (absl::Status pruned =
          store->PruneDeviceUses(1000 * (static_cast<int64_t>(time(nullptr)) - counted));
      !pruned.ok()) {
    spdlog::error("cannot forget old device time: {}", std::string(pruned.message()));
  }
  control.PostAfter(std::chrono::hours(1), [this] { ForgetTheOld(); });
}

void Daemon::Parts::DeleteExpiredUploads() {
  const std::vector<std::string> expired = uploads->DeleteExpired();
  if (!expired.empty()) {
    transfers.Post([this, expired] {
      for (const std::string& name : expired) upload_files->Forget(name);
    });
    validation.Post([this] { directory.EmptyTrash(); });
  }
  const std::chrono::milliseconds pause = options.upload_lifetime;
  control.PostAfter(std::min<std::chrono::milliseconds>(pause / 4, std::chrono::hours(1)),
                    [this] { DeleteExpiredUploads(); });
}

absl::Status Daemon::Parts::BuildJobs() {
  readers.emplace(directory);
  table.emplace(*store, hub, options.fair_share_half_life_seconds);
  table->SetEndListener([this](const v1::Job& job) {
    readers->End(job);
    metrics->NoteEnd(job);
    jobs_to_copy.insert(job.name());
  });
  reports.emplace(*table, directory, *options.devices);
  WorkerOptions worker_options{.binary = options.worker_binary,
                               .host_memory_bytes = options.host_memory_bytes,
                               .silence = options.worker_silence,
                               .start_retry = options.worker_start_retry,
                               .aging_seconds = options.aging_seconds,
                               .stuck_after = options.stuck_after,
                               .quotas = options.quotas,
                               .confine = options.confine_workers,
                               .profile_json = [this](const v1::Device& device) {
                                 return options.profiles->Find(device).json;
                               }};
  calibrator.emplace(CalibratorOptions{.worker_binary = options.worker_binary,
                                       .storage_directory = directory.path()},
                     *options.profiles);
  PENSTOCK_ASSIGN_OR_RETURN(auto watcher, ProcessWatcher::Create());
  workers.emplace(std::move(worker_options), directory, *table, *reports, *options.devices, control,
                  std::move(watcher));
  uploads.emplace(
      UploadOptions{.max_bytes = options.max_upload_bytes, .lifetime = options.upload_lifetime},
      directory, *table);
  upload_files.emplace(directory);
  sources.emplace(directory, *table, *uploads, control);
  transfer_streams.emplace(options.max_streams);
  traces.emplace(directory, *table);
  checkpoints.emplace(directory, *table, *sources);
  admission.emplace(AdmissionOptions{.max_queued_jobs = options.max_queued_jobs,
                                     .host_memory_limit_source = options.host_memory_limit_source,
                                     .quotas = options.quotas,
                                     .uploads_directory = directory.Uploads()},
                    *table, *workers);
  manager.emplace(directory, *table, *readers, *uploads, *admission, *workers, *options.devices);
  sweeps.emplace(*table, *admission, *manager);
  tokens.emplace([this](const std::string& name, absl::Time time) { NoteTokenUse(name, time); });
  admin.emplace(store->access(), *tokens, *workers);
  moves.emplace(directory, *table, *readers, *admission, *checkpoints, *workers);
  watches.emplace(
      WatchOptions{.max_streams = options.max_streams, .heartbeat = options.stream_heartbeat},
      control, streams, *manager, hub, directory);
  return absl::OkStatus();
}

void Daemon::Parts::BuildServices() {
  v1::GetServerInfoResponse info;
  info.set_version(Version());
  info.set_api_revision(kApiRevision);
  for (const std::string& capability : options.capabilities) info.add_capabilities(capability);
  info.set_instance_id(instance_id);
  for (const std::string& root : options.allowed_roots) info.add_allowed_roots(root);
  info.set_state_directory(directory.path());
  info.set_signing_public_key(signing_public_key);
  context.emplace(ServiceContext{.control = control,
                                 .validation = validation,
                                 .streams = streams,
                                 .inspection = inspection,
                                 .transfers = transfers,
                                 .manager = *manager,
                                 .sweeps = *sweeps,
                                 .admin = *admin,
                                 .moves = *moves,
                                 .checkpoints = *checkpoints,
                                 .reports = *reports,
                                 .watches = *watches,
                                 .hub = hub,
                                 .rpc_meter = rpc_meter,
                                 .uploads = *uploads,
                                 .upload_files = *upload_files,
                                 .sources = *sources,
                                 .transfer_streams = *transfer_streams,
                                 .traces = *traces,
                                 .directory = directory,
                                 .workers = *workers,
                                 .devices = *options.devices,
                                 .calibrator = *calibrator,
                                 .calibration = calibration,
                                 .planner = options.planner,
                                 .inspector = options.inspector,
                                 .output_checker = options.output_checker,
                                 .allowed_roots = options.allowed_roots,
                                 .server_info = std::move(info)});
  metrics.emplace(*context, *table);
  site.emplace(*context, *metrics,
               [this](std::string_view authorization) { return door->AdmitHttp(authorization); });
  job_service.emplace(*context);
  checkpoint_service.emplace(*context);
  admin_service.emplace(*context);
  transfer_service.emplace(*context);
  worker_service.emplace(*context);
}

void Daemon::Parts::BuildDoor(DoorOptions::Strangers strangers) {
  door.emplace(
      DoorOptions{.strangers = strangers,
                  .subjects = {options.tls.subjects().begin(), options.tls.subjects().end()},
                  .calls_per_second = options.calls_per_second},
      *tokens, store->owners());
  guarded_jobs.emplace(*door, *job_service);
  guarded_checkpoints.emplace(*door, *checkpoint_service);
  guarded_admin.emplace(*door, *admin_service);
  guarded_transfers.emplace(*door, *transfer_service);
}

// The call's own thread must not wait for the disk.
void Daemon::Parts::NoteTokenUse(const std::string& name, absl::Time time) {
  control.Post([this, name, time] {
    const absl::Status noted = store->access().SetLastUse(name, absl::ToUnixSeconds(time));
    if (!noted.ok())
      spdlog::warn("{}: cannot note its use: {}", name, std::string(noted.message()));
  });
}

void Daemon::Parts::CheckCertificate() const {
  if (!HasTls(options.tls)) return;
  const absl::Time now = absl::Now();
  if (const absl::Status checked = CheckTls(options.tls, now); !checked.ok()) {
    spdlog::error("{}", std::string(checked.message()));
  } else if (const absl::Duration left = CertificateExpiry(options.tls) - now;
             left < kCertificateWarning) {
    spdlog::warn("{} expires in {} hours", options.tls.certificate(), absl::ToInt64Hours(left));
  }
}

void Daemon::Parts::WatchCertificate() {
  CheckCertificate();
  validation.PostAfter(std::chrono::hours(1), [this] { WatchCertificate(); });
}

absl::Status Daemon::Parts::Recover() {
  PENSTOCK_RETURN_IF_ERROR(table->Load());
  for (const auto& [row, job] : table->active()) jobs_to_copy.insert(job->name());
  PENSTOCK_RETURN_IF_ERROR(admin->Load());
  workers->Recover();
  // Directories of deleted jobs whose move to the trash a crash prevented.
  std::set<std::string> known;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names, store->JobNames());
  known.insert(names.begin(), names.end());
  readers->Recover(names, *table);
  PENSTOCK_RETURN_IF_ERROR(checkpoints->Recover(names));
  // They take room and nothing else: no reason not to start.
  if (absl::Status discarded = directory.DiscardUnknown(known); !discarded.ok()) {
    spdlog::warn("what is left of deleted jobs stays: {}", std::string(discarded.message()));
  }
  PENSTOCK_RETURN_IF_ERROR(uploads->Recover());
  validation.Post([this] { directory.EmptyTrash(); });
  return absl::OkStatus();
}

absl::Status Daemon::Parts::Serve() {
  std::shared_ptr<grpc::ServerCredentials> tcp_credentials;
  if (HasTls(options.tls)) {
    PENSTOCK_RETURN_IF_ERROR(CheckTls(options.tls, absl::Now()));
    tcp_credentials = TlsServerCredentials(options.tls);
  }
  const bool names_callers = options.require_token || !options.tls.client_authorities().empty();
  if (!options.listen.empty()) {
    PENSTOCK_RETURN_IF_ERROR(CheckAddress("listen", options.listen,
                                          tcp_credentials != nullptr && names_callers
                                              ? Protection::kTlsAndIdentity
                                              : Protection::kNone));
  }
  BuildDoor(names_callers ? DoorOptions::Strangers::kRefused : DoorOptions::Strangers::kAnonymous);
  if (options.socket.empty()) options.socket = directory.path() + "/penstock.sock";
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  quota.Resize(kQuotaBytes);
  // Workers first: one that lives has waited for us.
  PENSTOCK_ASSIGN_OR_RETURN(worker_listener, Listen({.socket = directory.WorkerSocket(),
                                                     .tcp_address = {},
                                                     .services = {&*worker_service},
                                                     .quota = &quota}));
  if (!options.http_listen.empty()) PENSTOCK_RETURN_IF_ERROR(ServeHttp());
  PENSTOCK_ASSIGN_OR_RETURN(listener, Listen({.socket = options.socket,
                                              .tcp_address = options.listen,
                                              .tcp_credentials = tcp_credentials,
                                              .services = {&*guarded_jobs, &*guarded_checkpoints,
                                                           &*guarded_admin, &*guarded_transfers},
                                              .door = &*door,
                                              .meter = &rpc_meter,
                                              .quota = &quota}));
  listener.server->GetHealthCheckService()->SetServingStatus(kHealthName, true);
  validation.Post([this] { WatchCertificate(); });
  return WriteEndpoint();
}

absl::Status Daemon::Parts::ServeHttp() {
  const bool encrypted = HasTls(options.tls);
  const bool loopback = CheckAddress("http_listen", options.http_listen, Protection::kNone).ok();
  PENSTOCK_RETURN_IF_ERROR(CheckAddress(
      "http_listen", options.http_listen,
      encrypted && !door->lets_in_strangers() ? Protection::kTlsAndIdentity : Protection::kNone));
  HttpOptions http_options{.address = options.http_listen,
                           .host_check = loopback ? HostCheck::kLoopback : HostCheck::kNone};
  if (encrypted) {
    http_options.tls = HttpTls{.certificate = options.tls.certificate(), .key = options.tls.key()};
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      http, HttpServer::Start(std::move(http_options),
                              [this](const HttpRequest& request, HttpRespond respond) {
                                site->Handle(request, std::move(respond));
                              }));
  OnControl<bool>([this] {
    context->server_info.set_http_address(http->url());
    return true;
  });
  return absl::OkStatus();
}

absl::Status Daemon::Parts::WriteEndpoint() const {
  const nlohmann::json endpoint = {
      {"socket", options.socket},   {"tcp_address", listener.tcp_address},
      {"host", HostName()},         {"http_address", http == nullptr ? "" : http->url()},
      {"tls", HasTls(options.tls)}, {"pid", getpid()},
      {"instance_id", instance_id}};
  const std::string text =
      endpoint.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return WriteFileDurably(directory.Endpoint(), text);
}

void Daemon::Parts::CalibrateNewDevice() {
  if (!options.calibrate_at_start) return;
  for (const v1::Device& device : options.devices->List()) {
    if (device.kind() != v1::DEVICE_KIND_CUDA || device.health() != v1::DEVICE_HEALTH_HEALTHY) {
      continue;
    }
    if (!options.profiles->Find(device).json.empty()) return;
    if (!workers->HoldBack().ok()) return;  // an adopted job runs
    spdlog::info("{} is measured, once; jobs start in a minute", device.id());
    calibration.Post([this, device] {
      const absl::StatusOr<v1::MachineProfile> profile = calibrator->Measure(device);
      if (!profile.ok()) spdlog::warn("{}", std::string(profile.status().message()));
      control.Post([this] { workers->Release(); });
    });
    return;
  }
}

void Daemon::Parts::FollowMetricFiles() {
  std::set<std::string> jobs = std::exchange(jobs_to_copy, {});
  for (const auto& [row, job] : table->active()) {
    if (job->worker) jobs.insert(job->name());
  }
  streams.Post([this, jobs = std::move(jobs)] { metric_files.Follow(jobs); });
}

void Daemon::Parts::Tick() {
  workers->Tick();
  FollowMetricFiles();
  // From here and from no timer thread: a control thread that hangs shall be noticed.
  if (pulse.AllMoved()) FeedWatchdog();
  std::chrono::milliseconds pause =
      std::min(options.worker_silence / 4, std::chrono::milliseconds(1000));
  if (const auto watchdog = WatchdogInterval()) pause = std::min(pause, *watchdog / 3);
  control.PostAfter(std::max(pause, std::chrono::milliseconds(10)), [this] { Tick(); });
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(DaemonOptions options) {
  PENSTOCK_ASSIGN_OR_RETURN(StateDirectory directory,
                            StateDirectory::Prepare(options.state_directory));
  // Owned by a Daemon from the first moment: Stop() ends the queues before what they work on.
  std::unique_ptr<Daemon> daemon(
      new Daemon(std::make_unique<Parts>(std::move(options), std::move(directory))));
  Parts* const raw = daemon->parts_.get();
  PENSTOCK_RETURN_IF_ERROR(raw->OpenStore());
  PENSTOCK_RETURN_IF_ERROR(raw->BuildJobs());
  raw->BuildServices();
  PENSTOCK_RETURN_IF_ERROR(raw->OnControl<absl::Status>([raw] { return raw->Recover(); }));
  PENSTOCK_RETURN_IF_ERROR(raw->Serve());
  raw->options.devices->OnLost([raw](const v1::Device& device) {
    raw->control.Post([raw, device] { raw->workers->OnDeviceLost(device); });
  });
  raw->control.Post([raw] {
    raw->CalibrateNewDevice();
    raw->workers->Dispatch();
    raw->Tick();
    raw->ForgetTheOld();
    raw->DeleteExpiredUploads();
  });
  return daemon;
}

Daemon::Daemon(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Daemon::~Daemon() { Stop(); }

void Daemon::CheckCertificate() { parts_->CheckCertificate(); }

void Daemon::BeginDrain(OnDrain running) {
  parts_->listener.server->GetHealthCheckService()->SetServingStatus(kHealthName, false);
  parts_->OnControl<bool>([this, running] {
    parts_->workers->Drain(running);
    return true;
  });
}

Daemon::JobCounts Daemon::CountJobs() {
  return parts_->OnControl<JobCounts>([this] {
    JobCounts counts;
    counts.running = parts_->table->CountWithWorker();
    counts.left = counts.running + parts_->table->CountInState(v1::JOB_STATE_QUEUED);
    return counts;
  });
}

void Daemon::Stop() {
  if (std::exchange(parts_->stopped, true)) return;
  parts_->options.devices->OnLost(nullptr);
  if (parts_->calibrator) parts_->calibrator->Stop();
  if (parts_->site) parts_->site->Stop();
  if (parts_->http != nullptr) parts_->http->Stop();
  const auto deadline = std::chrono::system_clock::now() + kStopGrace;
  if (parts_->listener.server != nullptr) {
    parts_->listener.server->GetHealthCheckService()->SetServingStatus(kHealthName, false);
    parts_->watches->Drain();
    unlink(parts_->directory.Endpoint().c_str());
    parts_->listener.server->Shutdown(deadline);
  }
  if (parts_->worker_listener.server != nullptr) {
    parts_->worker_listener.server->Shutdown(deadline);
  }
  // No call is left that waits for an answer from a queue.
  if (parts_->table) parts_->control.Post([this] { parts_->FollowMetricFiles(); });
  parts_->calibration.Stop();
  parts_->control.Stop();
  parts_->validation.Stop();
  parts_->streams.Stop();
  parts_->inspection.Stop();
  parts_->transfers.Stop();
}

const std::string& Daemon::socket() const { return parts_->options.socket; }
const std::string& Daemon::tcp_address() const { return parts_->listener.tcp_address; }
std::string Daemon::http_address() const {
  return parts_->http == nullptr ? "" : parts_->http->url();
}
bool Daemon::lets_in_strangers() const { return parts_->door->lets_in_strangers(); }
int64_t Daemon::open_streams() const { return parts_->watches->count(); }

}  // namespace penstock::server
