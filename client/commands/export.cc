#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/checkpoint_list.h"
#include "client/commands/commands.h"
#include "client/commands/follow_job.h"
#include "client/job_file.h"

namespace penstock::client {
namespace {

struct ExportOptions {
  std::string checkpoint;
  std::string directory;
  std::string type;
  bool follow = false;
  bool wait = false;
};

ExitCode Export(const Context& context, const ExportOptions& options, RpcClient& client) {
  v1::ExportCheckpointRequest request;
  v1::ExportSpec& spec = *request.mutable_spec();
  spec.set_directory(AbsolutePath(options.directory));
  if (options.type == "float32") spec.set_export_type(v1::EXPORT_TYPE_FLOAT32);
  if (options.type == "bfloat16") spec.set_export_type(v1::EXPORT_TYPE_BFLOAT16);
  v1::Job job;
  const absl::Status created =
      WithCheckpoint(client, options.checkpoint, [&](const std::string& checkpoint) {
        request.set_request_id(NewRequestId());
        spec.set_checkpoint(checkpoint);
        absl::StatusOr<v1::ExportCheckpointResponse> response = client.Call(
            client.checkpoints(), &v1::CheckpointService::Stub::ExportCheckpoint, request);
        if (response.ok()) job = std::move(*response->mutable_job());
        return response.status();
      });
  if (!created.ok()) return context.Fail(created, request.request_id());
  context.Print(job, [&] { return absl::StrCat(job.name(), "\n"); });
  if (!options.follow && !options.wait) return ExitCode::kOk;
  return FollowDetachably(
      context, client, job.name(),
      options.follow ? ProgressView::StyleFor(context.quiet) : ProgressView::Style::kSilent);
}

}  // namespace

void AddExport(CLI::App& app, Context& context) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand(
      "export", "Write a checkpoint as a Hugging Face directory; prints the name of the job");
  command
      ->add_option("checkpoint", options->checkpoint,
                   "jobs/{id}/checkpoints/{step}, or a job for its newest")
      ->required();
  command->add_option("directory", options->directory, "Where to; must not exist")->required();
  command->add_option("--type", options->type, "Tensor type, for models that were not imported")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  CLI::Option* follow =
      command->add_flag("--follow", options->follow, "Show progress until the export has ended");
  command->add_flag("--wait", options->wait, "Wait silently until the export has ended")
      ->excludes(follow);
  OnConnected(*command, context,
              [&context, options](RpcClient& client) { return Export(context, *options, client); });
}

}  // namespace penstock::client
