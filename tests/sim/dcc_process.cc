// Implementation of SimDcc.
#include "tests/sim/dcc_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"
#include "tests/sim/sim_backend.h"

namespace callboard::sim {
namespace {

constexpr size_t kPageSize = 4;
constexpr absl::Duration kForever = absl::Seconds(40);

struct Tool {
  std::string_view name;
  std::string_view annotations;
};
constexpr Tool kTools[] = {
    {"echo", R"({"readOnlyHint":true})"},
    {"big", R"({"readOnlyHint":true})"},
    {"idem", R"({"readOnlyHint":false,"idempotentHint":true})"},
    {"count", R"({"readOnlyHint":false,"idempotentHint":false})"},
    {"slow", R"({"readOnlyHint":false})"},
    {"steps", R"({"readOnlyHint":false})"},
    {"redo", R"({"readOnlyHint":false,"idempotentHint":true})"},
    {"forever", R"({"readOnlyHint":false})"},
    {"die", R"({"readOnlyHint":false,"destructiveHint":true})"},
    {"twice", R"({"readOnlyHint":false})"},
    {"junk", R"({"readOnlyHint":false})"},
    {"load_skill", R"({"readOnlyHint":false})"},
    {"ask", R"({"readOnlyHint":false})"},
    {"askfree", R"({"readOnlyHint":true})"},
};

std::string Definition(std::string_view name, std::string_view annotations) {
  return fmt::format(
      R"({{"name":"{0}","description":"Does {0}. Simulated.","inputSchema":{{"type":"object",)"
      R"("properties":{{"nonce":{{"type":"string"}},"call":{{"type":"string"}},)"
      R"("ms":{{"type":"integer"}}}}}},"annotations":{1}}})",
      name, annotations);
}

bool IsReadOnly(std::string_view tool) {
  return tool == "echo" || tool == "big" || tool == "askfree";
}

}  // namespace

bool MayRepeat(std::string_view tool) {
  return IsReadOnly(tool) || tool == "idem" || tool == "redo";
}

bool GoesInSteps(std::string_view tool) { return tool == "steps" || tool == "redo"; }

SimDcc::SimDcc(DccPlace& place, int64_t pid) : place_(place), pid_(pid) {
  for (const Tool& tool : kTools) tools_.push_back(Definition(tool.name, tool.annotations));
  tools_.push_back(Definition("__skill__rigging", "{}"));
  // Each process offers something that its predecessor did not.
  tools_.push_back(Definition(fmt::format("made_by_{}", pid), R"({"readOnlyHint":true})"));
  Tick();
}

SimDcc::~SimDcc() {
  for (const auto& [number, run] : runs_) {
    if (run.begun && !run.tag.empty()) place_.ledger_.Ends(run.tag);
  }
}

void SimDcc::Freeze(absl::Duration duration) {
  place_.trace_.Add(
      fmt::format("{} freezes for {}", place_.name(), absl::FormatDuration(duration)));
  frozen_until_ = std::max(frozen_until_, place_.loop_.Now() + duration);
}

void SimDcc::Detach(uint64_t serial, uint64_t exchange) {
  std::vector<uint64_t> left;
  for (auto& [number, run] : runs_) {
    if (run.serial != serial || run.exchange != exchange || run.tag.empty()) continue;
    place_.ledger_.Detached(run.tag);
    if (place_.kind() == DccKind::kStdio) continue;
    run.detached = true;
    left.push_back(number);
  }
  for (auto& [raw_id, ask] : asks_) {
    const bool of_these = std::find(left.begin(), left.end(), ask.run) != left.end();
    // What has not arrived by now never will; of what has, the agent tells the end.
    if (of_these && !ask.arrived) GiveUp(raw_id, ask);
  }
}

void SimDcc::Reply(uint64_t serial, uint64_t exchange, std::string text, bool last) {
  const auto at = place_.backends_.find(serial);
  if (at != place_.backends_.end()) at->second->Deliver(exchange, std::move(text), last);
}

void SimDcc::Notify(std::string_view method) {
  for (const auto& [serial, backend] : place_.backends_) {
    backend->Deliver(0, core::MakeNotification(method, ""), false);
  }
}

void SimDcc::Receive(uint64_t serial, uint64_t id, std::string_view text) {
  const auto message = core::ParseJsonRpc(text, true);
  if (!message.ok()) {
    place_.trace_.Violate("a backend gets JSON-RPC only", std::string(text.substr(0, 200)));
    return;
  }
  if (message->kind == core::JsonRpcMessage::Kind::kNotification) {
    if (message->method == "notifications/cancelled") Cancel(serial, message->params);
    return;
  }
  if (message->kind != core::JsonRpcMessage::Kind::kRequest) return TakeAnswer(serial, *message);
  std::string result;
  if (message->method == "initialize") {
    peers_[serial] = {.capabilities = std::string(
                          core::FindMember(message->params, "capabilities").value_or("{}")),
                      .connection = ++place_.last_connection_};
    constexpr std::string_view kRevisions[] = {"2025-03-26", "2025-06-18", "2025-11-25"};
    result = fmt::format(
        R"({{"protocolVersion":"{}","capabilities":{{"tools":{{"listChanged":true}},)"
        R"("prompts":{{"listChanged":true}},"resources":{{"subscribe":true}},"logging":{{}}}},)"
        R"("serverInfo":{{"name":"{}","version":"{}"}}}})",
        kRevisions[pid_ % 3], place_.name(), pid_);
  } else if (message->method == "tools/list") {
    result = ToolsPage(message->params);
  } else if (message->method == "ping") {
    result = "{}";
  } else if (message->method == "tools/call") {
    return Call(serial, id, *message);
  } else if (TakeWish(serial, id, *message)) {
    return;
  } else {
    Reply(serial, id, core::MakeErrorResponse(message->id, core::kMethodNotFound, "no such method"),
          true);
    return;
  }
  Reply(serial, id, core::MakeResult(message->id, result), true);
}

std::string SimDcc::ToolsPage(std::string_view params) const {
  size_t from = 0;
  if (const auto cursor = core::FindString(params, "cursor")) {
    from = std::min(tools_.size(), static_cast<size_t>(std::atoi(cursor->c_str())));
  }
  const size_t to = std::min(tools_.size(), from + kPageSize);
  std::string page = R"({"tools":[)";
  for (size_t i = from; i < to; ++i) page.append(i > from ? "," : "").append(tools_[i]);
  page.push_back(']');
  if (to < tools_.size()) page.append(fmt::format(R"(,"nextCursor":"{}")", to));
  return page.append("}");
}

void SimDcc::Call(uint64_t serial, uint64_t exchange, const core::JsonRpcMessage& message) {
  core::Random& random = place_.random_;
  Run run;
  run.serial = serial;
  run.exchange = exchange;
  run.raw_id = std::string(message.id);
  run.tool = core::FindString(message.params, "name").value_or("");
  const auto arguments = core::FindMember(message.params, "arguments").value_or("{}");
  run.nonce = core::FindString(arguments, "nonce").value_or("");
  run.tag = core::FindString(arguments, "call").value_or("");
  if (!run.nonce.empty()) peers_[serial].nonce = run.nonce;
  run.bytes = core::FindInteger(arguments, "bytes").value_or(0);
  run.progress_token = core::FindPath(message.params, {"_meta", "progressToken"}).value_or("");
  run.main_thread = !IsReadOnly(run.tool);
  run.duration = absl::Milliseconds(1 + static_cast<int64_t>(random.Below(60)));
  if (const auto ms = core::FindInteger(arguments, "ms")) run.duration = absl::Milliseconds(*ms);
  if (run.tool == "forever") run.duration = kForever;
  run.steps = GoesInSteps(run.tool) ? 1 + static_cast<int>(random.Below(30)) : 1;
  if (run.tool == "ask" || run.tool == "askfree") {
    run.asks_left = 1 + static_cast<int>(random.Below(4));
    run.asks_at_once = random.Below(3) == 0;
  }

  const uint64_t number = ++last_run_;
  const bool early = GoesInSteps(run.tool) && random.Below(4) == 0;
  if (early) Progress(run, 0);
  const bool waits = run.main_thread;
  runs_.emplace(number, std::move(run));
  if (waits) {
    waiting_.push_back(number);
    Turn();
  } else {
    Begin(number);
  }
}

void SimDcc::Turn() {
  if (on_main_thread_ != 0 || waiting_.empty()) return;
  const absl::Time now = place_.loop_.Now();
  if (now < frozen_until_) {
    turn_timer_ = place_.loop_.At(frozen_until_, [this] { Turn(); });
    return;
  }
  on_main_thread_ = waiting_.front();
  waiting_.pop_front();
  Begin(on_main_thread_);
}

void SimDcc::Begin(uint64_t number) {
  Run& run = runs_.at(number);
  run.begun = true;
  if (!run.tag.empty()) {
    place_.trace_.Add(fmt::format("{} runs {} of {}", place_.name(), run.tool, run.tag));
    place_.ledger_.Begins(run.tag);
  }
  Step(number);
}

void SimDcc::Step(uint64_t number) {
  Run& run = runs_.at(number);
  absl::Duration wait = run.duration / run.steps;
  if (run.main_thread && frozen_until_ > place_.loop_.Now()) {
    wait += frozen_until_ - place_.loop_.Now();
  }
  run.timer = place_.loop_.After(wait, [this, number] {
    Run& at = runs_.at(number);
    if (at.tool == "die" && at.step == 0) {
      place_.Kill("its tool died");
      return;
    }
    if (++at.step < at.steps) {
      Progress(at, at.step);
      if (place_.random_.Below(8) == 0) Log(&at);
      Step(number);
    } else {
      Proceed(number);
    }
  });
}

void SimDcc::Progress(const Run& run, int step) {
  if (run.progress_token.empty()) return;
  Reply(run.serial, run.exchange,
        core::MakeNotification(
            "notifications/progress",
            fmt::format(R"({{"progressToken":{},"progress":{},"total":{},"message":"{} {} {}"}})",
                        run.progress_token, step, run.steps, run.nonce, run.tag, step)),
        false);
}

std::string SimDcc::ResultText(const Run& run) const {
  std::string fill;
  if (run.bytes > 0) {
    fill = fmt::format(R"(,"fill":"{}")", std::string(static_cast<size_t>(run.bytes), 'x'));
  }
  return fmt::format(
      R"({{"content":[{{"type":"text","text":"{0} done"}}],)"
      R"("structuredContent":{{"nonce":"{1}","call":"{2}","tool":"{0}"{3}}},"isError":false}})",
      run.tool, run.nonce, run.tag, fill);
}

void SimDcc::Finish(uint64_t number) {
  const Run& run = runs_.at(number);
  core::Random& random = place_.random_;
  if (run.tool == "load_skill") {
    std::erase_if(tools_, [](const std::string& tool) {
      return tool.find("\"__skill__rigging\"") != std::string::npos;
    });
    if (loaded_.insert("rigging").second) tools_.push_back(Definition("rigging__do", "{}"));
    Notify("notifications/tools/list_changed");
  }
  if (run.tool == "junk") {
    Reply(run.serial, run.exchange, "Traceback (most recent call last):", false);
    Reply(run.serial, run.exchange, core::MakeResult("987654321", "{}"), false);
    Reply(run.serial, run.exchange, R"({"jsonrpc":"2.0","id":7,"method":"roots/list"})", false);
  }
  const std::string answer = core::MakeResult(run.raw_id, ResultText(run));
  const bool late_progress = GoesInSteps(run.tool) && random.Below(4) == 0;
  const bool again = run.tool == "twice";
  Reply(run.serial, run.exchange, answer, !late_progress && !again);
  if (late_progress) {
    Progress(run, run.steps);
    Reply(run.serial, run.exchange, "", true);
  }
  if (again) Reply(run.serial, run.exchange, answer, true);
  AskAsideLater(run.serial);
  Forget(number);
}

void SimDcc::Forget(uint64_t number) {
  const Run& run = runs_.at(number);
  if (run.begun && !run.tag.empty()) place_.ledger_.Ends(run.tag);
  runs_.erase(number);
  std::erase(waiting_, number);
  if (on_main_thread_ == number) {
    on_main_thread_ = 0;
    Turn();
  }
}

void SimDcc::Cancel(uint64_t serial, std::string_view params) {
  const auto id = core::FindMember(params, "requestId");
  if (!id) return;
  for (auto& [number, run] : runs_) {
    if (run.serial != serial || run.raw_id != *id) continue;
    if (!run.tag.empty()) place_.ledger_.CancelReached(run.tag);
    place_.trace_.Add(fmt::format("{} is told to cancel {}", place_.name(), run.tag));
    const uint64_t choice = run.tool == "forever" ? 1 : place_.random_.Below(3);
    if (choice == 0) return;  // goes on
    // With an error or, as the specification has it, without an answer.
    const std::string answer =
        choice == 1 ? core::MakeErrorResponse(run.raw_id, -32800, "cancelled") : std::string();
    Reply(run.serial, run.exchange, answer, true);
    Forget(number);
    return;
  }
}

}  // namespace callboard::sim
