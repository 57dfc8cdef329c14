#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/audit_commands.h"
#include "engine/provenance/signing_key.h"

namespace penstock::client {
namespace {

absl::StatusOr<std::string> PublicKey(const Context& context, const std::string& file) {
  if (!file.empty()) return PublicKeyFrom(file);
  const absl::StatusOr<std::unique_ptr<RpcClient>> client = context.Connect();
  if (!client.ok()) return client.status();
  const absl::StatusOr<v1::GetServerInfoResponse> info = (*client)->Call(
      (*client)->admin(), &v1::AdminService::Stub::GetServerInfo, v1::GetServerInfoRequest());
  if (!info.ok()) return info.status();
  return info->signing_public_key();
}

ExitCode ShowKey(const Context& context, const std::string& file) {
  const absl::StatusOr<std::string> key = PublicKey(context, file);
  if (!key.ok()) return context.Fail(key.status());
  PrintData(context.format == Format::kTable ? absl::StrCat(*key, "\n")
                                             : absl::StrCat("{\"public_key\": \"", *key, "\"}\n"));
  return ExitCode::kOk;
}

}  // namespace

void AddKey(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("key", "The key that checkpoints are signed with");
  command->require_subcommand(1);
  auto file = std::make_shared<std::string>();
  CLI::App* show = command->add_subcommand(
      "show", "Print the public key of the daemon, or of a key file: for verify --key");
  show->add_option("file", *file, "A key file, as signing.key of a state directory");
  show->fallthrough();
  show->callback([&context, file] { context.exit_code = ShowKey(context, *file); });
}

}  // namespace penstock::client
