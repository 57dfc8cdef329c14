#include "client/completion.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/commands/commands.h"
#include "client/contexts.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

constexpr absl::Duration kDeadline = absl::Milliseconds(200);
constexpr int kMostIds = 100;

enum class Which : uint8_t { kAll, kWithValue };

std::vector<std::string> OptionsOf(const CLI::App& app, Which which) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) {
    if (which == Which::kWithValue && option->get_items_expected_max() == 0) continue;
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
    if (option->get_single_name() == "context") return CommandWords::Argument::kContext;
  }
  return CommandWords::Argument::kNothing;
}

void Append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::vector<CommandWords> WordsOf(const CLI::App& app) {
  const std::vector<std::string> global = OptionsOf(app, Which::kAll);
  std::vector<CommandWords> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    CommandWords words{.name = command->get_name(),
                       .options = OptionsOf(*command, Which::kAll),
                       .subcommands = {},
                       .argument = ArgumentOf(*command)};
    for (const CLI::App* subcommand : command->get_subcommands(nullptr)) {
      words.subcommands.push_back(subcommand->get_name());
      Append(words.options, OptionsOf(*subcommand, Which::kAll));
      if (words.argument == CommandWords::Argument::kNothing) {
        words.argument = ArgumentOf(*subcommand);
      }
    }
    Append(words.options, global);
    std::sort(words.options.begin(), words.options.end());
    words.options.erase(std::unique(words.options.begin(), words.options.end()),
                        words.options.end());
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

void PrintContexts() {
  const absl::StatusOr<Contexts> contexts = ReadContexts(ContextsPath(GetProcessEnvironment));
  if (!contexts.ok()) return;
  for (const auto& [name, endpoint] : contexts->endpoints) PrintData(absl::StrCat(name, "\n"));
}

struct CompletionOptions {
  std::string shell;
  bool jobs = false;
  bool contexts = false;
};

}  // namespace

void AddCompletion(CLI::App& app, Context& context) {
  auto options = std::make_shared<CompletionOptions>();
  CLI::App* command =
      app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
  command->add_option("shell", options->shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->add_flag("--jobs", options->jobs, "Print the ids of jobs instead; for the scripts");
  command->add_flag("--contexts", options->contexts,
                    "Print the names of contexts instead; for the scripts");
  command->callback([&app, &context, options] {
    if (options->jobs) {
      PrintJobIds(context);
    } else if (options->contexts) {
      PrintContexts();
    } else if (options->shell.empty()) {
      PrintTalk("error: which shell: bash, zsh or fish?\n");
      context.exit_code = ExitCode::kUsage;
    } else {
      PrintData(CompletionScript(options->shell, WordsOf(app), OptionsOf(app, Which::kWithValue)));
    }
  });
}

}  // namespace penstock::client
