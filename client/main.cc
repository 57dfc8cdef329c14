// penstock: the command line of penstockd. Parses, calls, prints; docs/cli.md is its manual.

#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "client/commands/audit_commands.h"
#include "client/commands/commands.h"
#include "client/exit_code.h"
#include "engine/base/version.h"

namespace penstock::client {
namespace {

constexpr char kFooter[] =
    "The daemon is found by --endpoint, PENSTOCK_ENDPOINT, the file that PENSTOCK_ENDPOINT_FILE\n"
    "names, the context in use, else at $XDG_STATE_HOME/penstock/penstock.sock\n"
    "(~/.local/state/penstock).\n"
    "stdout is data, stderr is talk.\n\n";

void AddGlobalOptions(CLI::App& app, Context& context) {
  app.add_option("--endpoint", context.endpoint,
                 "unix:/path, /path, host:port or https://host:port");
  app.add_option("--token-file", context.credentials.token_file,
                 "File that holds a token, for your eyes only; else PENSTOCK_TOKEN");
  app.add_option("--tls-ca", context.credentials.tls_ca,
                 "PEM file of who has signed the daemon's certificate; else PENSTOCK_TLS_CA");
  app.add_option("--tls-cert", context.credentials.tls_cert, "PEM file: your certificate");
  app.add_option("--tls-key", context.credentials.tls_key, "PEM file: its key");
  app.add_option("--timeout", context.timeout_seconds, "Seconds a call may take")
      ->check(CLI::Range(0.001, 86'400.0))
      ->capture_default_str();
  static const std::map<std::string, Format> kFormats{
      {"table", Format::kTable}, {"json", Format::kJson}, {"yaml", Format::kYaml}};
  app.add_option("-o,--output", context.format, "table, json or yaml")
      ->transform(CLI::Transformer(kFormats).description("table|json|yaml"))
      ->default_str("table");
  app.add_flag("-q,--quiet", context.quiet, "No progress and no summaries");
}

int Main(int argc, char** argv) {
  CLI::App app("Trains language models with penstockd", "penstock");
  Context context;
  AddGlobalOptions(app, context);
  app.set_version_flag("--version", Version());
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(std::string(kFooter) + ExitCodeHelp());
  AddSubmit(app, context);
  AddSweep(app, context);
  AddRun(app, context);
  AddPlan(app, context);
  AddData(app, context);
  AddJobs(app, context);
  AddShow(app, context);
  AddWatch(app, context);
  AddLogs(app, context);
  AddMetrics(app, context);
  AddCancel(app, context);
  AddPause(app, context);
  AddResume(app, context);
  AddFork(app, context);
  AddDelete(app, context);
  AddCheckpoints(app, context);
  AddCheckpoint(app, context);
  AddPin(app, context);
  AddExport(app, context);
  AddVerify(app, context);
  AddDiff(app, context);
  AddKey(app, context);
  AddDownload(app, context);
  AddUpload(app, context);
  AddTrace(app, context);
  AddInfo(app, context);
  AddTop(app, context);
  AddCalibrate(app, context);
  AddReleaseDevice(app, context);
  AddContext(app, context);
  AddAdmin(app, context);
  AddCompletion(app, context);
  for (CLI::App* command : app.get_subcommands(nullptr)) command->fallthrough();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 0 for --help and --version.
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  return static_cast<int>(context.exit_code);
}

}  // namespace
}  // namespace penstock::client

int main(int argc, char** argv) { return penstock::client::Main(argc, argv); }
