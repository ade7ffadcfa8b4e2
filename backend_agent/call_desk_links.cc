// CallDesk and its links: inventories, who owns a call, and what goes into frames.
#include <algorithm>
#include <utility>

#include "backend_agent/call_desk.h"

namespace callboard::agent {
namespace {

constexpr size_t kTurnBytes = 64 * 1024;
// Heartbeats after which the late end of a settled call is taken as delivered.
constexpr int kBeatsToLinger = 2;

}  // namespace

v1::CallState CallDesk::StateOf(const Call& call) {
  v1::CallState state;
  state.set_call_id(call.call_id);
  state.set_attempt(call.attempt);
  state.mutable_seat()->set_seat_id(call.seat_id);
  state.mutable_seat()->set_incarnation(call.incarnation);
  state.set_owner_plane(call.owner_plane);
  if (!call.backend_job.empty()) {
    state.set_phase(v1::CallState::JOB);
  } else if (call.ended) {
    state.set_phase(v1::CallState::FINISHED);
  } else {
    state.set_phase(call.started ? v1::CallState::RUNNING : v1::CallState::QUEUED);
  }
  state.set_last_n(call.outbox.last_n());
  state.set_backend_job(call.backend_job);
  return state;
}

void CallDesk::AppendInventory(std::deque<v1::AgentItem>& items) const {
  for (const Call* call : InOrder()) *items.emplace_back().mutable_call_state() = StateOf(*call);
}

void CallDesk::OnLinked(Port& port, const v1::Welcome& welcome) {
  port.plane_ = welcome.control_plane_id();
  linked_.push_back(&port);
  OnSettings(port, welcome.limits());
}

void CallDesk::OnSettings(Port& port, const v1::LinkLimits& limits) {
  port.window_ = limits.window() != 0 ? limits.window() : limits_.window;
  port.result_bytes_max_ =
      limits.result_bytes_max() != 0 ? limits.result_bytes_max() : limits_.result_bytes_max;
}

void CallDesk::OnUnlinked(Port& port) {
  std::erase(linked_, &port);
  port.ready_.clear();
  port.acks_due_.clear();
  for (Call* call : InOrder()) {
    if (call->port == &port) {
      call->in_ready = false;
      Unbind(*call);
      // Missing in the inventory and never started: the control plane sends it again.
      if (call->collecting != nullptr) {
        Forget(*call);
        continue;
      }
    }
    if (call->owner_plane != port.plane_) continue;
    for (Port* other : linked_) {
      v1::AgentItem item;
      *item.mutable_call_state() = StateOf(*call);
      other->SendControl(std::move(item));
    }
  }
}

void CallDesk::Bind(Call& call, Port& port, uint64_t have_n, uint64_t have_offset) {
  if (call.port != &port) Unbind(call);
  call.port = &port;
  call.result_bytes_max = port.result_bytes_max_;
  call.outbox.Attach(have_n, have_offset, port.window_);
  MakeReady(call);
}

void CallDesk::Unbind(Call& call) {
  if (call.port == nullptr) return;
  if (std::exchange(call.in_ready, false)) std::erase(call.port->ready_, &call);
  call.ack_due = false;
  call.port = nullptr;
  call.outbox.Detach();
}

// ---- who owns a call ----------------------------------------------------------------------------

CallDesk::Call* CallDesk::FindOwned(const Port& port, std::string_view call_id) {
  Call* call = Find(call_id);
  if (call == nullptr || call->port == &port || call->owner_plane == port.plane_) return call;
  return nullptr;
}

bool CallDesk::MayOwn(const Port& port, const Call& call, uint64_t term) {
  return term > call.owner_term || (term == call.owner_term && call.owner_plane == port.plane_);
}

// ---- writing ------------------------------------------------------------------------------------

bool CallDesk::HasCalls(const Port& port) const {
  return std::any_of(calls_.begin(), calls_.end(),
                     [&port](const auto& entry) { return entry.second->port == &port; });
}

void CallDesk::FillAcks(Port& port, FrameBuilder& frame) {
  if (port.acks_due_.empty()) return;
  v1::Ack* ack = nullptr;
  for (const std::string& call_id : port.acks_due_) {
    Call* call = Find(call_id);
    if (call == nullptr || call->port != &port || !std::exchange(call->ack_due, false)) continue;
    if (ack == nullptr) ack = frame.Add()->mutable_ack();
    v1::AckEntry* entry = ack->add_entries();
    entry->set_call_id(call_id);
    entry->set_attempt(call->attempt);
    // All parameters have come once nothing is collected any more.
    const Collecting* collecting = call->collecting.get();
    entry->set_offset(collecting != nullptr ? collecting->acknowledged : call->params_size);
    if (collecting != nullptr && collecting->window > port.window_) {
      entry->set_window(collecting->window);
    }
  }
  port.acks_due_.clear();
}

bool CallDesk::Line(Call& call) {
  if (call.port == nullptr || !call.outbox.CanSend()) return false;
  if (!std::exchange(call.in_ready, true)) call.port->ready_.push_back(&call);
  return true;
}

void CallDesk::MakeReady(Call& call) {
  if (Line(call)) call.port->Wake();
}

void CallDesk::MakeReadySoon(Call& call) {
  if (Line(call)) call.port->WakeSoon();
}

void CallDesk::FillEvents(Port& port, FrameBuilder& frame) {
  std::deque<Call*>& ready = port.ready_;
  while (!ready.empty()) {
    Call* call = ready.front();
    ready.pop_front();
    call->in_ready = false;
    const bool has_room = call->outbox.Fill(frame, call->call_id, call->attempt, kTurnBytes);
    if (call->outbox.CanSend()) {
      call->in_ready = true;
      if (has_room) {
        ready.push_back(call);
      } else {
        ready.push_front(call);
      }
    }
    if (!has_room) return;
  }
}

void CallDesk::Beat(Port& port, v1::Heartbeat& heartbeat) {
  for (Call* call : InOrder()) {
    if (call->started && !call->over()) heartbeat.add_running(call->call_id);
    const bool lingers =
        call->settled && call->over() && call->port == &port && call->outbox.drained();
    if (lingers && ++call->beats_after_late_end > kBeatsToLinger) ForgetSettled(*call);
  }
}

}  // namespace callboard::agent
