// The verbs of `callboard`: each adds its options and sets `run`, which main() calls.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "apps/cli/exit_codes.h"
#include "core/runtime/strings.h"

namespace callboard::apps {

// What every verb shares. Lives as long as main().
struct Cli {
  std::string address;         // of the control plane
  std::string address_source;  // who named it
  std::string output;          // "", "wide" or "json"
  std::function<int()> run;

  bool json() const { return output == "json"; }
};

// stdout carries data only; all else goes to stderr.
inline void Print(std::string_view data) { std::fwrite(data.data(), 1, data.size(), stdout); }
inline void Say(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}
inline int Fail(const absl::Status& status) {
  Say("callboard: " + std::string(core::Message(status)));
  return ExitCodeOf(status);
}

void AddSeatsVerb(CLI::App& app, Cli& cli);         // ps
void AddToolsVerbs(CLI::App& app, Cli& cli);        // tools search, describe
void AddCallVerb(CLI::App& app, Cli& cli);          // call
void AddDoctorVerb(CLI::App& app, Cli& cli);        // doctor
void AddClientConfigVerb(CLI::App& app, Cli& cli);  // client-config
void AddMcpStdioVerb(CLI::App& app, Cli& cli);      // mcp-stdio
void AddConfigVerb(CLI::App& app, Cli& cli);        // config check
void AddCompletionVerb(CLI::App& app, Cli& cli);    // completion

}  // namespace callboard::apps
