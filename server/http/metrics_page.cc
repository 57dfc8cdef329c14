#include "server/http/metrics_page.h"

#include <sys/resource.h>

#include <iterator>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "google/protobuf/util/time_util.h"
#include "proto/message_print.h"
#include "server/http/metrics_text.h"
#include "server/store/job_state.h"

namespace penstock::server {
namespace {

using google::protobuf::util::TimeUtil;
using Type = MetricsText::Type;
using Value = std::optional<double>;

double Seconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(TimeUtil::TimestampToMicroseconds(time)) * 1e-6;
}

// Nothing for a zero that means "not known".
Value Known(double value) { return value == 0 ? Value() : value; }

std::string ReasonName(v1::StateReason reason) {
  return absl::AsciiStrToUpper(ShortEnumName(*v1::StateReason_descriptor(), reason));
}

// ---- The daemon ----

void AddDaemon(const MetricsSnapshot& snapshot, MetricsText& text) {
  const v1::GetServerInfoResponse& info = snapshot.info;
  const auto one = [&](std::string_view name, std::string_view help, double value) {
    text.Begin(Type::kGauge, name, help);
    text.Sample(value);
  };
  text.Begin(Type::kGauge, "penstock_build_info", "Always 1; the version is a label.");
  text.Sample(1, {{"version", info.version()}});
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  text.Begin(Type::kCounter, "process_cpu_seconds_total",
             "CPU time of the daemon, its workers not counted.");
  text.Sample(static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
              1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
  one("penstock_accepting_jobs", "0 while the daemon is draining, else 1.",
      info.status() == v1::SERVER_STATUS_SERVING ? 1 : 0);
  one("penstock_watch_streams", "Open watch streams.", static_cast<double>(snapshot.watch_streams));
  one("penstock_host_memory_limit_bytes", "Host memory that jobs may reserve.",
      static_cast<double>(info.host_memory_bytes()));
  one("penstock_host_memory_reserved_bytes", "Host memory that jobs have reserved.",
      static_cast<double>(info.host_memory_reserved_bytes()));
  one("penstock_state_directory_free_bytes",
      "Room on the file system of the state directory, where checkpoints are.",
      static_cast<double>(snapshot.state_free_bytes));
}

// ---- Calls ----

// As gRPC writes it: "NOT_FOUND".
std::string_view CodeName(grpc::StatusCode code) {
  constexpr std::string_view kNames[] = {"OK",
                                         "CANCELLED",
                                         "UNKNOWN",
                                         "INVALID_ARGUMENT",
                                         "DEADLINE_EXCEEDED",
                                         "NOT_FOUND",
                                         "ALREADY_EXISTS",
                                         "PERMISSION_DENIED",
                                         "RESOURCE_EXHAUSTED",
                                         "FAILED_PRECONDITION",
                                         "ABORTED",
                                         "OUT_OF_RANGE",
                                         "UNIMPLEMENTED",
                                         "INTERNAL",
                                         "UNAVAILABLE",
                                         "DATA_LOSS",
                                         "UNAUTHENTICATED"};
  const auto place = static_cast<size_t>(code);
  return place < std::size(kNames) ? kNames[place] : "UNKNOWN";
}

void AddCalls(const MetricsSnapshot& snapshot, MetricsText& text) {
  text.Begin(Type::kCounter, "penstock_rpc_calls_total",
             "gRPC calls that have ended, streams too, by method and code.");
  for (const MethodCalls& calls : snapshot.rpcs) {
    for (const auto& [code, count] : calls.by_code) {
      text.Sample(static_cast<double>(count), {{"method", calls.method}, {"code", CodeName(code)}});
    }
  }
  text.Begin(Type::kHistogram, "penstock_rpc_seconds",
             "From the headers of a gRPC call to its status, streams not counted.");
  for (const MethodCalls& calls : snapshot.rpcs) {
    if (calls.timed == 0) continue;
    text.Sample({.bounds = kRpcSeconds, .counts = calls.buckets, .sum = calls.seconds},
                {"method", calls.method});
  }
}

// ---- The queue ----

void AddQueue(const MetricsSnapshot& snapshot, MetricsText& text) {
  text.Begin(Type::kGauge, "penstock_jobs", "Jobs that have not ended, by state.");
  for (int state = v1::JobState_MIN; state <= v1::JobState_MAX; ++state) {
    const auto known = static_cast<v1::JobState>(state);
    if (!v1::JobState_IsValid(state) || state == 0 || IsFinal(known)) continue;
    const auto found = snapshot.jobs_in_state.find(known);
    const int64_t count = found == snapshot.jobs_in_state.end() ? 0 : found->second;
    text.Sample(static_cast<double>(count), {{"state", StateName(known)}});
  }
  text.Begin(Type::kGauge, "penstock_queued_jobs", "Jobs in the queue, by what they wait for.");
  for (const auto& [reason, count] : snapshot.queued_for_reason) {
    text.Sample(static_cast<double>(count), {{"reason", ReasonName(reason)}});
  }
  double oldest = 0;
  for (const MeteredJob& metered : snapshot.jobs) {
    if (metered.job.state() != v1::JOB_STATE_QUEUED) continue;
    oldest = std::max(oldest,
                      absl::ToUnixMicros(snapshot.now) * 1e-6 - Seconds(metered.job.queue_time()));
  }
  text.Begin(Type::kGauge, "penstock_queue_oldest_wait_seconds",
             "How long the job has waited that has waited longest; 0 if none waits.");
  text.Sample(oldest);
  text.Begin(Type::kGauge, "penstock_jobs_omitted",
             "Jobs left out below, as there are more than 500.");
  text.Sample(static_cast<double>(snapshot.omitted_jobs));
}

// ---- Users ----

void AddUsers(const MetricsSnapshot& snapshot, MetricsText& text) {
  text.Begin(Type::kGauge, "penstock_user_device_seconds",
             "Device time of a user that counts for fair share: it fades with the half-life.");
  for (const v1::UserShare& user : snapshot.info.users()) {
    text.Sample(user.recent_gpu_seconds(), {{"user", user.user()}, {"kind", "cuda"}});
    text.Sample(user.recent_cpu_seconds(), {{"user", user.user()}, {"kind", "cpu"}});
  }
}

// ---- Devices ----

struct DeviceGauge {
  std::string_view name;
  std::string_view help;
  Value (*value)(const v1::Device& device);
};
constexpr DeviceGauge kDeviceGauges[] = {
    {"penstock_device_healthy", "1 if jobs can start on it.",
     [](const v1::Device& d) -> Value { return d.health() == v1::DEVICE_HEALTH_HEALTHY; }},
    {"penstock_device_quarantined", "1 after it failed under a job, until it is released.",
     [](const v1::Device& d) -> Value { return d.health() == v1::DEVICE_HEALTH_QUARANTINED; }},
    {"penstock_device_busy", "1 while a job has it.",
     [](const v1::Device& d) -> Value { return !d.job().empty(); }},
    {"penstock_device_memory_bytes", "All its memory.",
     [](const v1::Device& d) { return Known(static_cast<double>(d.memory_bytes())); }},
    {"penstock_device_memory_used_bytes", "Of a GPU, by all processes.",
     [](const v1::Device& d) {
       return d.reading().has_memory_used_bytes()
                  ? Value(static_cast<double>(d.reading().memory_used_bytes()))
                  : Value();
     }},
    {"penstock_device_utilization_ratio", "Share of the time in which a kernel ran.",
     [](const v1::Device& d) {
       return d.reading().has_utilization() ? Value(d.reading().utilization()) : Value();
     }},
    {"penstock_device_temperature_celsius", "Of a GPU.",
     [](const v1::Device& d) {
       return d.reading().has_temperature_celsius() ? Value(d.reading().temperature_celsius())
                                                    : Value();
     }},
    {"penstock_device_power_watts", "Of a GPU.",
     [](const v1::Device& d) {
       return d.reading().has_power_watts() ? Value(d.reading().power_watts()) : Value();
     }},
};

void AddDevices(const MetricsSnapshot& snapshot, MetricsText& text) {
  text.Begin(Type::kGauge, "penstock_device_info", "Always 1.");
  for (const v1::Device& device : snapshot.devices) {
    text.Sample(1, {{"device", device.id()},
                    {"description", device.description()},
                    {"kind", ShortEnumName(*v1::DeviceKind_descriptor(), device.kind())}});
  }
  for (const DeviceGauge& gauge : kDeviceGauges) {
    text.Begin(Type::kGauge, gauge.name, gauge.help);
    for (const v1::Device& device : snapshot.devices) {
      if (const Value value = gauge.value(device)) text.Sample(*value, {{"device", device.id()}});
    }
  }
}

// ---- Jobs ----

template <typename Get>
Value OfStep(const MeteredJob& metered, Get get) {
  return metered.meter.step ? Value(static_cast<double>(get(*metered.meter.step))) : Value();
}
template <typename Get>
Value OfEvaluation(const MeteredJob& metered, Get get) {
  return metered.meter.evaluation ? Value(get(metered.meter.evaluation->evaluation())) : Value();
}
template <typename Get>
Value OfCheckpoint(const MeteredJob& metered, Get get) {
  return metered.checkpoint ? Value(static_cast<double>(get(*metered.checkpoint))) : Value();
}
// Of one that has had a worker; before, there is nothing to count.
template <typename Get>
Value OfRun(const MeteredJob& metered, Get get) {
  return metered.job.attempt() > 0 ? Value(static_cast<double>(get(metered))) : Value();
}

struct JobFamily {
  Type type;
  std::string_view name;
  std::string_view help;
  Value (*value)(const MeteredJob& metered);
};
constexpr JobFamily kJobFamilies[] = {
    {Type::kGauge, "penstock_job_step", "Steps finished.",
     [](const MeteredJob& m) { return OfRun(m, [](auto& r) { return r.job.progress().step(); }); }},
    {Type::kGauge, "penstock_job_total_steps", "Steps in all, once known.",
     [](const MeteredJob& m) {
       return Known(static_cast<double>(m.job.progress().total_steps()));
     }},
    {Type::kGauge, "penstock_job_remaining_seconds", "Estimate, once there is one.",
     [](const MeteredJob& m) { return Known(m.job.progress().remaining_seconds()); }},
    {Type::kGauge, "penstock_job_attempts", "Workers started for it.",
     [](const MeteredJob& m) -> Value { return m.job.attempt(); }},
    {Type::kGauge, "penstock_job_preemptions", "Times it yielded to jobs of higher priority.",
     [](const MeteredJob& m) -> Value { return m.job.preemptions(); }},
    {Type::kGauge, "penstock_job_parameters", "Of its model.",
     [](const MeteredJob& m) { return Known(static_cast<double>(m.job.plan().parameters())); }},
    {Type::kGauge, "penstock_job_queue_timestamp_seconds", "When it was queued, last.",
     [](const MeteredJob& m) { return Known(Seconds(m.job.queue_time())); }},
    {Type::kGauge, "penstock_job_end_timestamp_seconds", "When it ended.",
     [](const MeteredJob& m) { return Known(Seconds(m.job.end_time())); }},
    {Type::kGauge, "penstock_job_loss", "Training loss of the last step.",
     [](const MeteredJob& m) { return OfStep(m, [](auto& s) { return s.loss(); }); }},
    {Type::kGauge, "penstock_job_loss_z_score",
     "Standard deviations by which that loss is above those before; above 6 is a spike.",
     [](const MeteredJob& m) { return OfStep(m, [](auto& s) { return s.loss_z_score(); }); }},
    {Type::kGauge, "penstock_job_validation_loss", "Of the last evaluation.",
     [](const MeteredJob& m) { return OfEvaluation(m, [](auto& e) { return e.loss(); }); }},
    {Type::kGauge, "penstock_job_gradient_norm", "Before clipping, of the last step.",
     [](const MeteredJob& m) { return OfStep(m, [](auto& s) { return s.grad_norm(); }); }},
    {Type::kGauge, "penstock_job_learning_rate", "Of the last step.",
     [](const MeteredJob& m) { return OfStep(m, [](auto& s) { return s.learning_rate(); }); }},
    {Type::kGauge, "penstock_job_tokens_per_second", "Of the last step, padding not counted.",
     [](const MeteredJob& m) { return OfStep(m, [](auto& s) { return s.tokens_per_second(); }); }},
    {Type::kGauge, "penstock_job_step_seconds", "What the last step took.",
     [](const MeteredJob& m) { return OfStep(m, [](auto& s) { return s.step_seconds(); }); }},
    {Type::kGauge, "penstock_job_predicted_step_seconds", "What the plan said of a full step.",
     [](const MeteredJob& m) { return Known(m.job.plan().predicted_step_seconds()); }},
    {Type::kGauge, "penstock_job_last_step_timestamp_seconds", "When the last step ended.",
     [](const MeteredJob& m) { return OfStep(m, [](auto& s) { return Seconds(s.time()); }); }},
    {Type::kGauge, "penstock_job_host_peak_bytes",
     "The most host memory that its worker has had, page cache not counted.",
     [](const MeteredJob& m) {
       return Known(m.meter.step ? static_cast<double>(m.meter.step->host_peak_bytes()) : 0);
     }},
    {Type::kGauge, "penstock_job_planned_host_peak_bytes", "What it has reserved.",
     [](const MeteredJob& m) {
       return Known(static_cast<double>(m.job.plan().host_peak_bytes()));
     }},
    {Type::kGauge, "penstock_job_planned_device_bytes", "Of its GPU's memory, by the plan.",
     [](const MeteredJob& m) { return Known(static_cast<double>(m.job.plan().device_bytes())); }},
    {Type::kGauge, "penstock_job_checkpoint_step", "Of its newest checkpoint.",
     [](const MeteredJob& m) { return OfCheckpoint(m, [](auto& c) { return c.step(); }); }},
    {Type::kGauge, "penstock_job_checkpoint_timestamp_seconds",
     "When that was saved; its age is time() minus this.",
     [](const MeteredJob& m) {
       return OfCheckpoint(m, [](auto& c) { return Seconds(c.create_time()); });
     }},
    {Type::kGauge, "penstock_job_checkpoint_write_seconds", "What writing it took.",
     [](const MeteredJob& m) {
       return OfCheckpoint(m, [](auto& c) { return c.write_seconds(); });
     }},
    {Type::kCounter, "penstock_job_step_seconds_total", "What all its steps took.",
     [](const MeteredJob& m) { return OfRun(m, [](auto& r) { return r.meter.step_seconds; }); }},
    {Type::kCounter, "penstock_job_tokens_total", "Tokens trained on, padding not counted.",
     [](const MeteredJob& m) { return OfRun(m, [](auto& r) { return r.meter.real_tokens; }); }},
    {Type::kCounter, "penstock_job_padding_tokens_total", "Computed and thrown away.",
     [](const MeteredJob& m) { return OfRun(m, [](auto& r) { return r.meter.padding_tokens; }); }},
    {Type::kCounter, "penstock_job_checkpoint_wait_seconds_total",
     "Of its steps' time, what they waited for checkpoints.",
     [](const MeteredJob& m) {
       return OfRun(m, [](auto& r) { return r.meter.checkpoint_wait_seconds; });
     }},
    {Type::kCounter, "penstock_job_device_energy_joules_total",
     "Of its GPU: the power at the end of each step, over that step.",
     [](const MeteredJob& m) { return Value(m.meter.energy_joules); }},
};

void AddJobs(const MetricsSnapshot& snapshot, MetricsText& text) {
  text.Begin(Type::kGauge, "penstock_job_info", "Always 1.");
  for (const MeteredJob& metered : snapshot.jobs) {
    const v1::Job& job = metered.job;
    text.Sample(1, {{"name", job.name()},
                    {"display_name", job.train().display_name()},
                    {"owner", job.owner()},
                    {"device", job.device()}});
  }
  text.Begin(Type::kGauge, "penstock_job_state", "1, for the state that it is in.");
  for (const MeteredJob& metered : snapshot.jobs) {
    text.Sample(1, {{"name", metered.job.name()}, {"state", StateName(metered.job.state())}});
  }
  for (const JobFamily& family : kJobFamilies) {
    text.Begin(family.type, family.name, family.help);
    for (const MeteredJob& metered : snapshot.jobs) {
      const Value value = family.value(metered);
      if (value) text.Sample(*value, {{"name", metered.job.name()}});
    }
  }
  text.Begin(Type::kCounter, "penstock_job_steps_total",
             "Steps trained, by outcome: applied, skipped_non_finite, skipped_no_labels.");
  for (const MeteredJob& metered : snapshot.jobs) {
    if (metered.job.attempt() == 0) continue;
    for (int outcome = 1; outcome <= v1::StepOutcome_MAX; ++outcome) {
      const auto found = metered.meter.steps.find(static_cast<v1::StepOutcome>(outcome));
      const int64_t count = found == metered.meter.steps.end() ? 0 : found->second;
      text.Sample(static_cast<double>(count),
                  {{"name", metered.job.name()},
                   {"outcome", ShortEnumName(*v1::StepOutcome_descriptor(), outcome)}});
    }
  }
  text.Begin(Type::kCounter, "penstock_job_lane_busy_seconds_total",
             "In which a lane of the step program was at work. What of the steps' time the lane "
             "compute was not, was exposed: copies, the optimizer, waiting.");
  for (const MeteredJob& metered : snapshot.jobs) {
    for (const auto& [lane, seconds] : metered.meter.lane_busy_seconds) {
      text.Sample(seconds, {{"name", metered.job.name()}, {"lane", lane}});
    }
  }
}

}  // namespace

std::string MetricsPage(const MetricsSnapshot& snapshot) {
  MetricsText text;
  AddDaemon(snapshot, text);
  AddCalls(snapshot, text);
  AddQueue(snapshot, text);
  AddUsers(snapshot, text);
  AddDevices(snapshot, text);
  AddJobs(snapshot, text);
  return text.Take();
}

}  // namespace penstock::server
