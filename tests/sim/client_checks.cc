// SimClient: what it checks of everything it is told.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <utility>

#include "core/mcp/json.h"
#include "tests/sim/client_request.h"
#include "tests/sim/sim_client.h"

namespace callboard::sim {
namespace {

// Three numbers with dots between.
bool SplitId(std::string_view text, uint64_t (&parts)[3]) {
  for (int i = 0; i < 3; ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parts[i]);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (i == 2) break;
    if (!text.starts_with('.')) return false;
    text.remove_prefix(1);
  }
  return text.empty();
}

// Every value of a string member `key`, wherever it stands.
template <class Fn>
void ForEachText(std::string_view text, std::string_view key, Fn fn) {
  // Results that the facade embeds in a text have their quotes escaped.
  for (const std::string_view quote : {"\"", "\\\""}) {
    const std::string start = fmt::format("{0}{1}{0}:{0}", quote, key);
    size_t from = 0;
    while ((from = text.find(start, from)) != std::string_view::npos) {
      from += start.size();
      fn(text.substr(from, text.find_first_of("\"\\", from) - from));
    }
  }
}

}  // namespace

// False: this connection is of no more interest.
bool SimClient::OnItem(uint64_t key, SseItem item) {
  const auto at = requests_.find(key);
  if (at == requests_.end()) return false;
  Request& request = *at->second;
  if (!session_ || request.session != session_->nonce || request.kind == Kind::kRude) return false;
  if (item.is_comment) {
    if (item.text.starts_with("draining")) request.told_of_drain = true;
    if (item.text.starts_with("gap")) {
      request.gap = true;
      if (request.kind == Kind::kListen) HearAll();
      world_.trace.Add(fmt::format("{}: {}", name(), item.text));
      world_.trace.Total("gaps");
    }
    return true;
  }
  // One that was not open yet when the end began has this alone.
  if (item.event == "close") request.told_of_drain = true;
  if (item.id) CheckId(request, item);
  if (item.text.empty() || item.event == "close") return true;
  TakeMessage(item.text, request.kind, request.call);
  return requests_.count(key) > 0;
}

void SimClient::CheckId(Request& request, const SseItem& item) {
  uint64_t parts[3] = {};
  if (!SplitId(*item.id, parts)) {
    world_.trace.Violate("event ids are stream.term.number", *item.id);
    return;
  }
  Cursor& cursor = session_->streams[parts[0]];
  const bool newer = std::pair(parts[1], parts[2]) > std::pair(cursor.term, cursor.n);
  // A priming event has no data: it names where the stream stands. So does the last event of a
  // stream that the client is to come back to.
  const bool priming = item.text.empty() || item.event == "close";
  const bool older = std::pair(parts[1], parts[2]) < std::pair(cursor.term, cursor.n);
  if (item.event == "close" && cursor.seen && older) {
    world_.trace.Violate(
        "a stream that is closed names its last event",
        fmt::format("{}: {} after {}.{}", session_->nonce, *item.id, cursor.term, cursor.n));
  }
  if (cursor.seen && !newer && !priming) {
    world_.trace.Violate(
        "no event comes twice or out of order",
        fmt::format("{}: {} after {}.{}", session_->nonce, *item.id, cursor.term, cursor.n));
  }
  if (cursor.seen && newer && parts[1] == cursor.term && parts[2] != cursor.n + 1 && !request.gap &&
      !priming) {
    world_.trace.Violate(
        "no event is missing without a gap being told",
        fmt::format("{}: {} after {}.{}", session_->nonce, *item.id, cursor.term, cursor.n));
  }
  request.gap = false;
  cursor = {true, parts[1], parts[2]};
  if (request.kind == Kind::kListen) {
    if (parts[0] != 0) {
      world_.trace.Violate("the GET stream carries stream 0 only", *item.id);
    }
    session_->listen_id = *item.id;
    return;
  }
  const auto at = calls_.find(request.call);
  if (at == calls_.end()) return;
  at->second.last_id = *item.id;
  at->second.last_term = parts[1];
}

void SimClient::TakeMessage(std::string_view text, Kind kind, uint64_t call) {
  const auto message = core::ParseJsonRpc(text, true);
  if (!message.ok()) {
    world_.trace.Violate("clients get JSON-RPC only", text.substr(0, 200));
    return;
  }
  world_.trace.Total("messages");
  switch (message->kind) {
    case core::JsonRpcMessage::Kind::kNotification:
      if (message->method == "notifications/progress") return TakeProgress(*message, kind, call);
      return TakeNotice(*message, kind, call);
    case core::JsonRpcMessage::Kind::kRequest:
      return TakeAsk(*message, kind, call);
    case core::JsonRpcMessage::Kind::kResult:
    case core::JsonRpcMessage::Kind::kError:
      return TakeAnswer(*message, kind, call);
  }
}

void SimClient::TakeProgress(const core::JsonRpcMessage& message, Kind kind, uint64_t key) {
  const std::string token = core::FindString(message.params, "progressToken").value_or("");
  const std::string words = core::FindString(message.params, "message").value_or("");
  const auto at = calls_.find(key);
  const bool on_call = kind == Kind::kCall || kind == Kind::kResume;
  const bool of_queue =
      words.starts_with("queued: ") || words.starts_with("waiting for the seat's agent");
  if (!on_call || at == calls_.end() || at->second.tag != token || !at->second.wants_progress ||
      (!of_queue && !words.starts_with(fmt::format("{} {} ", at->second.nonce, token)))) {
    world_.trace.Violate("nothing reaches another session or call",
                         fmt::format("{} gets progress '{}' for '{}'", name(), words, token));
    return;
  }
  Call& call = at->second;
  if (of_queue) return TakeQueueNote(message, call);
  const int step = static_cast<int>(core::FindInteger(message.params, "progress").value_or(-1));
  world_.trace.Add(fmt::format("{} progresses to {}", call.tag, step));
  if (call.answered) world_.trace.Violate("nothing comes after the end of a call", call.tag);
  // After a restart the last one may be told again; a value never falls. What the former control
  // plane told may come in late.
  const bool again = step == call.last_step && call.step_term != call.last_term;
  call.step_term = call.last_term;
  if (step <= call.last_step && !again) {
    world_.trace.Violate("progress only grows",
                         fmt::format("{}: {} after {}", call.tag, step, call.last_step));
  }
  call.last_step = step;
}

// Its place in the queue, told as progress below 0, where the tool's own begins.
void SimClient::TakeQueueNote(const core::JsonRpcMessage& message, Call& call) {
  const auto text = core::FindMember(message.params, "progress").value_or("0");
  const double value = std::strtod(std::string(text).c_str(), nullptr);
  world_.trace.Add(fmt::format("{} waits at {}", call.tag, value));
  if (call.answered) world_.trace.Violate("nothing comes after the end of a call", call.tag);
  if (value >= 0 || value <= call.last_note || call.last_step >= 0) {
    world_.trace.Violate("progress only grows", fmt::format("{}: {} after {} and {}", call.tag,
                                                            value, call.last_note, call.last_step));
  }
  call.last_note = value;
}

void SimClient::TakeAnswer(const core::JsonRpcMessage& message, Kind kind, uint64_t key) {
  const auto at = calls_.find(key);
  const bool on_call = kind == Kind::kCall || kind == Kind::kResume || kind == Kind::kBatch;
  if (!on_call || at == calls_.end() || fmt::format("{}", at->second.id) != message.id) {
    world_.trace.Violate("an answer goes to its own request",
                         fmt::format("{} gets an answer to {}", name(), message.id));
    return;
  }
  Call& call = at->second;
  if (call.answered) {
    world_.trace.Violate("every request ends exactly once", call.tag + " is answered twice");
    return;
  }
  call.answered = true;
  const bool result = message.kind == core::JsonRpcMessage::Kind::kResult;
  const std::string_view text = result ? message.result : message.error;
  CheckOwn(text, call);
  // It takes too long for its client, and goes on. Older revisions have it as a text only.
  const bool job =
      result && (text.find(R"("next_step":{"tool":"jobs_wait")") != std::string_view::npos ||
                 text.find(R"(\"next_step\":{\"tool\":\"jobs_wait\")") != std::string_view::npos);
  if (job) {
    world_.trace.Total("jobs made of long calls");
    if (!on_facade() || call.wants_progress) {
      world_.trace.Violate("only calls of the facade without progress become jobs", call.tag);
    }
  }
  const bool good = result && !job && text.find(R"("isError":true)") == std::string_view::npos;
  std::string how = good ? "result" : job ? "job" : "tool error";
  if (!result) {
    how = core::FindPath(text, {"data", "reason"}).value_or("error without a reason");
    world_.trace.Total("errors");
  }
  world_.trace.Total("answers");
  if (good && !call.facade_answer) {
    if (text.find(call.tag) == std::string_view::npos) {
      world_.trace.Violate("a result is the tool's own",
                           fmt::format("{}: {}", call.tag, text.substr(0, 300)));
    }
    if (text.size() < static_cast<size_t>(call.bytes)) {
      world_.trace.Violate("a result is whole",
                           fmt::format("{} has {} bytes of {}", call.tag, text.size(), call.bytes));
    }
    if (world_.ledger.Of(call.tag).runs == 0) {
      world_.trace.Violate("what has a result has run", call.tag);
    }
  }
  if (!call.wish.empty()) {
    OnWishEnd(call, good);
    call.wish.clear();
  }
  auto done = std::exchange(call.done, nullptr);
  EndCall(call, how);
  if (done != nullptr) done(good);
}

void SimClient::CheckOwn(std::string_view text, const Call& call) {
  ForEachText(text, "nonce", [&](std::string_view nonce) {
    // Without a nonce: what the facade itself asked for.
    if (!nonce.empty() && nonce != call.nonce) {
      world_.trace.Violate("nothing reaches another session",
                           fmt::format("{} gets what belongs to {}", call.tag, nonce));
    }
  });
  if (call.facade_answer) return;
  ForEachText(text, "call", [&](std::string_view tag) {
    if (tag != call.tag) {
      world_.trace.Violate("nothing reaches another call",
                           fmt::format("{} gets what belongs to {}", call.tag, tag));
    }
  });
}

}  // namespace callboard::sim
