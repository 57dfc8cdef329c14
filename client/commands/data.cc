#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/submit_job.h"
#include "client/data_text.h"
#include "client/job_file.h"
#include "client/progress.h"

namespace penstock::client {
namespace {

// Reading all data may take long; --timeout says otherwise.
constexpr absl::Duration kReadTimeout = absl::Hours(24);

struct DataOptions {
  std::string file;
  std::vector<std::string> settings;
  int examples = 0;
  bool ids = false;
};

using DataReply = absl::StatusOr<v1::InspectDataResponse>;

DataReply Inspect(const Context& /*context*/, const DataOptions& options, const v1::JobSpec& spec,
                  RpcClient& client) {
  v1::InspectDataRequest request;
  *request.mutable_spec() = spec;
  request.set_examples(options.examples);
  return client.Call(client.jobs(), &v1::JobService::Stub::InspectData, request);
}

DataReply Build(const Context& context, const DataOptions& /*options*/, const v1::JobSpec& spec,
                RpcClient& client) {
  v1::BuildDataRequest request;
  *request.mutable_spec() = spec;
  grpc::ClientContext call;
  call.set_deadline(client.Deadline());
  const auto reader = client.jobs().BuildData(&call, request);
  ProgressView view(ProgressView::StyleFor(context.quiet));
  v1::Job job;  // what one looks like that is at this point
  job.set_state(v1::JOB_STATE_STARTING);
  job.mutable_progress()->set_phase(v1::JOB_PHASE_DATA);
  v1::BuildDataResponse message;
  while (reader->Read(&message) && !message.has_result()) {
    job.mutable_progress()->set_phase_fraction(message.fraction());
    view.Update(job);
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return client.ToStatus(status);
  return std::move(*message.mutable_result());
}

CLI::App* AddCommand(CLI::App& parent, Context& context, const std::string& name,
                     const std::string& description, std::shared_ptr<DataOptions> options,
                     decltype(&Inspect) ask) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->add_option("file", options->file, "Job file, YAML or JSON; - reads standard input")
      ->required();
  command->add_option("--set", options->settings, "Set a field: batch.sequence_length=4096")
      ->allow_extra_args(false);
  command->fallthrough();
  OnConnected(*command, context, [&context, options, &parent, ask](RpcClient& client) {
    const CLI::App* root = parent.get_parent();
    if (root->count("--timeout") == 0) client.set_timeout(kReadTimeout);
    const absl::StatusOr<v1::JobSpec> spec = LoadJobFile(options->file, options->settings);
    if (!spec.ok()) return FailToLoad(context, spec.status());
    const DataReply data = ask(context, *options, *spec, client);
    if (!data.ok()) return context.Fail(data.status());
    for (const std::string& warning : data->warnings()) {
      PrintTalk(absl::StrCat("warning: ", Printable(warning), "\n"));
    }
    return context.Print(
        *data, [&] { return DataPage(*data, {.color = MayColor(), .ids = options->ids}); });
  });
  return command;
}

}  // namespace

void AddData(CLI::App& app, Context& context) {
  CLI::App* data = app.add_subcommand("data", "Look at a job's data before it runs");
  data->require_subcommand(1);
  auto inspect = std::make_shared<DataOptions>();
  CLI::App* command =
      AddCommand(*data, context, "inspect",
                 "Say what a job would be trained on: examples with what is learned of them, "
                 "lengths, rows left out and why",
                 inspect, &Inspect);
  command->add_option("-n,--examples", inspect->examples, "Examples to show")
      ->check(CLI::Range(0, 20))
      ->default_val(3);
  command->add_flag("--ids", inspect->ids, "Show the token ids of the examples");
  AddCommand(*data, context, "build",
             "Tokenize a job's data now, so that the job finds them in the token cache",
             std::make_shared<DataOptions>(), &Build);
}

}  // namespace penstock::client
