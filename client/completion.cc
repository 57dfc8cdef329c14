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

// Prints what an argument may be, a word a line; empty if that is not a matter of words.
std::string WordsFrom(CommandWords::Argument argument) {
  switch (argument) {
    case CommandWords::Argument::kJob:
      return "penstock completion --jobs 2>/dev/null";
    case CommandWords::Argument::kContext:
      return "penstock completion --contexts 2>/dev/null";
    default:
      return "";
  }
}

std::string BashCase(const CommandWords& command) {
  std::string text =
      absl::StrCat("    ", command.name, ")\n      if [[ $current == -* ]]; then words=\"",
                   absl::StrJoin(command.options, " "), "\"\n");
  if (!command.subcommands.empty()) {
    absl::StrAppend(&text, "      elif ((arguments == 0)); then words=\"",
                    absl::StrJoin(command.subcommands, " "), "\"\n");
  }
  if (command.argument == CommandWords::Argument::kFile) {
    absl::StrAppend(&text, "      else compopt -o default; return\n");
  } else if (const std::string from = WordsFrom(command.argument); !from.empty()) {
    absl::StrAppend(&text, "      else words=$(", from, ")\n");
  }
  return absl::StrCat(text, "      fi ;;\n");
}

std::string Bash(const std::vector<CommandWords>& commands,
                 const std::vector<std::string>& valued_options) {
  std::string cases;
  for (const CommandWords& command : commands) absl::StrAppend(&cases, BashCase(command));
  return absl::StrCat(
      "# penstock completion for bash: source <(penstock completion bash)\n"
      "_penstock() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} command= arguments=0 words= i\n"
      "  case ${COMP_WORDS[COMP_CWORD-1]} in\n"
      "    -o|--output) COMPREPLY=($(compgen -W 'table json yaml' -- \"$current\")); return ;;\n"
      "  esac\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${COMP_WORDS[i]} in\n"
      "      ",
      absl::StrJoin(valued_options, "|"),
      ") ((++i)) ;;\n"
      "      -*) ;;\n"
      "      *) if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else ((++arguments)); fi ;;\n"
      "    esac\n"
      "  done\n"
      "  case $command in\n"
      "    '') words=\"",
      Names(commands), "\" ;;\n", cases,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}\n"
      "complete -F _penstock penstock\n");
}

std::string ZshCase(const CommandWords& command) {
  std::string text = absl::StrCat("    (", command.name, ")\n      if [[ $current == -* ]]; then ",
                                  "compadd -- ", absl::StrJoin(command.options, " "), "\n");
  if (!command.subcommands.empty()) {
    absl::StrAppend(&text, "      elif ((arguments == 0)); then compadd -- ",
                    absl::StrJoin(command.subcommands, " "), "\n");
  }
  if (command.argument == CommandWords::Argument::kFile) {
    absl::StrAppend(&text, "      else _files\n");
  } else if (const std::string from = WordsFrom(command.argument); !from.empty()) {
    absl::StrAppend(&text, "      else compadd -- ${(f)\"$(", from, ")\"}\n");
  }
  return absl::StrCat(text, "      fi ;;\n");
}

std::string Zsh(const std::vector<CommandWords>& commands,
                const std::vector<std::string>& valued_options) {
  std::string cases;
  for (const CommandWords& command : commands) absl::StrAppend(&cases, ZshCase(command));
  return absl::StrCat(
      "#compdef penstock\n"
      "# penstock completion for zsh: source <(penstock completion zsh)\n"
      "_penstock() {\n"
      "  local current=${words[CURRENT]} command=\n"
      "  integer i arguments=0\n"
      "  case ${words[CURRENT-1]} in\n"
      "    (-o|--output) compadd -- table json yaml; return ;;\n"
      "  esac\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case ${words[i]} in\n"
      "      (",
      absl::StrJoin(valued_options, "|"),
      ") ((++i)) ;;\n"
      "      (-*) ;;\n"
      "      (*) if [[ -z $command ]]; then command=${words[i]}; else ((++arguments)); fi ;;\n"
      "    esac\n"
      "  done\n"
      "  case $command in\n"
      "    ('') compadd -- ",
      Names(commands), " ;;\n", cases,
      "  esac\n"
      "}\n"
      // As a file of fpath this is the body of the function, which is called for the first
      // completion.
      "if [[ ${funcstack[1]} == _penstock ]]; then _penstock; else compdef _penstock penstock; "
      "fi\n");
}

std::string FishOption(const std::string& option) {
  const bool is_long = option.size() > 2;
  return absl::StrCat(is_long ? " -l " : " -s ", option.substr(is_long ? 2 : 1));
}

std::string FishCommand(const CommandWords& command) {
  std::string text;
  const std::string seen = absl::StrCat("__fish_seen_subcommand_from ", command.name);
  const std::string when = absl::StrCat("complete -c penstock -n '", seen, "'");
  for (const std::string& option : command.options) {
    absl::StrAppend(&text, when, FishOption(option), "\n");
  }
  // The argument comes after the subcommand, if there are any.
  std::string ready = when;
  if (!command.subcommands.empty()) {
    const std::string names = absl::StrJoin(command.subcommands, " ");
    absl::StrAppend(&text, "complete -c penstock -n '", seen,
                    "; and not __fish_seen_subcommand_from ", names, "' -a '", names, "'\n");
    ready = absl::StrCat("complete -c penstock -n '", seen, "; and __fish_seen_subcommand_from ",
                         names, "'");
  }
  if (command.argument == CommandWords::Argument::kFile) {
    absl::StrAppend(&text, ready, " -F\n");
  } else if (const std::string from = WordsFrom(command.argument); !from.empty()) {
    absl::StrAppend(&text, ready, " -a '(", from, ")'\n");
  }
  return text;
}

std::string Fish(const std::vector<CommandWords>& commands,
                 const std::vector<std::string>& valued_options) {
  std::string text = absl::StrCat(
      "# penstock completion for fish: penstock completion fish | source\n"
      "complete -c penstock -f\n"
      "complete -c penstock -n __fish_use_subcommand -a '",
      Names(commands), "'\n");
  for (const std::string& option : valued_options) {
    const bool is_format = option == "-o" || option == "--output";
    absl::StrAppend(&text, "complete -c penstock", FishOption(option),
                    is_format ? " -x -a 'table json yaml'" : " -r", "\n");
  }
  for (const CommandWords& command : commands) absl::StrAppend(&text, FishCommand(command));
  return text;
}

}  // namespace

std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands,
                             const std::vector<std::string>& valued_options) {
  if (shell == "bash") return Bash(commands, valued_options);
  if (shell == "zsh") return Zsh(commands, valued_options);
  return Fish(commands, valued_options);
}

}  // namespace penstock::client
