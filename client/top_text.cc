#include "client/top_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/job_text.h"
#include "client/output.h"
#include "engine/base/units.h"
#include "proto/message_print.h"

namespace penstock::client {
namespace {

constexpr int kBarWidth = 10;

std::string Bar(double fraction) {
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kBarWidth);
  return absl::StrCat("[", std::string(static_cast<size_t>(filled), '#'),
                      std::string(static_cast<size_t>(kBarWidth - filled), '.'), "]");
}

std::string HeadText(const std::string& endpoint, const v1::GetServerInfoResponse& info) {
  std::string text =
      absl::StrCat("penstockd ", Printable(info.version()), " at ", Printable(endpoint), ", ",
                   ShortEnumName(*v1::ServerStatus_descriptor(), info.status()), "\n",
                   info.running_jobs(), " running, ", info.queued_jobs(), " queued; host memory ",
                   FormatBytes(info.host_memory_reserved_bytes()), " reserved of ",
                   FormatBytes(info.host_memory_bytes()), "\n");
  if (!info.drain_message().empty()) {
    absl::StrAppend(&text, "draining: ", Printable(info.drain_message()), "\n");
  }
  return text;
}

std::string DevicesText(const v1::ListDevicesResponse& devices) {
  Table table({"DEVICE", "HEALTH", "BUSY", "MEMORY", "TEMP", "POWER", "JOB"});
  for (const v1::Device& device : devices.devices()) {
    const v1::DeviceReading& now = device.reading();
    const std::string memory = FormatBytes(device.memory_bytes());
    table.Add(
        {device.id(), ShortEnumName(*v1::DeviceHealth_descriptor(), device.health()),
         now.has_utilization() ? absl::StrFormat("%.0f%%", now.utilization() * 100) : "-",
         now.has_memory_used_bytes()
             ? absl::StrCat(FormatBytes(now.memory_used_bytes()), " of ", memory)
             : memory,
         now.has_temperature_celsius() ? absl::StrFormat("%.0f C", now.temperature_celsius()) : "-",
         now.has_power_watts() ? absl::StrFormat("%.0f W", now.power_watts()) : "-",
         device.job().empty() ? "-" : device.job()});
  }
  return table.ToText();
}

// Running before waiting, the queue in its order, the rest as listed.
int64_t Rank(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_QUEUED:
      return 1 + job.queue_position();
    case v1::JOB_STATE_PAUSED:
      return int64_t{1} << 40;
    default:
      return 0;
  }
}

std::string ProgressCell(const v1::Job& job) {
  const v1::JobProgress& progress = job.progress();
  if (job.state() == v1::JOB_STATE_STARTING) return Bar(progress.phase_fraction());
  if (progress.total_steps() == 0) return "-";
  return absl::StrCat(
      Bar(static_cast<double>(progress.step()) / static_cast<double>(progress.total_steps())), " ",
      progress.step(), "/", progress.total_steps());
}

// The phase of one that runs, what one waits for that does not.
std::string NoteCell(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_QUEUED || job.state() == v1::JOB_STATE_PAUSED) {
    return job.state_message();
  }
  const v1::JobPhase phase = job.progress().phase();
  return phase == v1::JOB_PHASE_UNSPECIFIED || phase == v1::JOB_PHASE_TRAIN
             ? ""
             : ShortEnumName(*v1::JobPhase_descriptor(), phase);
}

std::string JobsText(const v1::ListJobsResponse& response) {
  std::vector<const v1::Job*> jobs;
  for (const v1::Job& job : response.jobs()) jobs.push_back(&job);
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const v1::Job* a, const v1::Job* b) { return Rank(*a) < Rank(*b); });
  Table table({"JOB", "STATE", "PROGRESS", "LOSS", "TOK/S", "ETA", "HOST MEM", "NOTE"});
  for (const v1::Job* job : jobs) {
    const v1::JobProgress& progress = job->progress();
    table.Add(
        {std::string(absl::StripPrefix(job->name(), "jobs/")), StateName(job->state()),
         ProgressCell(*job), progress.step() > 0 ? FormatLoss(progress.loss()) : "-",
         progress.tokens_per_second() > 0 ? FormatCount(progress.tokens_per_second()) : "-",
         progress.remaining_seconds() > 0 ? FormatDuration(progress.remaining_seconds()) : "-",
         FormatBytes(job->plan().host_peak_bytes()), NoteCell(*job)});
  }
  return jobs.empty() ? "no jobs\n" : table.ToText();
}

}  // namespace

std::string TopPage(const std::string& endpoint, const TopReading& reading) {
  return absl::StrCat(HeadText(endpoint, reading.info), "\n", DevicesText(reading.devices), "\n",
                      JobsText(reading.jobs));
}

}  // namespace penstock::client
