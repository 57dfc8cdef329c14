// Shell completion scripts, made from the commands that the program has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::client {

struct CommandWords {
  std::string name;
  std::vector<std::string> options;      // "--follow", "-f"
  std::vector<std::string> subcommands;  // of `context`: "add", "use"
  // What the first argument is, after that of a subcommand's name.
  enum class Argument : uint8_t { kNothing, kJob, kFile, kContext } argument = Argument::kNothing;
};

// `shell` is bash, zsh or fish. `valued_options` are those that may stand before a command and are
// followed by a value. Ids of jobs come from `penstock completion --jobs`, which answers within
// 200 ms or with nothing, names of contexts from `penstock completion --contexts`.
std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands,
                             const std::vector<std::string>& valued_options);

}  // namespace penstock::client
