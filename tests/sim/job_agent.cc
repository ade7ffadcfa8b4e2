// Implementation of JobAgent.
#include "tests/sim/job_agent.h"

#include <fmt/format.h>

#include <utility>

#include "backend_agent/frame_builder.h"
#include "core/mcp/json.h"
#include "core/runtime/digest.h"

namespace callboard::sim {
namespace {

constexpr absl::Duration kBeatEvery = absl::Seconds(2);
constexpr absl::Duration kSilenceMax = absl::Seconds(6);

}  // namespace

JobAgent::JobAgent(core::EventLoop& loop, core::Random& random, Trace& trace, Ledger& ledger,
                   AgentNetwork& network)
    : loop_(loop),
      random_(random),
      trace_(trace),
      ledger_(ledger),
      seat_{random.Hex(16), "simdcc", std::string(kName), true},
      agent_id_(random.Hex(16)),
      catalogue_(R"({"tools":[{"name":"job","inputSchema":{"type":"object"},)"
                 R"("annotations":{"readOnlyHint":false}}]})"),
      dialer_(network.MakeDialer(std::string(kName))) {
  Dial();
}

JobAgent::~JobAgent() = default;

// ---- the link -----------------------------------------------------------------------------------

void JobAgent::Dial() {
  waiting_.clear();
  linked_ = writing_ = false;
  received_ = reported_ = 0;
  last_heard_ = loop_.Now();
  link_ = dialer_->Dial("sim-plane");
  link_->Open(this);
  v1::AgentItem item;
  v1::Hello& hello = *item.mutable_hello();
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  hello.set_agent_id(agent_id_);
  hello.set_boot_id("boot");
  hello.set_link_epoch(++epoch_);
  hello.set_journal_id("journal");
  hello.mutable_limits()->set_max_open_calls(1'000);
  hello.mutable_limits()->set_window(64 << 10);
  Say(std::move(item));
  *item.mutable_seat_state() = State();
  Say(std::move(item));
  for (const auto& [call_id, job] : calls_) {
    v1::CallState& state = *item.mutable_call_state();
    state.set_call_id(call_id);
    state.set_attempt(job.attempt);
    state.mutable_seat()->set_seat_id(seat_.seat_id);
    state.mutable_seat()->set_incarnation(1);
    state.set_phase(job.closed ? v1::CallState::FINISHED : v1::CallState::JOB);
    state.set_last_n(job.events.size());
    Say(std::move(item));
  }
  item.mutable_inventory_done();
  Say(std::move(item));
  Beat();
}

void JobAgent::OnClosed(absl::Status) {
  linked_ = false;
  beat_timer_.Cancel();
  const auto wait = absl::Milliseconds(100 + static_cast<int64_t>(random_.Below(2'000)));
  dial_timer_ = loop_.After(wait, [this] { Dial(); });
}

void JobAgent::Beat() {
  beat_timer_ = loop_.After(kBeatEvery, [this] {
    if (loop_.Now() - last_heard_ > kSilenceMax) {
      link_->Close(absl::UnavailableError("nothing heard"));
      return OnClosed(absl::OkStatus());
    }
    if (linked_) {
      v1::AgentItem item;
      item.mutable_heartbeat();
      Say(std::move(item));
    }
    Beat();
  });
}

void JobAgent::Say(v1::AgentItem item) {
  waiting_.push_back(std::move(item));
  if (!flush_timer_.pending()) flush_timer_ = loop_.After({}, [this] { Flush(); });
}

void JobAgent::Flush() {
  if (writing_ && link_->TakeWritten()) writing_ = false;
  if (writing_ || (waiting_.empty() && received_ == reported_)) return;
  v1::AgentFrame frame;
  frame.set_received(reported_ = received_);
  for (v1::AgentItem& item : std::exchange(waiting_, {})) *frame.add_items() = std::move(item);
  writing_ = true;
  link_->Write(std::move(frame));
}

void JobAgent::OnWritten() {
  writing_ = false;
  Flush();
}

void JobAgent::OnMessage(v1::ServerFrame frame) {
  received_ += agent::PacingBytes(frame);
  last_heard_ = loop_.Now();
  for (const v1::ServerItem& item : frame.items()) TakeItem(item);
  if (!flush_timer_.pending()) flush_timer_ = loop_.After({}, [this] { Flush(); });
}

// ---- what the control plane says ----------------------------------------------------------------

void JobAgent::TakeItem(const v1::ServerItem& item) {
  v1::AgentItem reply;
  switch (item.item_case()) {
    case v1::ServerItem::kWelcome:
      linked_ = true;
      return;
    case v1::ServerItem::kPing:
      reply.mutable_pong()->set_token(item.ping().token());
      return Say(std::move(reply));
    case v1::ServerItem::kCatalogueWant:
      reply.mutable_catalogue()->set_seat_id(seat_.seat_id);
      reply.mutable_catalogue()->set_digest(item.catalogue_want().digest());
      reply.mutable_catalogue()->mutable_body()->set_inline_(catalogue_);
      return Say(std::move(reply));
    case v1::ServerItem::kDispatch:
      return TakeDispatch(item.dispatch());
    case v1::ServerItem::kVerdict:
      return TakeVerdict(item.verdict());
    case v1::ServerItem::kSettle:
      for (const std::string& call_id : item.settle().call_id()) Settle(call_id);
      return;
    case v1::ServerItem::kCancel:
      reply.mutable_cancel_ack()->set_call_id(item.cancel().call_id());
      reply.mutable_cancel_ack()->set_effect(v1::CancelAck::CANNOT_STOP);
      return Say(std::move(reply));
    default:
      return;
  }
}

void JobAgent::TakeDispatch(const v1::Dispatch& dispatch) {
  if (dispatch.kind() != v1::Dispatch::REQUEST || calls_.contains(dispatch.call_id())) return;
  Job& job = calls_[dispatch.call_id()];
  job.attempt = dispatch.attempt();
  job.updates_left = static_cast<int>(random_.Below(6));
  const auto arguments = core::FindMember(dispatch.params().inline_(), "arguments").value_or("{}");
  job.tag = core::FindString(arguments, "call").value_or("");
  trace_.Total("jobs");
  trace_.Add(fmt::format("{} starts the job {}", kName, job.tag));
  if (!job.tag.empty()) {
    ledger_.Begins(job.tag);
    ledger_.Ends(job.tag);
  }
  v1::CallEvent started;
  started.set_call_id(dispatch.call_id());
  started.mutable_started()->set_incarnation(1);
  Emit(job, std::move(started));
  v1::CallEvent event;
  event.set_call_id(dispatch.call_id());
  v1::Outcome& outcome = *event.mutable_outcome();
  outcome.set_class_(v1::RESULT);
  outcome.set_certainty(v1::FINISHED);
  outcome.set_open(true);
  outcome.mutable_facts()->set_backend_job_id("job-" + job.tag);
  outcome.mutable_body()->set_inline_(fmt::format(
      R"({{"content":[],"structuredContent":{{"call":"{}","nonce":"{}","status":"pending"}}}})",
      job.tag, core::FindString(arguments, "nonce").value_or("")));
  Emit(job, std::move(event));
  GoOn(dispatch.call_id());
}

void JobAgent::GoOn(const std::string& call_id) {
  const auto wait = absl::Milliseconds(20 + static_cast<int64_t>(random_.Below(4'000)));
  calls_.at(call_id).timer = loop_.After(wait, [this, call_id] {
    Job& job = calls_.at(call_id);
    v1::CallEvent event;
    event.set_call_id(call_id);
    job.closed = --job.updates_left < 0;
    v1::JobEvent& told = job.closed ? *event.mutable_closed() : *event.mutable_job_update();
    told.set_status(job.closed ? "succeeded" : "running");
    told.mutable_body()->set_inline_(R"({"call":")" + job.tag + "\"}");
    Emit(job, std::move(event));
    if (!job.closed) GoOn(std::string(call_id));
  });
}

void JobAgent::Emit(Job& job, v1::CallEvent event) {
  event.set_attempt(job.attempt);
  event.set_n(job.events.size() + 1);
  job.events.push_back(event);
  if (!linked_) return;
  v1::AgentItem item;
  *item.mutable_call_event() = std::move(event);
  Say(std::move(item));
}

void JobAgent::TakeVerdict(const v1::Verdict& verdict) {
  const auto at = calls_.find(verdict.call_id());
  if (at == calls_.end()) return;
  if (verdict.decision() == v1::Verdict::SETTLE) return Settle(verdict.call_id());
  // What cannot be stopped goes on after a CANCEL, too.
  for (const v1::CallEvent& event : at->second.events) {
    if (event.n() <= verdict.have_n()) continue;
    v1::AgentItem item;
    *item.mutable_call_event() = event;
    Say(std::move(item));
  }
}

void JobAgent::Settle(const std::string& call_id) {
  const auto at = calls_.find(call_id);
  if (at == calls_.end()) return;
  if (!at->second.closed) {
    trace_.Violate("a job is settled when it has ended", at->second.tag);
  }
  trace_.Add(fmt::format("the job {} is settled", at->second.tag));
  calls_.erase(at);
}

v1::SeatState JobAgent::State() const {
  v1::SeatState state;
  state.set_seat_id(seat_.seat_id);
  state.set_incarnation(1);
  state.set_name(seat_.name);
  state.set_app(seat_.app);
  state.set_version("1");
  state.set_pid(7);
  state.mutable_health()->set_process(v1::HEALTHY);
  state.mutable_health()->set_endpoint(v1::HEALTHY);
  state.mutable_health()->set_main_thread(v1::HEALTHY);
  state.set_catalogue_digest(core::Sha256Hex(catalogue_));
  state.set_capabilities(R"({"tools":{}})");
  return state;
}

}  // namespace callboard::sim
