// Shell completion scripts, made from the commands that the program has.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::client {

struct CommandWords {
  std::string name;
  std::vector<std::string> options;  // "--follow", "-f"
  // Whether the first argument is the id of a job, or a file.
  enum class Argument : uint8_t { kNothing, kJob, kFile } argument = Argument::kNothing;
};

// `shell` is bash, zsh or fish. Job ids come from `penstock completion --jobs`, which answers
// within 200 ms or with nothing.
std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace penstock::client
