#include "client/upload.h"

#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

struct UploadOptions {
  std::string path;
  std::string id;
};

ExitCode RunUpload(const Context& context, const UploadOptions& options, RpcClient& client) {
  absl::StatusOr<std::vector<LocalFile>> files = FindLocalFiles(options.path);
  if (!files.ok()) return context.Fail(files.status());
  int64_t bytes = 0;
  for (const LocalFile& file : *files) bytes += file.entry.bytes();
  const ProgressView::Style style = ProgressView::StyleFor(context.quiet);
  const absl::Status hashed = [&] {
    TransferProgress progress(style, "hashing", bytes);
    return HashFiles(*files, progress);
  }();
  if (!hashed.ok()) return context.Fail(hashed);
  const absl::StatusOr<v1::Upload> upload = [&] {
    TransferProgress progress(style, "sending", bytes);
    return SendUpload(client, {.files = *std::move(files), .upload_id = options.id}, progress);
  }();
  if (!upload.ok()) return context.Fail(upload.status());
  if (!context.quiet) {
    PrintTalk(absl::StrCat(upload->name(), " is complete; penstock delete ", upload->name(),
                           " removes it\n"));
  }
  return context.Print(*upload, [&] { return absl::StrCat(upload->directory(), "\n"); });
}

ExitCode ListAllUploads(const Context& context, RpcClient& client) {
  v1::ListUploadsRequest request;
  v1::ListUploadsResponse all;
  while (true) {
    absl::StatusOr<v1::ListUploadsResponse> page =
        client.Call(client.transfers(), &v1::TransferService::Stub::ListUploads, request);
    if (!page.ok()) return context.Fail(page.status());
    for (v1::Upload& upload : *page->mutable_uploads()) *all.add_uploads() = std::move(upload);
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
  }
  return context.Print(all, [&all] {
    Table table({"NAME", "STATE", "CREATED", "EXPIRES", "DIRECTORY"});
    for (const v1::Upload& upload : all.uploads()) {
      table.Add({upload.name(), upload.complete() ? "complete" : "incoming",
                 FormatTime(upload.create_time()), FormatTime(upload.expire_time()),
                 Printable(upload.directory())});
    }
    return table.ToText();
  });
}

}  // namespace

void AddUpload(CLI::App& app, Context& context) {
  auto options = std::make_shared<UploadOptions>();
  CLI::App* command = app.add_subcommand(
      "upload", "Send a model, data or a checkpoint; prints the directory on the daemon's machine");
  command->add_option("path", options->path, "A file, or a directory with all beneath it")
      ->required();
  command->add_option("--id", options->id, "Id of the upload: 4 to 63 characters of a-z, 0-9, -");
  OnConnected(*command, context, [&context, options](RpcClient& client) {
    return RunUpload(context, *options, client);
  });
  OnConnected(*app.add_subcommand("uploads", "List uploads, newest first"), context,
              [&context](RpcClient& client) { return ListAllUploads(context, client); });
}

}  // namespace penstock::client
