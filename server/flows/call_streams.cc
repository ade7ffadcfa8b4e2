// CallFlow, towards readers: streams of calls, their statuses, the bodies of outcomes.
#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/json_number.h"
#include "core/runtime/milliseconds.h"
#include "fmt/format.h"
#include "server/flows/call_flow.h"
#include "server/flows/invoke_source.h"

namespace callboard::server {
namespace {

// A queued call's place is told when it changes, and at least this often: clients measure silence.
constexpr absl::Duration kNoteEvery = absl::Seconds(5);
constexpr absl::Duration kFirstNoteAfter = absl::Milliseconds(250);  // a short wait is no news
// The store is told of a session's next stream once in so many.
constexpr uint64_t kStreamsReserved = 31;
constexpr std::string_view kProgress = "notifications/progress";

}  // namespace

// ---- streams ------------------------------------------------------------------------------------

bool CallFlow::OpenStream(LiveCall& call) {
  if (call.stream != nullptr) return true;
  if (call.request.never_open_stream() || call.source == nullptr || call.ended) return false;
  call.accept_at = absl::InfiniteFuture();
  std::shared_ptr<Stream> stream;
  if (Session* session = plane_.sessions.Find(call.request.session_id())) {
    stream = plane_.sessions.AddStream(*session, call.id.str());
    if (session->next_stream > session->reserved_streams) {
      session->reserved_streams = session->next_stream + kStreamsReserved;
      durable_.TouchSession(*session);
    }
  } else {
    stream = plane_.sessions.MakeLooseStream();
    stream->call_id = call.id.str();
  }
  if (stream == nullptr) {  // too many: the call goes on with its outcome alone
    call.request.set_never_open_stream(true);
    return false;
  }
  call.stream = stream;
  if (!stream->session_id.empty()) {
    // In this order: the call's record says that there is a stream.
    Record(call);
    durable_.Announce(*stream);
  }
  ShowStatus(call);
  call.source->Accept(std::move(stream), plane_.term, AcceptanceOf(call));
  return true;
}

void CallFlow::AcceptInTime(LiveCall& call) {
  call.accept_at = absl::InfiniteFuture();
  if (call.request.open_stream_after_ms() != 0) {
    call.accept_at = Now() + core::FromMillis(call.request.open_stream_after_ms());
  } else if (!call.request.never_open_stream()) {
    OpenStream(call);
  }
}

v1::Accepted CallFlow::AcceptanceOf(const CallId& id) const {
  if (const LiveCall* call = Find(id); call != nullptr && !call->ended) return AcceptanceOf(*call);
  v1::Accepted accepted;
  accepted.set_call_id(id.str());
  return accepted;
}

v1::Accepted CallFlow::AcceptanceOf(const LiveCall& call) const {
  v1::Accepted accepted;
  accepted.set_call_id(call.id.str());
  accepted.set_hard_ms(core::ToMillis(call.hard_at - Now()));
  if (call.run_budget > plane_.config.budgets.heavy_call) {
    accepted.set_long_run_ms(core::ToMillis(call.run_budget));
  }
  return accepted;
}

void CallFlow::Publish(LiveCall& call, uint64_t n, const std::string& method, std::string params) {
  if (call.ended || !OpenStream(call)) return AckLater(call);
  if (method == kProgress && !Grows(call, params)) return AckLater(call);
  v1::StreamEvent event;
  event.set_method(method);
  event.set_params(std::move(params));
  // Of progress the last is enough.
  const auto wait = method == kProgress ? DurableLog::Wait::kNo : DurableLog::Wait::kDurable;
  durable_.Append(*call.stream, {std::move(event), n, call.attempt}, wait);
  // Without a reader it is stored, which counts as consumed.
  if (call.stream->reader == nullptr) AckLater(call);
}

// A tool that begins anew, in another attempt, begins to count anew, too. MCP wants progress to
// grow with every notification, so nothing of it is told until it is further than it was.
bool CallFlow::Grows(LiveCall& call, std::string_view params) {
  const auto value = core::FindMember(params, "progress");
  if (!value || !core::IsNumber(*value)) return true;  // the client's to judge
  if (call.progress_muted) return false;
  if (!call.shown_progress.empty() && core::CompareNumbers(*value, call.shown_progress) <= 0) {
    return false;
  }
  call.shown_progress = *value;
  return true;
}

// A stream shows more: what is durable may be acknowledged.
void CallFlow::OnReadable(Stream& stream) {
  const auto id = CallId::From(stream.call_id);
  LiveCall* call = id ? Find(*id) : nullptr;
  if (call != nullptr && call->goes_on() && stream.reader == nullptr) AckLater(*call);
}

void CallFlow::WakeReader(LiveCall& call) {
  if (call.stream != nullptr) {
    if (call.stream->reader != nullptr) call.stream->reader->Wake();
  } else if (call.source != nullptr) {
    call.source->WakeBody();
  }
}

bool CallFlow::IsRead(const LiveCall& call) {
  if (call.body.size == 0) return false;
  return call.stream != nullptr ? call.stream->reader != nullptr : call.source != nullptr;
}

void CallFlow::SetPhase(LiveCall& call, v1::CallPhase phase, std::string message) {
  Execution* record = plane_.executions.Find(call.id);
  if (call.ended || record == nullptr) return;
  plane_.executions.SetPhase(*record, phase, Now());
  record->ahead = phase == v1::CALL_QUEUED ? call.ahead : 0;
  record->message = std::move(message);
  if (call.stream != nullptr) ShowStatusSoon(call);
}

StreamReader* CallFlow::StatusReaderOf(const LiveCall& call) {
  if (call.source != nullptr) return call.source;
  StreamReader* const reader = call.stream == nullptr ? nullptr : call.stream->reader;
  return reader != nullptr && reader->wants_status() ? reader : nullptr;
}

void CallFlow::ShowStatusSoon(const CallId& id) {
  if (LiveCall* call = Find(id)) ShowStatusSoon(*call);
}

void CallFlow::ShowStatusSoon(LiveCall& call) {
  if (StatusReaderOf(call) == nullptr) return;
  if (Now() >= call.last_status + LiveCall::kStatusEvery) return ShowStatus(call);
  call.status_at = call.last_status + LiveCall::kStatusEvery;
  Arm(call);
}

void CallFlow::ShowStatus(LiveCall& call) {
  call.status_at = absl::InfiniteFuture();
  const Execution* record = plane_.executions.Find(call.id);
  StreamReader* const reader = StatusReaderOf(call);
  if (call.ended || reader == nullptr || record == nullptr) return;
  call.last_status = Now();
  v1::CallStatus status;
  status.set_phase(record->phase);
  status.set_ahead(record->ahead);
  status.set_attempt(call.tries());
  status.set_attempts_max(call.idempotent ? 3 : 1);
  status.set_message(record->message);
  reader->SetStatus(std::move(status));
}

void CallFlow::NoteSoon(LiveCall& call) {
  if (!call.request.progress_token().empty() && !call.ever_started) {
    call.note_at = std::max(Now() + kFirstNoteAfter, call.last_note + LiveCall::kStatusEvery);
  }
  Arm(call);
}

void CallFlow::NoteQueue(LiveCall& call) {
  const bool away = agents_->LinkOf(call.agent_id) == nullptr;
  const bool waits = call.queued || away;
  call.note_at = waits ? Now() + kNoteEvery : absl::InfiniteFuture();
  // On its way to the agent again, or its tool has told progress in another attempt.
  if (!waits || call.ever_started || call.former) return;
  call.last_note = Now();
  ++call.notes;
  std::string message = away              ? "waiting for the seat's agent to connect"
                        : call.ahead == 0 ? std::string("queued: next in line")
                                          : fmt::format("queued: {} before this call", call.ahead);
  const SeatRecord* seat = plane_.seats.Find(call.seat_id);
  if (!away && seat != nullptr && seat->state.running_size() > 0) {
    const auto running = CallId::From(seat->state.running(0));
    const Execution* other = running ? plane_.executions.Find(*running) : nullptr;
    if (other != nullptr && !other->over() && other->started <= Now()) {
      message += fmt::format("; {} is busy with '{}' for {:.0f} s", seat->display_name,
                             other->tool.empty() ? other->method : other->tool,
                             absl::ToDoubleSeconds(Now() - other->started));
    }
  }
  // Progress has to grow with every note, and the tool's own begins at 0: so from -1 towards 0.
  std::string params =
      fmt::format(R"({{"progressToken":{},"progress":{:.6g},"message":{}}})",
                  call.request.progress_token(), -1.0 / call.notes, core::QuoteJson(message));
  Publish(call, 0, std::string(kProgress), std::move(params));
}

// ---- what the sources ask for -------------------------------------------------------------------

std::optional<CallFlow::Piece> CallFlow::TakePiece(const CallId& id) {
  LiveCall* call = Find(id);
  if (call == nullptr || call->body.pieces.empty() || call->body.restarting) return std::nullopt;
  Piece piece;
  piece.bytes = std::move(call->body.pieces.front());
  call->body.pieces.pop_front();
  call->body.taken += piece.bytes.size();
  piece.last = call->body.taken == call->body.size;
  return piece;
}

CallFlow::BodyState CallFlow::StateOfBody(const CallId& id) const {
  const LiveCall* call = Find(id);
  if (call == nullptr || call->body.lost || call->body.size == 0) return BodyState::kGone;
  return call->body.restarting ? BodyState::kComing : BodyState::kReady;
}

CallFlow::BodyState CallFlow::PrepareBody(const CallId& id) {
  LiveCall* call = Find(id);
  const BodyState state = StateOfBody(id);
  if (state != BodyState::kReady || (call->body.taken == 0 && !call->body.elsewhere)) return state;
  // A part has gone to a reader that is no more, or was kept: from the start, then.
  call->body.pieces.clear();
  call->body.received = call->body.taken = call->body.consumed = 0;
  call->body.elsewhere = false;
  call->body.restarting = true;
  call->acked_offset = 0;
  if (AgentSession* link = agents_->LinkOf(call->agent_id)) {
    Continue(*link, *call);
    link->ScheduleFlush();
  }
  return BodyState::kComing;
}

void CallFlow::OnConsumed(const CallId& id, uint64_t body_bytes) {
  LiveCall* call = Find(id);
  if (call == nullptr) return;
  if (body_bytes > 0) {
    call->body.consumed += body_bytes;
    call->window_used += body_bytes;
    const uint32_t most = plane_.config.limits.window_max;
    if (call->window_used >= call->window && call->window < most) {
      call->window = std::min(2 * call->window, most);
      call->window_used = 0;
      call->window_changed = true;
    }
  } else if (call->outcome_seen && call->body.size == 0) {
    return;  // a small outcome: settled, not acknowledged
  }
  AckLater(*call);
}

}  // namespace callboard::server
