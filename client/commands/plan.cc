#include <cstdio>
#include <fstream>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/submit_job.h"
#include "client/job_file.h"
#include "client/job_text.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

struct PlanOptions {
  std::string file;
  std::vector<std::string> settings;
  std::string machine;
  std::string trace_file;
  bool explain = false;
  bool program = false;
  bool moments_on_storage = false;
};

// A name of a machine has no dot before a "json" and no slash.
bool IsProfileFile(const std::string& machine) {
  return absl::EndsWith(machine, ".json") || absl::StrContains(machine, '/');
}

absl::StatusOr<std::string> ReadProfileFile(const std::string& path) {
  constexpr int64_t kMaxBytes = 64 << 10;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() || file.bad()) {
    return Error(absl::StatusCode::kInvalidArgument, reason::kIoError,
                 absl::StrCat(path, " cannot be read as a machine profile; give a file of at most ",
                              kMaxBytes, " bytes, as penstock calibrate --profile prints it"));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

absl::Status WriteTrace(const std::string& path, const std::string& trace) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << trace;
  file.close();
  if (file.good()) return absl::OkStatus();
  return Error(
      absl::StatusCode::kInvalidArgument, reason::kIoError,
      absl::StrCat("cannot write the trace to ", path, "; give a path that can be written"));
}

ExitCode Plan(const Context& context, const PlanOptions& options, RpcClient& client) {
  absl::StatusOr<v1::JobSpec> spec = LoadJobFile(options.file, options.settings);
  if (!spec.ok()) return FailToLoad(context, spec.status());
  v1::PlanJobRequest request;
  *request.mutable_spec() = *std::move(spec);
  if (IsProfileFile(options.machine)) {
    absl::StatusOr<std::string> text = ReadProfileFile(options.machine);
    if (!text.ok()) return FailToLoad(context, text.status());
    request.set_machine_profile_json(*std::move(text));
  } else {
    request.set_machine(options.machine);
  }
  request.set_moments_on_storage(options.moments_on_storage);
  request.set_with_program(options.program);
  request.set_with_trace(!options.trace_file.empty());
  absl::StatusOr<v1::PlanJobResponse> planned =
      client.Call(client.jobs(), &v1::JobService::Stub::PlanJob, request);
  if (!planned.ok()) return context.Fail(planned.status());
  for (const std::string& warning : planned->warnings()) {
    PrintTalk(absl::StrCat("warning: ", Printable(warning), "\n"));
  }
  if (!options.trace_file.empty()) {
    const absl::Status written = WriteTrace(options.trace_file, planned->step_trace());
    if (!written.ok()) return context.Fail(written);
    planned->clear_step_trace();  // it is in the file
  }
  planned->clear_spec();  // what was asked, with defaults
  return context.Print(*planned, [&] {
    return options.program ? planned->step_program() : PlanPage(planned->plan(), options.explain);
  });
}

}  // namespace

void AddPlan(CLI::App& app, Context& context) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app.add_subcommand("plan", "Say how a job would run, how fast, and in which memory");
  command->add_option("file", options->file, "Job file, YAML or JSON; - reads standard input")
      ->required();
  command->add_option("--set", options->settings, "Set a field: batch.tokens_per_step=65536")
      ->allow_extra_args(false);
  command->add_option("--machine", options->machine,
                      "Plan for a machine of this name instead of the daemon's: h200-1.5tb; or "
                      "for the one of a profile, profile.json");
  command->add_flag("--moments-on-storage", options->moments_on_storage,
                    "Plan with AdamW's moments on storage; no job runs so in this version");
  command->add_flag("--explain", options->explain,
                    "Name the policies that were not chosen, and why; memory of every phase");
  command->add_flag("--program", options->program, "Print the program of a step instead");
  command->add_option("--trace", options->trace_file,
                      "Write the simulated timeline of a step to this file, for Perfetto or "
                      "chrome://tracing");
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Plan(context, *options, client); });
}

}  // namespace penstock::client
