#include "client/download.h"

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/checkpoint_list.h"
#include "client/commands/commands.h"
#include "client/job_file.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

struct DownloadOptions {
  std::string name;
  std::string directory;
};

absl::StatusOr<std::string> FindParent(RpcClient& client, const std::string& text) {
  if (absl::StartsWith(text, "uploads/")) return text;
  if (absl::StrContains(text, "/exports/")) return JobName(text);
  return FindCheckpoint(client, text);
}

// Of jobs/x/checkpoints/40: x-checkpoints-40; of uploads/x: x.
std::string DefaultDirectory(const std::string& parent) {
  return absl::StrReplaceAll(parent.substr(parent.find('/') + 1), {{"/", "-"}});
}

ExitCode RunDownload(const Context& context, const DownloadOptions& options, RpcClient& client) {
  const absl::StatusOr<std::string> parent = FindParent(client, options.name);
  if (!parent.ok()) return context.Fail(parent.status());
  absl::StatusOr<v1::ListFilesResponse> files = ListSource(client, *parent);
  if (!files.ok()) return context.Fail(files.status());
  int64_t bytes = 0;
  for (const v1::FileEntry& file : files->files()) bytes += file.bytes();
  const std::string directory =
      AbsolutePath(options.directory.empty() ? DefaultDirectory(*parent) : options.directory);
  absl::StatusOr<v1::ListFilesResponse> fetched = [&] {
    TransferProgress progress(ProgressView::StyleFor(context.quiet), "fetching", bytes);
    return Download(client, {.parent = *parent, .files = *std::move(files), .directory = directory},
                    progress);
  }();
  if (!fetched.ok()) return context.Fail(fetched.status());
  return context.Print(*fetched, [&] { return directory + "\n"; });
}

}  // namespace

void AddDownload(CLI::App& app, Context& context) {
  auto options = std::make_shared<DownloadOptions>();
  CLI::App* command = app.add_subcommand(
      "download", "Fetch the files of a checkpoint, an export or an upload; prints the directory");
  command
      ->add_option(
          "name", options->name,
          "{job}/checkpoints/{step}, a job for its newest, {job}/exports/{n}, uploads/{id}")
      ->required();
  command->add_option("directory", options->directory,
                      "Where to; must not exist. A broken download is gone on with. Default: by "
                      "the name, here");
  OnConnected(*command, context, [&context, options](RpcClient& client) {
    return RunDownload(context, *options, client);
  });
}

}  // namespace penstock::client
