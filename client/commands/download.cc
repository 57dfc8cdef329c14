#include "client/download.h"

#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/checkpoint_list.h"
#include "client/commands/commands.h"
#include "client/job_file.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

struct DownloadOptions {
  std::string name;
  std::string directory;
};

struct Source {
  std::string parent;
  v1::ListFilesResponse files;
};

absl::StatusOr<Source> FindSource(RpcClient& client, const std::string& text) {
  Source source;
  const auto list = [&](const std::string& parent) {
    absl::StatusOr<v1::ListFilesResponse> files = ListSource(client, parent);
    if (files.ok()) source = {.parent = parent, .files = *std::move(files)};
    return files.status();
  };
  absl::Status listed;
  if (absl::StartsWith(text, "uploads/")) {
    listed = list(text);
  } else if (absl::StrContains(text, "/exports/")) {
    listed = list(JobName(text));
  } else {
    listed = WithCheckpoint(client, text, list);
  }
  if (!listed.ok()) return listed;
  return source;
}

// Of jobs/x/checkpoints/40: x-checkpoints-40; of uploads/x: x.
std::string DefaultDirectory(const std::string& parent) {
  return absl::StrReplaceAll(parent.substr(parent.find('/') + 1), {{"/", "-"}});
}

ExitCode RunDownload(const Context& context, const DownloadOptions& options, RpcClient& client) {
  absl::StatusOr<Source> source = FindSource(client, options.name);
  if (!source.ok()) return context.Fail(source.status());
  int64_t bytes = 0;
  for (const v1::FileEntry& file : source->files.files()) bytes += file.bytes();
  const std::string directory = AbsolutePath(
      options.directory.empty() ? DefaultDirectory(source->parent) : options.directory);
  absl::StatusOr<v1::ListFilesResponse> fetched = [&] {
    TransferProgress progress(ProgressView::StyleFor(context.quiet), "fetching", bytes);
    return Download(
        client,
        {.parent = source->parent, .files = std::move(source->files), .directory = directory},
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
