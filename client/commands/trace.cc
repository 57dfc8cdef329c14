#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

struct TraceOptions {
  std::string job;
  std::string file = "-";
};

ExitCode WriteTrace(const Context& context, const std::string& path, const std::string& trace) {
  if (path == "-") {
    PrintData(trace);
    return ExitCode::kOk;
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << trace;
  file.close();
  if (file.good()) return ExitCode::kOk;
  return context.Fail(
      Error(absl::StatusCode::kInvalidArgument, reason::kIoError,
            absl::StrCat("cannot write the trace to ", path, "; give a path that can be written"),
            {{"file", path}}));
}

// Without a deadline: a step takes as long as it takes.
ExitCode Trace(const Context& context, const TraceOptions& options, RpcClient& client) {
  grpc::ClientContext call;
  v1::TraceJobRequest request;
  request.set_name(JobName(options.job));
  const auto reader = client.jobs().TraceJob(&call, request);
  std::string trace;
  for (v1::TraceJobResponse piece; reader->Read(&piece);) trace += piece.chrome_trace();
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return context.Fail(client.ToStatus(status));
  return WriteTrace(context, options.file, trace);
}

}  // namespace

void AddTrace(CLI::App& app, Context& context) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command =
      app.add_subcommand("trace",
                         "What each lane does in the step that runs, measured, for Perfetto or "
                         "chrome://tracing; waits until the step ends");
  command->add_option("job", options->job, "Id or name of a running job")->required();
  command->add_option("-o,--output", options->file, "File to write; - is standard output")
      ->capture_default_str();
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Trace(context, *options, client); });
}

}  // namespace penstock::client
