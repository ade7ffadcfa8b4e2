// Implementation of AgentOutbox.
#include "server/flows/agent_outbox.h"

#include <algorithm>

namespace callboard::server {
namespace {

constexpr size_t kChunkBytes = 64 << 10;

}  // namespace

bool AgentOutbox::Withdraw(const CallId& call) { return std::erase(dispatches_, call) > 0; }

void AgentOutbox::AddBody(const CallId& call, uint32_t attempt, uint64_t n,
                          std::shared_ptr<const std::string> bytes) {
  bodies_.push_back({call, attempt, n, std::move(bytes), 0, 0, window_});
}

void AgentOutbox::DropBodies(const CallId& call) {
  std::erase_if(bodies_, [&](const OutBody& body) { return body.call == call; });
}

void AgentOutbox::OnAck(const v1::AckEntry& entry) {
  const auto call = CallId::From(entry.call_id());
  if (!call) return;
  for (OutBody& body : bodies_) {
    if (body.call != *call || body.attempt != entry.attempt() || body.n != entry.n()) continue;
    body.acked = std::clamp(entry.offset(), body.acked, body.sent);
    if (entry.window() != 0) body.window = std::min(entry.window(), limits_.window_max);
  }
}

bool AgentOutbox::HasWork(size_t credit) const {
  if (!control_.empty() || !acks_.empty() || !raw_acks_.empty() || settles_due_) return true;
  if (credit == 0) return false;
  return !dispatches_.empty() ||
         std::any_of(bodies_.begin(), bodies_.end(), [](const OutBody& b) { return b.Sendable(); });
}

size_t AgentOutbox::FillControl(v1::ServerFrame& frame) {
  size_t used = 0;
  while (!control_.empty() && used < limits_.frame_bytes_max) {
    used += control_.front().ByteSizeLong();
    *frame.add_items() = std::move(control_.front());
    control_.pop_front();
  }
  if (!acks_.empty() || !raw_acks_.empty()) {
    v1::Ack ack;
    for (const CallId& call : acks_) {
      v1::AckEntry entry;
      if (source_.FillAck(call, entry)) *ack.add_entries() = std::move(entry);
    }
    for (v1::AckEntry& entry : raw_acks_) *ack.add_entries() = std::move(entry);
    acks_.clear();
    raw_acks_.clear();
    if (ack.entries_size() > 0) {
      used += ack.ByteSizeLong();
      *frame.add_items()->mutable_ack() = std::move(ack);
    }
  }
  return used;
}

size_t AgentOutbox::FillDispatches(v1::ServerFrame& frame, size_t room, size_t used) {
  while (!dispatches_.empty() && used < room) {
    const CallId call = dispatches_.front();
    dispatches_.pop_front();
    v1::Dispatch dispatch;
    std::shared_ptr<const std::string> body;
    if (!source_.FillDispatch(call, dispatch, body)) continue;
    if (body != nullptr) AddBody(call, dispatch.attempt(), 0, std::move(body));
    used += dispatch.ByteSizeLong();
    *frame.add_items()->mutable_dispatch() = std::move(dispatch);
  }
  return used;
}

void AgentOutbox::FillBodies(v1::ServerFrame& frame, size_t room, size_t used) {
  size_t passed_over = 0;
  while (used < room && passed_over < bodies_.size()) {
    OutBody body = std::move(bodies_.front());
    bodies_.pop_front();
    if (body.Sendable()) {
      passed_over = 0;
      v1::Chunk& chunk = *frame.add_items()->mutable_chunk();
      chunk.set_call_id(body.call.str());
      chunk.set_attempt(body.attempt);
      chunk.set_n(body.n);
      chunk.set_offset(body.sent);
      chunk.set_bytes(body.bytes->substr(body.sent, kChunkBytes));
      body.sent += chunk.bytes().size();
      used += chunk.bytes().size() + 64;
    } else {
      ++passed_over;
    }
    // The agent keeps what it was sent: the last byte written ends our part.
    if (body.sent < body.bytes->size()) bodies_.push_back(std::move(body));
  }
}

void AgentOutbox::Fill(v1::ServerFrame& frame, size_t credit, size_t share) {
  size_t used = FillControl(frame);
  if (credit > 0) {
    const size_t room = std::min(limits_.frame_bytes_max, used + std::min(credit, share));
    used = FillDispatches(frame, room, used);
    FillBodies(frame, room, used);
  }
  if (!settles_.empty() && (settles_due_ || frame.items_size() > 0)) {
    v1::Settle& settle = *frame.add_items()->mutable_settle();
    settle.set_owner_term(term_);
    for (std::string& call : settles_) settle.add_call_id(std::move(call));
    settles_.clear();
  }
  settles_due_ = false;
}

}  // namespace callboard::server
