#include "engine/audit/verify.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "client/audit_text.h"
#include "client/commands/audit_commands.h"
#include "engine/base/thread_pool.h"
#include "engine/provenance/signing_key.h"

namespace penstock::client {
namespace {

constexpr unsigned kMaxThreads = 8;

struct VerifyArgs {
  std::string path;
  std::string key;
};

// Whatever is wrong, with the directory or with asking, is 1: a script needs no finer answer to
// "may I use this?".
ExitCode Verify(const Context& context, const VerifyArgs& args) {
  std::string trusted;
  if (!args.key.empty()) {
    const absl::StatusOr<std::string> key = PublicKeyFrom(args.key);
    if (!key.ok()) return context.Fail(key.status());
    trusted = *key;
  }
  ThreadPool pool(
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMaxThreads)));
  const absl::StatusOr<VerifyReport> report =
      VerifyDirectory(args.path, {.trusted_key = trusted, .pool = pool});
  if (!report.ok()) {
    context.Fail(report.status());
    return ExitCode::kFailed;
  }
  PrintData(context.format == Format::kTable ? VerifyText(*report) : VerifyJson(*report));
  return report->any(Verdict::kWrong) ? ExitCode::kFailed : ExitCode::kOk;
}

}  // namespace

void AddVerify(CLI::App& app, Context& context) {
  auto args = std::make_shared<VerifyArgs>();
  CLI::App* command = app.add_subcommand(
      "verify",
      "Check a checkpoint's or an export's files against its signed provenance; needs no daemon");
  command->add_option("path", args->path, "The directory")->required();
  command->add_option("--key", args->key,
                      "The public key that must have signed it, or a file with it");
  command->callback([&context, args] { context.exit_code = Verify(context, *args); });
}

}  // namespace penstock::client
