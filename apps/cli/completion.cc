// `callboard completion`: shell completion made from the options themselves.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <vector>

#include "apps/cli/verbs.h"

namespace callboard::apps {
namespace {

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> VerbsOf(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

std::vector<std::string> WordsOf(CLI::App& root, CLI::App& verb) {
  std::vector<std::string> words = VerbsOf(verb);
  const std::string& name = verb.get_name();
  if (name == "client-config") {
    words.insert(words.end(), {"claude-code", "claude-desktop", "cursor", "vscode", "gemini",
                               "codex", "windsurf", "opencode"});
  } else if (name == "completion") {
    words.insert(words.end(), {"bash", "zsh", "fish"});
  } else if (name == "help") {
    const auto verbs = VerbsOf(root);
    words.insert(words.end(), verbs.begin(), verbs.end());
  }
  for (const auto& option : OptionsOf(verb)) words.push_back(option);
  return words;
}

std::string Bash(CLI::App& root) {
  std::string cases;
  for (CLI::App* verb : root.get_subcommands([](CLI::App*) { return true; })) {
    cases += fmt::format("    {}) words=\"{}\" ;;\n", verb->get_name(),
                         fmt::join(WordsOf(root, *verb), " "));
  }
  return fmt::format(
      "# bash completion of callboard: source <(callboard completion bash)\n"
      "_callboard() {{\n"
      "  local word words=\"{0}\" current=${{COMP_WORDS[COMP_CWORD]}}\n"
      "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
      "    case $word in\n{1}    *) continue ;;\n    esac\n    break\n  done\n"
      "  COMPREPLY=($(compgen -W \"$words {2}\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -F _callboard callboard\n",
      fmt::join(VerbsOf(root), " "), cases, fmt::join(OptionsOf(root), " "));
}

std::string Fish(CLI::App& root) {
  std::string text = "# fish completion of callboard: callboard completion fish | source\n";
  for (CLI::App* verb : root.get_subcommands([](CLI::App*) { return true; })) {
    text += fmt::format("complete -c callboard -n __fish_use_subcommand -a {} -d '{}'\n",
                        verb->get_name(), verb->get_description());
    text += fmt::format("complete -c callboard -n '__fish_seen_subcommand_from {}' -a '{}'\n",
                        verb->get_name(), fmt::join(WordsOf(root, *verb), " "));
  }
  return text;
}

}  // namespace

void AddCompletionVerb(CLI::App& app, Cli& cli) {
  auto shell = std::make_shared<std::string>();
  auto* verb = app.add_subcommand("completion", "Print completion for a shell");
  verb->add_option("shell", *shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required();
  verb->footer("Example:\n  source <(callboard completion bash)");
  verb->callback([&app, &cli, shell] {
    cli.run = [&app, shell] {
      if (*shell == "fish") {
        Print(Fish(app));
      } else if (*shell == "zsh") {
        Print(
            "# zsh completion of callboard: source <(callboard completion zsh)\n"
            "autoload -U +X bashcompinit && bashcompinit\n" +
            Bash(app));
      } else {
        Print(Bash(app));
      }
      return static_cast<int>(kExitOk);
    };
  });
}

}  // namespace callboard::apps
