// Implementation of SessionAsks.
#include "backend_agent/session_asks.h"

#include <algorithm>

#include "backend_agent/agent.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/milliseconds.h"
#include "fmt/format.h"

namespace callboard::agent {

void SessionAsks::OnLinked(Port& port, const v1::Welcome& welcome) {
  const auto& features = welcome.features();
  port.linked_ = true;
  port.takes_ = std::find(features.begin(), features.end(), kSessionAsksFeature) != features.end();
  port.control_plane_ = welcome.control_plane_id();
}

void SessionAsks::OnUnlinked(Port& port) {
  port.linked_ = false;
  port.waiting_.clear();
  std::vector<Open> cut;
  std::erase_if(open_, [&](const auto& entry) {
    if (entry.second.port != &port) return false;
    cut.push_back(entry.second);
    return true;
  });
  for (const Open& open : cut) {
    Answer(open.seat_id, open.ask, true,
           core::MakeErrorObject(core::kServerError,
                                 "the link to the control plane of the client has ended; whether "
                                 "the client was asked is not known"));
  }
}

void SessionAsks::Ask(Port* port, const std::string& seat_id, uint64_t incarnation, SeatAsk ask) {
  const auto refuse = [&](int code, std::string_view why) {
    Answer(seat_id, ask.number, true, core::MakeErrorObject(code, why));
  };
  if (port == nullptr) {
    return refuse(core::kServerError,
                  fmt::format("the client cannot be asked ({}) now: there is no link to its "
                              "control plane",
                              ask.method));
  }
  if (!port->takes_) {
    return refuse(core::kMethodNotFound,
                  fmt::format("there is no client to pass '{}' to: it belongs to no call, and the "
                              "control plane takes none outside calls; a newer one does",
                              ask.method));
  }
  if (ask.raw_params.size() > kInlineBodyMax) {
    return refuse(core::kServerError,
                  fmt::format("the params of '{}' have {} bytes; outside a call at most {} are "
                              "passed on",
                              ask.method, ask.raw_params.size(), kInlineBodyMax));
  }
  const uint64_t id = ++last_id_;
  open_[id] = {port, seat_id, ask.backend_session, ask.number};
  v1::SessionAsk& item = *port->waiting_.emplace_back().mutable_session_ask();
  item.set_seat_id(seat_id);
  item.set_incarnation(incarnation);
  item.set_backend_session(std::move(ask.backend_session));
  item.set_ask_id(id);
  item.set_method(std::move(ask.method));
  item.mutable_params()->set_inline_(std::move(ask.raw_params));
  item.set_deadline_ms(core::ToMillis(ask.wait));
}

bool SessionAsks::EndOne(const std::string& seat_id, uint64_t ask, std::string raw_params) {
  const auto at = std::find_if(open_.begin(), open_.end(), [&](const auto& entry) {
    return entry.second.ask == ask && entry.second.seat_id == seat_id;
  });
  if (at == open_.end()) return false;
  const auto node = open_.extract(at);
  Withdraw(node.key(), node.mapped(), std::move(raw_params));
  return true;
}

void SessionAsks::EndAllOf(const std::string& seat_id) {
  std::erase_if(open_, [&](const auto& entry) {
    if (entry.second.seat_id != seat_id) return false;
    Withdraw(entry.first, entry.second,
             core::JsonObject().String("reason", "the application is gone").Take());
    return true;
  });
}

void SessionAsks::Withdraw(uint64_t id, const Open& open, std::string raw_params) {
  std::deque<v1::AgentItem>& waiting = open.port->waiting_;
  const size_t unsaid = std::erase_if(waiting, [&](const v1::AgentItem& item) {
    return item.has_session_ask() && item.session_ask().ask_id() == id;
  });
  if (unsaid > 0) return;
  v1::SessionAskCancel& item = *waiting.emplace_back().mutable_session_ask_cancel();
  item.set_seat_id(open.seat_id);
  item.set_backend_session(open.backend_session);
  item.set_ask_id(id);
  // The words of a backend that says too much are of no use to anybody.
  if (raw_params.size() > kInlineBodyMax) raw_params.clear();
  item.mutable_params()->set_inline_(std::move(raw_params));
}

void SessionAsks::OnAnswer(const Port& port, v1::SessionAnswer answer) {
  const auto at = open_.find(answer.ask_id());
  if (at == open_.end() || at->second.port != &port) return;
  const auto node = open_.extract(at);
  const bool is_error = answer.has_error();
  v1::Body& body = is_error ? *answer.mutable_error() : *answer.mutable_result();
  Answer(node.mapped().seat_id, node.mapped().ask, is_error, std::move(*body.mutable_inline_()));
}

void SessionAsks::Answer(const std::string& seat_id, uint64_t ask, bool is_error,
                         std::string text) {
  Seat* seat = find_seat_(seat_id);
  if (seat != nullptr) seat->Answer(ask, is_error, Payload(std::move(text)));
}

void SessionAsks::Fill(Port& port, FrameBuilder& frame) {
  while (!port.waiting_.empty()) {
    if (frame.room() < port.waiting_.front().ByteSizeLong() + kItemOverhead) return;
    frame.Add()->Swap(&port.waiting_.front());
    port.waiting_.pop_front();
  }
}

}  // namespace callboard::agent
