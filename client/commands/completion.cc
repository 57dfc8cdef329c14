#include "client/completion.h"

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/commands/commands.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

constexpr absl::Duration kDeadline = absl::Milliseconds(200);
constexpr int kMostIds = 100;

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back(absl::StrCat("--", name));
    for (const std::string& name : option->get_snames()) words.push_back(absl::StrCat("-", name));
  }
  return words;
}

CommandWords::Argument ArgumentOf(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_single_name() == "job" || option->get_single_name() == "checkpoint") {
      return CommandWords::Argument::kJob;
    }
    if (option->get_single_name() == "file") return CommandWords::Argument::kFile;
  }
  return CommandWords::Argument::kNothing;
}

std::vector<CommandWords> WordsOf(const CLI::App& app) {
  const std::vector<std::string> global = OptionsOf(app);
  std::vector<CommandWords> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    CommandWords words{.name = command->get_name(),
                       .options = OptionsOf(*command),
                       .argument = ArgumentOf(*command)};
    words.options.insert(words.options.end(), global.begin(), global.end());
    commands.push_back(std::move(words));
  }
  return commands;
}

// A shell waits for this at each TAB: a short deadline, and silence on every failure.
void PrintJobIds(const Context& context) {
  const absl::StatusOr<Endpoint> endpoint = FindEndpoint(context.endpoint, GetProcessEnvironment);
  if (!endpoint.ok()) return;
  const absl::StatusOr<Credentials> known =
      FindCredentials(context.credentials, *endpoint, GetProcessEnvironment);
  if (!known.ok()) return;
  RpcClient client(*endpoint, kDeadline, *known);
  v1::ListJobsRequest request;
  request.set_page_size(kMostIds);
  const absl::StatusOr<v1::ListJobsResponse> jobs =
      client.Call(client.jobs(), &v1::JobService::Stub::ListJobs, request);
  if (!jobs.ok()) return;
  for (const v1::Job& job : jobs->jobs()) {
    PrintData(absl::StrCat(absl::StripPrefix(job.name(), "jobs/"), "\n"));
  }
}

struct CompletionOptions {
  std::string shell;
  bool jobs = false;
};

}  // namespace

void AddCompletion(CLI::App& app, Context& context) {
  auto options = std::make_shared<CompletionOptions>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
  command->add_option("shell", options->shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->add_flag("--jobs", options->jobs, "Print the ids of jobs instead; for the scripts");
  command->callback([&app, &context, options] {
    if (options->jobs) {
      PrintJobIds(context);
    } else if (options->shell.empty()) {
      PrintTalk("error: which shell: bash, zsh or fish?\n");
      context.exit_code = ExitCode::kUsage;
    } else {
      PrintData(CompletionScript(options->shell, WordsOf(app)));
    }
  });
}

}  // namespace penstock::client
