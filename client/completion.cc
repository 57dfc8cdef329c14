#include "client/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock::client {
namespace {

std::string Names(const std::vector<CommandWords>& commands) {
  return absl::StrJoin(commands, " ", [](std::string* out, const CommandWords& command) {
    out->append(command.name);
  });
}

std::string Bash(const std::vector<CommandWords>& commands) {
  std::string cases;
  for (const CommandWords& command : commands) {
    absl::StrAppend(&cases, "    ", command.name, ")\n      words=\"",
                    absl::StrJoin(command.options, " "), "\"\n");
    if (command.argument == CommandWords::Argument::kJob) {
      absl::StrAppend(&cases,
                      "      [[ $current == -* ]] || words=$(penstock completion --jobs "
                      "2>/dev/null)\n");
    } else if (command.argument == CommandWords::Argument::kFile) {
      absl::StrAppend(&cases, "      [[ $current == -* ]] || { compopt -o default; return; }\n");
    }
    absl::StrAppend(&cases, "      ;;\n");
  }
  return absl::StrCat(
      "# penstock completion for bash: source <(penstock completion bash)\n"
      "_penstock() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} command= words= word i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    [[ $word == -* ]] || { command=$word; break; }\n"
      "  done\n"
      "  case $command in\n"
      "    '')\n"
      "      words=\"",
      Names(commands), "\"\n      ;;\n", cases,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}\n"
      "complete -F _penstock penstock\n");
}

std::string Zsh(const std::vector<CommandWords>& commands) {
  std::string cases;
  for (const CommandWords& command : commands) {
    absl::StrAppend(&cases, "    ", command.name, ")\n      compadd -- ",
                    absl::StrJoin(command.options, " "), "\n");
    if (command.argument == CommandWords::Argument::kJob) {
      absl::StrAppend(&cases,
                      "      compadd -- ${(f)\"$(penstock completion --jobs 2>/dev/null)\"}\n");
    } else if (command.argument == CommandWords::Argument::kFile) {
      absl::StrAppend(&cases, "      _files\n");
    }
    absl::StrAppend(&cases, "      ;;\n");
  }
  return absl::StrCat(
      "#compdef penstock\n"
      "# penstock completion for zsh: source <(penstock completion zsh)\n"
      "_penstock() {\n"
      "  if ((CURRENT == 2)); then\n"
      "    compadd -- ",
      Names(commands),
      "\n    return\n"
      "  fi\n"
      "  case ${words[2]} in\n",
      cases,
      "  esac\n"
      "}\n"
      "compdef _penstock penstock\n");
}

std::string Fish(const std::vector<CommandWords>& commands) {
  std::string text = absl::StrCat(
      "# penstock completion for fish: penstock completion fish | source\n"
      "complete -c penstock -f\n"
      "complete -c penstock -n __fish_use_subcommand -a '",
      Names(commands), "'\n");
  for (const CommandWords& command : commands) {
    const std::string when =
        absl::StrCat("complete -c penstock -n '__fish_seen_subcommand_from ", command.name, "'");
    for (const std::string& option : command.options) {
      const bool is_long = option.size() > 2;
      absl::StrAppend(&text, when, is_long ? " -l " : " -s ", option.substr(is_long ? 2 : 1), "\n");
    }
    if (command.argument == CommandWords::Argument::kJob) {
      absl::StrAppend(&text, when, " -a '(penstock completion --jobs 2>/dev/null)'\n");
    } else if (command.argument == CommandWords::Argument::kFile) {
      absl::StrAppend(&text, when, " -F\n");
    }
  }
  return text;
}

}  // namespace

std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands) {
  if (shell == "bash") return Bash(commands);
  if (shell == "zsh") return Zsh(commands);
  return Fish(commands);
}

}  // namespace penstock::client
