// penstock context: names for daemons, one of which is in use.
#include "client/contexts.h"

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "engine/base/status.h"

namespace penstock::client {
namespace {

struct ContextOptions {
  std::string name, endpoint;
};

absl::Status NoSuchContext(const std::string& name, const Contexts& contexts) {
  std::string known;
  for (const auto& [other, endpoint] : contexts.endpoints) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", other);
  }
  return Error(absl::StatusCode::kNotFound, reason::kRequestInvalid,
               absl::StrCat("context: found \"", name,
                            "\", expected one of: ", known.empty() ? "none has been added" : known),
               {{"found", name}});
}

// Reads the contexts, changes them and writes them back.
ExitCode Change(const Context& context, const std::function<absl::Status(Contexts&)>& change) {
  const std::string path = ContextsPath(GetProcessEnvironment);
  const auto run = [&]() -> absl::Status {
    if (path.empty()) {
      return Error(absl::StatusCode::kInvalidArgument, reason::kRequestInvalid,
                   "no place for contexts: set XDG_CONFIG_HOME or HOME");
    }
    PENSTOCK_ASSIGN_OR_RETURN(Contexts contexts, ReadContexts(path));
    PENSTOCK_RETURN_IF_ERROR(change(contexts));
    return WriteContexts(path, contexts);
  };
  const absl::Status status = run();
  return status.ok() ? ExitCode::kOk : context.Fail(status);
}

ExitCode Add(const Context& context, const ContextOptions& options) {
  return Change(context, [&](Contexts& contexts) -> absl::Status {
    PENSTOCK_RETURN_IF_ERROR(CheckContextName(options.name));
    // What is no endpoint is refused now rather than when it is used.
    PENSTOCK_RETURN_IF_ERROR(FindEndpoint(options.endpoint, GetProcessEnvironment).status());
    contexts.endpoints[options.name] = options.endpoint;
    if (contexts.current.empty()) contexts.current = options.name;
    return absl::OkStatus();
  });
}

ExitCode Use(const Context& context, const ContextOptions& options) {
  return Change(context, [&](Contexts& contexts) -> absl::Status {
    if (!options.name.empty() && contexts.endpoints.count(options.name) == 0) {
      return NoSuchContext(options.name, contexts);
    }
    contexts.current = options.name;
    return absl::OkStatus();
  });
}

ExitCode Remove(const Context& context, const ContextOptions& options) {
  return Change(context, [&](Contexts& contexts) -> absl::Status {
    if (contexts.endpoints.erase(options.name) == 0) return NoSuchContext(options.name, contexts);
    if (contexts.current == options.name) contexts.current.clear();
    return absl::OkStatus();
  });
}

ExitCode List(const Context& context) {
  const absl::StatusOr<Contexts> contexts = ReadContexts(ContextsPath(GetProcessEnvironment));
  if (!contexts.ok()) return context.Fail(contexts.status());
  Table table({"", "NAME", "ENDPOINT"});
  for (const auto& [name, endpoint] : contexts->endpoints) {
    table.Add({name == contexts->current ? "*" : "", name, endpoint});
  }
  PrintData(table.ToText());
  return ExitCode::kOk;
}

}  // namespace

void AddContext(CLI::App& app, Context& context) {
  auto options = std::make_shared<ContextOptions>();
  CLI::App* parent = app.add_subcommand("context", "Give daemons names, and choose one to talk to");
  parent->require_subcommand(1);
  CLI::App* add = parent->add_subcommand("add", "Add a name for an endpoint; the first is in use");
  add->add_option("name", options->name, "Name of your choice")->required();
  add->add_option("address", options->endpoint, "unix:/path, /path or host:port")->required();
  add->callback([&context, options] { context.exit_code = Add(context, *options); });
  CLI::App* use = parent->add_subcommand("use", "Talk to this one from now on");
  use->add_option("context", options->name, "Name of the context; absent: none");
  use->callback([&context, options] { context.exit_code = Use(context, *options); });
  CLI::App* remove = parent->add_subcommand("remove", "Forget one");
  remove->add_option("context", options->name, "Name of the context")->required();
  remove->callback([&context, options] { context.exit_code = Remove(context, *options); });
  CLI::App* list = parent->add_subcommand("list", "List them; the one in use has a star");
  list->callback([&context] { context.exit_code = List(context); });
  for (CLI::App* command : parent->get_subcommands(nullptr)) command->fallthrough();
}

}  // namespace penstock::client
