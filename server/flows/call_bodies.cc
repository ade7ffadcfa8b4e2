// CallFlow, large bodies of outcomes that are kept: asked of agents, and what follows from them.
#include <string>

#include "server/flows/call_flow.h"

namespace callboard::server {

void CallFlow::PullBody(const CallId& id) {
  LiveCall* call = Find(id);
  if (call != nullptr && IsRead(*call)) return;
  const auto wanted = bodies_.Pull(id);
  if (!wanted) return;
  AgentSession* link = agents_->LinkOf(wanted->place.agent_id);
  if (link == nullptr) return bodies_.OnLinkDown(wanted->place.agent_id);
  if (call != nullptr) call->body.elsewhere = true;
  AddVerdict(*link, id, wanted->place.attempt, v1::Verdict::CONTINUE, wanted->place.n - 1,
             wanted->offset);
  link->ScheduleFlush();
}

void CallFlow::OnBodyWritten(const CallId& id, const KeptBodies::Wanted& wanted) {
  AgentSession* link = agents_->LinkOf(wanted.place.agent_id);
  if (link == nullptr) return;
  v1::AckEntry entry;
  entry.set_call_id(id.str());
  entry.set_attempt(wanted.place.attempt);
  entry.set_n(wanted.place.n - 1);
  entry.set_offset(wanted.offset);
  entry.set_window(KeptBodies::kWindow);
  link->outbox().AckRaw(std::move(entry));
  link->ScheduleFlush();
}

void CallFlow::OnBodyOver(const CallId& id, const std::string& why) {
  Execution* record = plane_.executions.Find(id);
  if (record == nullptr) return;
  if (!why.empty()) receipts_.LoseBody(*record, why);
  if (record->settle_wanted && record->receipt_durable) OnReceipt(*record);
}

void CallFlow::SweepBodies() {
  for (const auto& [id, agent_id] : bodies_.Sweep()) {
    if (agents_->LinkOf(agent_id) != nullptr) {
      PullBody(id);
    } else if (plane_.seats.SeatsOf(agent_id).empty()) {
      bodies_.Lose(id, "its agent did not come back");
    }
  }
}

}  // namespace callboard::server
