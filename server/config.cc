#include "server/config.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/version.h"
#include "proto/message_file.h"
#include "server/jobs/request_checks.h"

namespace penstock::server {
namespace {

constexpr char kFooter[] = R"(
Signals
  SIGTERM, SIGINT,  Readiness goes off and no job starts. With --on-terminate save (default)
  SIGUSR1, SIGUSR2  running jobs save their last finished step and wait in the queue for the next
                    penstockd on this state directory; with drain they run to their end. Both have
                    drain_seconds for it; SIGINT (Ctrl-C) then cuts the wait. What still runs then,
                    or with leave, goes on without the daemon, and the next one adopts it.
  SIGHUP            The TLS files are checked, and what is wrong with them is in the log. They are
                    read again when they change without it; other settings need a restart.
Exit codes
  0   stopped with no job left       75  stopped with jobs left: start me again
  2   usage                          78  cannot run with this configuration: do not retry
  70  other errors)";

// Flags as given; what was not given stays unset and leaves the file's value alone.
struct Flags {
  std::string config_file;
  std::optional<std::string> state_directory, socket, listen, http_listen, log_level;
  std::vector<std::string> allowed_roots;
  std::optional<int64_t> host_memory_bytes, inspection_memory_bytes, max_upload_bytes;
  std::optional<int32_t> max_queued_jobs, max_streams, worker_silence_seconds, drain_seconds,
      stream_heartbeat_seconds, priority_aging_seconds, fair_share_half_life_seconds;
  std::optional<std::string> tls_certificate, tls_key, tls_client_authorities;
  std::optional<int32_t> calls_per_second;
  bool require_token = false;
  bool no_calibration = false;
  std::string on_terminate = "save";
  std::string worker_binary;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.footer(kFooter);
  app.set_version_flag("--version", absl::StrCat("penstockd ", Version()));
  app.add_option("--config", flags.config_file, "Config file, YAML or JSON (DaemonConfig)");
  app.add_option("--state-directory", flags.state_directory,
                 "Everything the daemon keeps; default $XDG_STATE_HOME/penstock");
  app.add_option("--socket", flags.socket, "Unix socket; default penstock.sock in it");
  app.add_option("--listen", flags.listen,
                 "TCP as well, HOST:PORT. Other addresses than 127.0.0.1 need TLS and tokens");
  app.add_flag("--require-token", flags.require_token,
               "Calls need a token; those over the unix socket do not");
  app.add_option("--tls-certificate", flags.tls_certificate, "PEM file; TLS on --listen");
  app.add_option("--tls-key", flags.tls_key, "PEM file of its key");
  app.add_option("--tls-client-authorities", flags.tls_client_authorities,
                 "PEM file; clients with a certificate of these are who tls.subjects says");
  app.add_option("--calls-per-second", flags.calls_per_second,
                 "That one user may make, in bursts of ten times as many; 0: any; default 200");
  app.add_option(
      "--http-listen", flags.http_listen,
      "Metrics for Prometheus and the web page, 127.0.0.1:PORT. Every user of this machine "
      "can read them");
  app.add_option("--allowed-root", flags.allowed_roots,
                 "Directory that paths in requests may lie in; repeatable; default $HOME");
  app.add_option("--host-memory-bytes", flags.host_memory_bytes,
                 "Host memory jobs may reserve; default what the machine and its cgroups leave");
  app.add_option("--inspection-memory-bytes", flags.inspection_memory_bytes,
                 "Host memory that looking at data may take; default a sixteenth, 1 to 16 GiB");
  app.add_option("--max-queued-jobs", flags.max_queued_jobs, "Jobs that may wait; default 1000");
  app.add_option("--max-streams", flags.max_streams, "Watch streams at one time; default 1000");
  app.add_option("--max-upload-bytes", flags.max_upload_bytes,
                 "Bytes that uploads may take of the state directory; default 1 TiB");
  app.add_option("--worker-silence-seconds", flags.worker_silence_seconds,
                 "A worker silent for so long is killed; default 120");
  app.add_option("--drain-seconds", flags.drain_seconds,
                 "What running jobs get after SIGTERM; default 600");
  app.add_option("--priority-aging-seconds", flags.priority_aging_seconds,
                 "In which a waiting job rises by one priority, 0: never; default 86400");
  app.add_option("--fair-share-half-life-seconds", flags.fair_share_half_life_seconds,
                 "After which device time that a user has had counts half, 0: it does not count; "
                 "default 604800");
  app.add_option("--stream-heartbeat-seconds", flags.stream_heartbeat_seconds,
                 "Between heartbeats on an idle stream; default 15");
  app.add_flag("--no-calibration", flags.no_calibration,
               "Do not measure a GPU that has no profile before jobs start");
  app.add_option("--log-level", flags.log_level, "debug, info, warning or error; default info");
  app.add_option("--on-terminate", flags.on_terminate, "save, drain or leave; see Signals")
      ->check(CLI::IsMember({"save", "drain", "leave"}));
  app.add_option("--worker-binary", flags.worker_binary,
                 "The worker program; default penstock-worker beside this program");
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Invalid(const std::string& field, const std::string& found,
                     const std::string& expected) {
  return Error(absl::StatusCode::kInvalidArgument, reason::kConfigInvalid,
               absl::StrCat(field, " is '", found, "'; expected ", expected),
               {{"field", field}, {"found", found}, {"expected", expected}});
}

void Override(const Flags& flags, internal::DaemonConfig& config) {
  if (flags.state_directory) config.set_state_directory(*flags.state_directory);
  if (flags.socket) config.set_socket(*flags.socket);
  if (flags.listen) config.set_listen(*flags.listen);
  if (flags.http_listen) config.set_http_listen(*flags.http_listen);
  if (flags.require_token) config.set_require_token(true);
  if (flags.tls_certificate) config.mutable_tls()->set_certificate(*flags.tls_certificate);
  if (flags.tls_key) config.mutable_tls()->set_key(*flags.tls_key);
  if (flags.tls_client_authorities) {
    config.mutable_tls()->set_client_authorities(*flags.tls_client_authorities);
  }
  if (flags.calls_per_second) config.set_calls_per_second(*flags.calls_per_second);
  if (flags.log_level) config.set_log_level(*flags.log_level);
  if (!flags.allowed_roots.empty()) {
    config.clear_allowed_roots();
    for (const std::string& root : flags.allowed_roots) config.add_allowed_roots(root);
  }
  if (flags.host_memory_bytes) config.set_host_memory_bytes(*flags.host_memory_bytes);
  if (flags.inspection_memory_bytes) {
    config.set_inspection_memory_bytes(*flags.inspection_memory_bytes);
  }
  if (flags.max_upload_bytes) config.set_max_upload_bytes(*flags.max_upload_bytes);
  if (flags.max_queued_jobs) config.set_max_queued_jobs(*flags.max_queued_jobs);
  if (flags.max_streams) config.set_max_streams(*flags.max_streams);
  if (flags.worker_silence_seconds) {
    config.set_worker_silence_seconds(*flags.worker_silence_seconds);
  }
  if (flags.drain_seconds) config.set_drain_seconds(*flags.drain_seconds);
  if (flags.priority_aging_seconds) {
    config.set_priority_aging_seconds(*flags.priority_aging_seconds);
  }
  if (flags.fair_share_half_life_seconds) {
    config.set_fair_share_half_life_seconds(*flags.fair_share_half_life_seconds);
  }
  if (flags.no_calibration) config.set_calibrate_at_start(false);
  if (flags.stream_heartbeat_seconds) {
    config.set_stream_heartbeat_seconds(*flags.stream_heartbeat_seconds);
  }
}

absl::Status FillDefaults(internal::DaemonConfig& config) {
  const std::string home = Environment("HOME");
  if (config.state_directory().empty()) {
    const std::string base = Environment("XDG_STATE_HOME");
    if (base.empty() && home.empty()) {
      return Invalid("state_directory", "", "a path, as neither XDG_STATE_HOME nor HOME is set");
    }
    config.set_state_directory((base.empty() ? home + "/.local/state" : base) + "/penstock");
  }
  if (config.allowed_roots().empty() && !home.empty()) config.add_allowed_roots(home);
  if (!config.has_max_queued_jobs()) config.set_max_queued_jobs(1000);
  if (!config.has_max_streams()) config.set_max_streams(1000);
  if (!config.has_worker_silence_seconds()) config.set_worker_silence_seconds(120);
  if (!config.has_drain_seconds()) config.set_drain_seconds(600);
  if (!config.has_priority_aging_seconds()) config.set_priority_aging_seconds(86'400);
  if (!config.has_fair_share_half_life_seconds()) config.set_fair_share_half_life_seconds(604'800);
  if (!config.has_stream_heartbeat_seconds()) config.set_stream_heartbeat_seconds(15);
  if (!config.has_calls_per_second()) config.set_calls_per_second(200);
  if (!config.has_calibrate_at_start()) config.set_calibrate_at_start(true);
  if (!config.has_confine_workers()) config.set_confine_workers(true);
  if (!config.has_max_upload_bytes()) config.set_max_upload_bytes(int64_t{1} << 40);
  if (config.log_level().empty()) config.set_log_level("info");
  return absl::OkStatus();
}

absl::Status CheckRanges(const internal::DaemonConfig& config) {
  const auto in_range = [](const char* field, int64_t value, int64_t low,
                           int64_t high) -> absl::Status {
    if (value >= low && value <= high) return absl::OkStatus();
    return Invalid(field, absl::StrCat(value), absl::StrCat(low, " to ", high));
  };
  PENSTOCK_RETURN_IF_ERROR(in_range("host_memory_bytes", config.host_memory_bytes(), 0, INT64_MAX));
  PENSTOCK_RETURN_IF_ERROR(
      in_range("inspection_memory_bytes", config.inspection_memory_bytes(), 0, INT64_MAX));
  PENSTOCK_RETURN_IF_ERROR(in_range("max_upload_bytes", config.max_upload_bytes(), 0, INT64_MAX));
  PENSTOCK_RETURN_IF_ERROR(in_range("max_queued_jobs", config.max_queued_jobs(), 1, 100'000));
  PENSTOCK_RETURN_IF_ERROR(in_range("max_streams", config.max_streams(), 1, 100'000));
  PENSTOCK_RETURN_IF_ERROR(
      in_range("worker_silence_seconds", config.worker_silence_seconds(), 1, 86'400));
  PENSTOCK_RETURN_IF_ERROR(in_range("drain_seconds", config.drain_seconds(), 0, 604'800));
  PENSTOCK_RETURN_IF_ERROR(
      in_range("priority_aging_seconds", config.priority_aging_seconds(), 0, 31'536'000));
  PENSTOCK_RETURN_IF_ERROR(in_range("fair_share_half_life_seconds",
                                    config.fair_share_half_life_seconds(), 0, 315'360'000));
  PENSTOCK_RETURN_IF_ERROR(
      in_range("stream_heartbeat_seconds", config.stream_heartbeat_seconds(), 1, 3600));
  PENSTOCK_RETURN_IF_ERROR(in_range("calls_per_second", config.calls_per_second(), 0, 1'000'000));
  for (int i = 0; i < config.quotas_size(); ++i) {
    const internal::UserQuota& quota = config.quotas(i);
    const std::string field = absl::StrCat("quotas[", i, "]");
    if (quota.user() != "*" && !CheckUserName(quota.user(), field).ok()) {
      return Invalid(field + ".user", quota.user(), "a user's name, or * for all others");
    }
    PENSTOCK_RETURN_IF_ERROR(
        in_range((field + ".running_jobs").c_str(), quota.running_jobs(), 0, 100'000));
    PENSTOCK_RETURN_IF_ERROR(
        in_range((field + ".queued_jobs").c_str(), quota.queued_jobs(), 0, 100'000));
  }
  for (const char* level : {"debug", "info", "warning", "error"}) {
    if (config.log_level() == level) return absl::OkStatus();
  }
  return Invalid("log_level", config.log_level(), "debug, info, warning or error");
}

// Requests name absolute, resolved paths, so the roots have to be so too.
absl::Status ResolveRoots(internal::DaemonConfig& config) {
  for (std::string& root : *config.mutable_allowed_roots()) {
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::canonical(root, error);
    if (error || !std::filesystem::is_directory(resolved, error)) {
      return Invalid("allowed_roots", root, "a directory that exists");
    }
    root = resolved.string();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> BesideThisProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Invalid("worker-binary", "", "a path, as /proc/self/exe cannot be read");
  return (self.parent_path() / name).string();
}

}  // namespace

absl::StatusOr<ParsedCommandLine> ParseCommandLine(int argc, char** argv) {
  ParsedCommandLine parsed;
  Flags flags;
  CLI::App app("penstockd: trains language models as jobs, over gRPC", "penstockd");
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exits = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : 2;
    return parsed;
  }
  internal::DaemonConfig& config = parsed.settings.config;
  if (!flags.config_file.empty()) {
    PENSTOCK_RETURN_IF_ERROR(ReadMessageFile(flags.config_file, &config));
  }
  Override(flags, config);
  PENSTOCK_RETURN_IF_ERROR(FillDefaults(config));
  PENSTOCK_RETURN_IF_ERROR(CheckRanges(config));
  PENSTOCK_RETURN_IF_ERROR(ResolveRoots(config));
  parsed.settings.on_terminate = flags.on_terminate == "leave"   ? OnTerminate::kLeave
                                 : flags.on_terminate == "drain" ? OnTerminate::kDrain
                                                                 : OnTerminate::kSave;
  parsed.settings.worker_binary = flags.worker_binary;
  if (flags.worker_binary.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(parsed.settings.worker_binary, BesideThisProgram("penstock-worker"));
  }
  if (access(parsed.settings.worker_binary.c_str(), X_OK) != 0) {
    return Invalid("worker-binary", parsed.settings.worker_binary, "a program that can be run");
  }
  return parsed;
}

}  // namespace penstock::server
