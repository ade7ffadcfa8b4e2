// `callboard call`: runs one tool and prints its result.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <thread>

#include "absl/time/time.h"
#include "apps/cli/control_api.h"
#include "apps/cli/verbs.h"
#include "core/mcp/json.h"

namespace callboard::apps {
namespace {

using core::MakeError;

struct Options {
  std::string slug;
  std::string data = "{}";
  std::string timeout;
  bool progress = false;
};

absl::StatusOr<std::string> ReadArguments(const std::string& data) {
  std::string text = data;
  if (data == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else if (data.starts_with("@")) {
    std::ifstream file(data.substr(1), std::ios::binary);
    if (!file) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       fmt::format("-d {}: the file cannot be read", data));
    }
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  if (auto status = core::ValidateJson(text); !status.ok()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     fmt::format("-d: the arguments are no JSON: {}", core::Message(status)));
  }
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  if (!core::IsObject(text)) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     "-d: the arguments must be a JSON object, e.g. -d '{\"name\":\"ball\"}'");
  }
  core::FlattenLines(text.data(), text.size());
  return text;
}

// Turns the first SIGINT or SIGTERM into a cancel of the call; a second one ends the program. Made
// before any other thread, so that all inherit the blocked signals. It lives until the process
// ends, as its thread does.
class CancelOnSignal {
 public:
  CancelOnSignal() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  void Start(std::function<void()> cancel) {
    std::thread([signals = signals_, cancel = std::move(cancel)] {
      int number = 0;
      sigwait(&signals, &number);
      cancel();
      sigwait(&signals, &number);
      _exit(kExitUnknown);
    }).detach();
  }

 private:
  sigset_t signals_;
};

void PrintResult(const std::string& result) {
  const auto content = core::FindMember(result, "content");
  bool any = false;
  if (content) {
    (void)core::ForEachElement(*content, [&](std::string_view block) {
      const auto type = core::FindString(block, "type").value_or("");
      if (type == "text") {
        Print(core::FindString(block, "text").value_or("") + "\n");
        any = true;
      } else {
        Say(fmt::format("[a block of type '{}'; -o json shows it]", type));
      }
      return true;
    });
  }
  if (any) return;
  if (const auto structured = core::FindMember(result, "structuredContent")) {
    Print(std::string(*structured) + "\n");
  }
}

std::string_view WhatBecame(v1::Certainty certainty) {
  switch (certainty) {
    case v1::NOT_STARTED:
      return "it never started";
    case v1::RUNNING:
      return "the tool may still be at work";
    case v1::FINISHED:
      return "the tool has ended";
    default:
      return "it is not known whether it ran";
  }
}

int Report(const Cli& cli, const v1::CallOutcome& outcome, const std::string& body) {
  const int code = ExitCodeOf(outcome);
  if (outcome.class_() == v1::RESULT) {
    if (cli.json()) {
      Print(body + "\n");
    } else {
      PrintResult(body);
    }
    if (code != kExitOk) Say("callboard: the tool says that it failed (isError)");
    return code;
  }
  if (cli.json() && !body.empty()) Print(body + "\n");
  const std::string message = !outcome.message().empty()
                                  ? outcome.message()
                                  : core::FindString(body, "message").value_or("the call failed");
  Say(fmt::format("callboard: {} ({}; {})", message, v1::OutcomeClass_Name(outcome.class_()),
                  WhatBecame(outcome.certainty())));
  return code;
}

// `slug` checked, so that a tool that does not exist is told with its nearest candidates.
absl::StatusOr<v1::InvokeRequest> MakeRequest(ControlApi& api, const Options& options,
                                              const std::string& arguments) {
  v1::DescribeToolRequest describe;
  describe.set_slug(options.slug);
  auto tool = api.DescribeTool(describe);
  if (!tool.ok()) return tool.status();
  v1::InvokeRequest request;
  request.mutable_target()->set_seat_id(tool->hit().seat_id());
  request.set_method("tools/call");
  core::JsonObject params;
  params.String("name", tool->hit().tool()).Raw("arguments", arguments);
  if (options.progress) {
    params.Raw("_meta", R"({"progressToken":1})");
    request.set_progress_token("1");
  }
  request.set_params(params.Take());
  request.set_client_request_id("1");
  request.set_on_detach(v1::InvokeRequest::CANCEL);
  if (!options.timeout.empty()) {
    absl::Duration timeout;
    if (!absl::ParseDuration(options.timeout, &timeout) || timeout <= absl::ZeroDuration()) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       fmt::format("--timeout {}: expected a duration such as 500ms, 30s or 10m",
                                   options.timeout));
    }
    request.set_run_ms(
        static_cast<uint64_t>(std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout))));
  }
  return request;
}

int Run(const Cli& cli, const Options& options) {
  auto arguments = ReadArguments(options.data);
  if (!arguments.ok()) return Fail(arguments.status());
  CancelOnSignal signals;
  auto connected = ControlApi::Connect(cli.address);
  if (!connected.ok()) return Fail(connected.status());
  std::shared_ptr<ControlApi> api = *std::move(connected);
  auto request = MakeRequest(*api, options, *arguments);
  if (!request.ok()) return Fail(request.status());
  v1::OpenSessionRequest open;
  open.set_principal("cli");
  open.set_revision("2025-11-25");
  open.set_client_info(
      core::JsonObject().String("name", "callboard").String("version", CALLBOARD_VERSION).Take());
  open.set_capabilities("{}");
  open.set_surface("facade");
  auto session = api->OpenSession(open);
  if (!session.ok()) return Fail(session.status());
  request->set_session_id(session->session_id());

  v1::CancelRequest cancel;
  cancel.set_client_request_id("1");
  cancel.set_reason("Ctrl-C");
  v1::SendRequest send;
  send.set_session_id(session->session_id());
  *send.mutable_cancel() = cancel;
  signals.Start([api, send] {
    Say("cancelling; Ctrl-C again ends without waiting for what becomes of the call");
    auto sent = api->Send(send);
    if (!sent.ok())
      Say("the cancel could not be sent: " + std::string(core::Message(sent.status())));
  });

  std::optional<v1::CallOutcome> outcome;
  std::string body;
  const auto status = api->Invoke(*request, [&](const v1::InvokeEvent& event) {
    if (event.has_stream_event() && options.progress) {
      const v1::StreamEvent& note = event.stream_event();
      Say(fmt::format("{} {}", note.method(), note.params()));
    } else if (event.has_status() && options.progress) {
      Say(event.status().message());
    } else if (event.has_outcome()) {
      outcome = event.outcome();
      body = event.outcome().body().inline_();
    } else if (event.has_chunk()) {
      body += event.chunk().bytes();
    }
  });
  v1::SessionRef ref;
  ref.set_session_id(session->session_id());
  (void)api->CloseSession(ref);
  if (!outcome) {
    Say(
        fmt::format("callboard: the connection ended before the call did: {}; it is not known "
                    "whether it ran",
                    core::Message(status)));
    return kExitUnknown;
  }
  return Report(cli, *outcome, body);
}

}  // namespace

void AddCallVerb(CLI::App& app, Cli& cli) {
  auto options = std::make_shared<Options>();
  auto* verb = app.add_subcommand("call", "Run a tool and print its result");
  verb->add_option("slug", options->slug, "<app>.<id8>.<tool>, from 'callboard tools search'")
      ->required();
  verb->add_option("-d,--data", options->data, "Arguments: JSON, @FILE, or - for stdin")
      ->capture_default_str();
  verb->add_option("--timeout", options->timeout, "Run budget, e.g. 30s (default: by the tool)");
  verb->add_flag("--progress", options->progress, "Show progress and state on stderr");
  verb->footer(
      "Examples:\n  callboard call blender.1f2e3d4c.create_object -d '{\"name\":\"ball\"}'\n"
      "  callboard call openusd.1f2e3d4c.render -d @arguments.json --timeout 10m --progress\n"
      "Ctrl-C cancels the call at the seat and tells what became of it. -o json prints the raw\n"
      "result.\n\n" +
      std::string(ExitCodesText()));
  verb->callback([&cli, options] { cli.run = [&cli, options] { return Run(cli, *options); }; });
}

}  // namespace callboard::apps
