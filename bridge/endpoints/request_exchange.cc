// Implementation of RequestExchange.
#include "bridge/endpoints/request_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "bridge/errors.h"
#include "bridge/facade/rendering.h"
#include "bridge/lasting_listen.h"
#include "bridge/modern_result.h"
#include "bridge/task_view.h"
#include "core/runtime/milliseconds.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::bridge {
namespace {

// A control plane whose store fails keeps no call as a job; it is asked again that much later.
constexpr absl::Duration kKeepAgainAfter = absl::Seconds(5);
// A call has at most so many open; those that were answered count for little.
constexpr size_t kSharedAsksMax = 1'024;

bool IsFailure(const v1::CallOutcome& outcome) {
  if (outcome.body().content_case() == v1::Body::kSize) return false;
  return outcome.class_() == v1::RPC_ERROR || outcome.class_() == v1::REJECTED ||
         (outcome.class_() == v1::RESULT && outcome.facts().is_error());
}

}  // namespace

RequestExchange::RequestExchange(BridgeCore& core, RequestSpec spec)
    : Exchange(core.exchanges, spec.answer),
      core_(core),
      spec_(std::move(spec)),
      hard_wait_(core.config.unary_wait),
      started_(core.loop.Now()),
      heard_(started_),
      sse_(core.loop, core.random, core.config, core.gauges, answer_),
      states_(core.loop, sse_, spec_.status_wish),
      out_(spec_.stream == nullptr ? sse_ : *spec_.stream) {
  Restart(hard_wait_);
  if (!spec_.collect && spec_.stream == nullptr) WatchPeer();
}

void RequestExchange::Invoke(v1::InvokeRequest request, std::string instance, std::string slug) {
  instance_ = std::move(instance);
  slug_ = std::move(slug);
  request.set_session_id(spec_.session_id);
  request.set_client_request_id(spec_.raw_id);
  may_stream_ = out_.open() || (!spec_.collect && spec_.accepts_events &&
                                StreamSlot::HasRoom(core_, spec_.session_id));
  if (!may_stream_ && !spec_.collect && spec_.accepts_events && !request.progress_token().empty()) {
    return RefuseForProgress();
  }
  // Clients show progress with their own patience; of all others many give up after a minute.
  const bool as_task = becomes_task() && request.method() == "tools/call";
  const bool may_become_job = (spec_.on_facade || as_task) && request.progress_token().empty();
  const absl::Duration patience = as_task ? core_.config.task_after : core_.config.envelope_after;
  const absl::Duration job_after =
      std::max(patience - (core_.loop.Now() - started_), absl::ZeroDuration());
  // Where no stream may be opened, its acceptance only tells the call's id and its budgets.
  request.set_open_stream_after_ms(static_cast<uint64_t>(
      absl::ToInt64Milliseconds(may_stream_ ? core_.config.open_stream_after : job_after)));
  request.set_never_open_stream(!may_stream_ && !may_become_job);
  if (may_become_job) {
    job_timer_ = core_.loop.After(job_after, [this] {
      job_due_ = true;
      BecomeJob();
    });
  }
  kept_ = !spec_.modern || may_become_job;
  request.set_on_detach(kept_ ? v1::InvokeRequest::KEEP : v1::InvokeRequest::CANCEL);
  if (spec_.modern) {
    request.set_log_level(spec_.modern->client.log_level());
    *request.mutable_client() = spec_.modern->client;
    for (v1::ParamHeader& header : spec_.modern->param_headers) {
      *request.add_param_headers() = std::move(header);
    }
    for (const auto& [member, raw] : spec_.modern->answers) {
      request.set_params(core::SetMember(request.params(), member, raw));
    }
  }
  // Without a header the one of `_meta` stays.
  if (!spec_.trace.traceparent.empty()) {
    request.set_traceparent(spec_.trace.traceparent);
    request.set_tracestate(spec_.trace.tracestate);
  }
  request.set_baggage(spec_.trace.baggage);
  if (request.idempotency_key().empty()) request.set_idempotency_key(spec_.idempotency_key);

  // A wish of more than a day is bounded by the control plane.
  constexpr uint64_t kDayMs = 24 * 3600 * 1000;
  hard_wait_ = core_.config.hard_wait +
               absl::Milliseconds(static_cast<int64_t>(std::min(request.run_ms(), kDayMs)));
  Restart(hard_wait_);
  events_.emplace(core_.client.Invoke(std::move(request)),
                  [this](absl::StatusOr<v1::InvokeEvent> event) { OnEvent(std::move(event)); });
  AskNext();
}

void RequestExchange::RefuseForProgress() {
  ++core_.gauges.streams.refused;
  answer_.RpcError(503, spec_.raw_id, core::kServerError,
                   "too many open streams: the progress of this call could not be told; nothing "
                   "was started",
                   R"({"reason":"too_many","certainty":"not_started"})", RetryAfter());
  Finish();
}

void RequestExchange::OnEvent(absl::StatusOr<v1::InvokeEvent> event) {
  if (finished()) return;
  if (!event.ok()) return OnBroken(event.status());
  Heard();
  switch (event->event_case()) {
    case v1::InvokeEvent::kAccepted:
      return OpenStream(event->accepted());
    case v1::InvokeEvent::kStreamEvent:
      return Relay(event->stream_event().id(), NotificationText(event->stream_event()));
    case v1::InvokeEvent::kAsk:
      return OnAsk(event->ask());
    case v1::InvokeEvent::kOutcome:
      return OnOutcome(std::move(*event->mutable_outcome()));
    case v1::InvokeEvent::kChunk:
      return OnChunk(std::move(*event->mutable_chunk()));
    case v1::InvokeEvent::kStatus:
      states_.Take(std::move(*event->mutable_status()));
      break;
    // Of a newer control plane.
    case v1::InvokeEvent::EVENT_NOT_SET:
      break;
  }
  AskNext();
}

void RequestExchange::OnListenEvent(absl::StatusOr<v1::ListenEvent> event) {
  if (finished()) return;
  if (!event.ok()) return OnBroken(event.status());
  Heard();
  switch (event->event_case()) {
    case v1::ListenEvent::kStreamEvent:
      return Relay(event->stream_event().id(), NotificationText(event->stream_event()));
    case v1::ListenEvent::kAsk:
      return OnAsk(event->ask());
    case v1::ListenEvent::kOutcome:
      return OnOutcome(std::move(*event->mutable_outcome()));
    case v1::ListenEvent::kChunk:
      return OnChunk(std::move(*event->mutable_chunk()));
    case v1::ListenEvent::kStatus:
      states_.Take(std::move(*event->mutable_status()));
      break;
    case v1::ListenEvent::kEnd:
      return OnBroken(
          core::MakeError(absl::StatusCode::kAborted,
                          fmt::format("the stream of the call ended: {}", event->end().reason())));
    case v1::ListenEvent::kGap:
      if (sse_.open()) sse_.Comment(fmt::format("gap {} events lost", event->gap().lost()));
      break;
    default:
      break;
  }
  AskNext();
}

void RequestExchange::AskNext() {
  if (listened_) return listened_->Ask();
  events_->Ask();
}

void RequestExchange::Heard() {
  heard_ = core_.loop.Now();
  // Within its budgets a call may be silent.
  Restart(hard_at_ == absl::InfiniteFuture() ? hard_wait_ : hard_at_ - heard_);
}

void RequestExchange::Reattach() {
  ++core_.gauges.reattached;
  v1::ListenRequest request;
  request.set_session_id(spec_.session_id);
  request.set_stream(position_->stream());
  *request.mutable_after() = *position_;
  request.set_with_status(states_.wanted());
  // The hard timer is what ends the wait.
  listened_.emplace(
      std::make_unique<LastingListen>(core_.loop, core_.random, core_.client, std::move(request),
                                      absl::InfiniteDuration(), /*open=*/true),
      [this](absl::StatusOr<v1::ListenEvent> event) { OnListenEvent(std::move(event)); });
  AskNext();
}

void RequestExchange::OpenStream(const v1::Accepted& accepted) {
  call_id_ = accepted.call_id();
  if (accepted.hard_ms() != 0) {
    hard_at_ = heard_ + core::FromMillis(accepted.hard_ms()) + core_.config.hard_margin;
    Heard();
  }
  if (left_) return CancelLeft();
  if (accepted.has_id()) position_ = accepted.id();
  // Of a session: without an id it only tells which call this is.
  if (!out_.open() && spec_.stream == nullptr && may_stream_ &&
      (accepted.has_id() || spec_.modern)) {
    slot_ = StreamSlot(core_, spec_.session_id);
    sse_.Start(StatusHeaders(std::string(AgentState(states_.newest().phase()))));
    if (spec_.modern) {
      sse_.Comment("accepted");
    } else if (core::HasPriming(spec_.revision)) {
      sse_.Prime(FormatEventId(accepted.id()));
    } else {
      // Headers alone leave some proxies silent.
      sse_.Comment("accepted");
      sse_.StandsAt(FormatEventId(accepted.id()));
    }
    states_.TellFirst();
  }
  if (job_due_) BecomeJob();
  if (!finished()) AskNext();
}

void RequestExchange::Relay(const v1::EventId& id, const std::string& text) {
  if (id.stream() != 0) position_ = id;
  if (!out_.open()) return AskNext();
  out_.Event(spec_.modern ? std::string() : FormatEventId(id), text, Guard([this] { AskNext(); }));
}

void RequestExchange::OnAsk(const v1::AskEvent& ask) {
  // A stream that is about to be closed stops here: the answer might find nobody. The client is
  // asked where it resumes.
  if (core_.draining && out_.resumable()) return;
  if (out_.open()) {
    if (spec_.stream != nullptr && shared_asks_.size() < kSharedAsksMax) {
      shared_asks_.insert(ask.ask_id());
    }
    return Relay(ask.id(), AskText(ask));
  }
  // Nobody would ever answer it.
  if (ask.id().stream() != 0) position_ = ask.id();
  RefuseAsk(ask.ask_id(), fmt::format("the client cannot be asked ({}) now", ask.method()));
  AskNext();
}

void RequestExchange::RefuseAsk(const std::string& ask_id, std::string_view why) {
  v1::SendRequest request;
  request.set_session_id(spec_.session_id);
  request.mutable_answer()->set_ask_id(ask_id);
  request.mutable_answer()->set_error(core::MakeErrorObject(core::kServerError, why));
  core_.client.Send(std::move(request), [](const absl::StatusOr<v1::SendResponse>&) {});
}

void RequestExchange::BecomeJob() {
  if (finished() || !job_due_ || call_id_.empty()) return;
  v1::CallRef ref;
  ref.set_call_id(call_id_);
  ref.set_as_task(becomes_task());
  core_.client.GetCall(std::move(ref),
                       Guard([this](const absl::StatusOr<v1::Call>& call) { OnKept(call); }));
}

void RequestExchange::OnKept(const absl::StatusOr<v1::Call>& call) {
  if (!job_due_) return;  // its outcome has come meanwhile
  if (!call.ok() || IsOver(*call)) {
    // Its outcome is the answer, unless the call is kept at last.
    if (call.status().code() == absl::StatusCode::kUnavailable) {
      job_timer_ = core_.loop.After(kKeepAgainAfter, [this] { BecomeJob(); });
    }
    return;
  }
  ++core_.gauges.envelopes;
  ended_state_ = AgentState(states_.newest().phase());
  if (becomes_task()) {
    return Answer(core::MakeResult(spec_.raw_id, NewTaskResult(*call, core_.config)));
  }
  Answer(core::MakeResult(spec_.raw_id,
                          DocumentResult(RenderEnvelope({.call_id = call_id_,
                                                         .tool = slug_,
                                                         .phase = states_.newest().phase(),
                                                         .age = core_.loop.Now() - started_}),
                                         spec_.revision, /*is_error=*/false)));
}

void RequestExchange::OnOutcome(v1::CallOutcome outcome) {
  job_timer_.Cancel();
  job_due_ = false;
  hard_at_ = absl::InfiniteFuture();  // what is left is its body
  Heard();
  if (spec_.status_wish != StatusWish::kNone) {
    ended_state_ = EndedAgentState(AgentReason(outcome));
  }
  states_.End(outcome);
  if (outcome.has_id()) outcome_id_ = FormatEventId(outcome.id());
  if (!slug_.empty() && IsFailure(outcome)) return Explain(std::move(outcome));
  Deliver(outcome);
}

void RequestExchange::Explain(v1::CallOutcome outcome) {
  v1::DescribeToolRequest request;
  request.set_slug(slug_);
  auto reply =
      [this, outcome = std::move(outcome)](const absl::StatusOr<v1::DescribeToolResponse>& tool) {
        const bool unloaded = tool.ok() && !tool->hit().loaded() && !tool->hit().skill().empty();
        if (!unloaded) return Deliver(outcome);
        Answer(core::MakeResult(spec_.raw_id, core::MakeToolError(LoadSkillFirst(tool->hit()))));
      };
  Restart(core_.config.unary_wait);
  core_.client.DescribeTool(std::move(request), Guard(std::move(reply)));
}

void RequestExchange::Deliver(const v1::CallOutcome& outcome) {
  if (lost_stream()) return Finish();
  if (WasCancelledByClient(outcome)) {
    // A cancelled request gets no response. But a POST must be answered by something: where no
    // stream is open yet that is an error, which the client drops, as it no longer waits for the
    // id.
    if (!out_.open()) {
      return Answer(core::MakeErrorResponse(spec_.raw_id, core::kServerError, "cancelled",
                                            R"({"reason":"cancelled_by_client"})"));
    }
    out_.End();
    return Finish();
  }
  ResponseText response = RenderOutcome(asked(), outcome);
  if (response.body_size == 0) return Answer(std::move(response.head));
  StartBody(std::move(response), outcome.facts());
}

void RequestExchange::StartBody(ResponseText response, const v1::OutcomeFacts& facts) {
  if (spec_.collect && response.body_size > core_.config.limits.batch_bytes_max) {
    return Answer(core::MakeErrorResponse(
        spec_.raw_id, core::kServerError,
        fmt::format("the answer has {} bytes, too many for a batch; call it alone",
                    response.body_size),
        R"({"reason":"result_too_large"})"));
  }
  body_.Start(response.body_size);
  tail_ = std::move(response.tail);
  if (spec_.modern) {
    members_ = ModernMembers(spec_.modern->method, facts);
    if (!members_.empty()) members_.push_back(',');  // what is so large is not empty
  }
  if (spec_.collect) {
    collected_ = std::move(response.head);
  } else if (out_.open() || answer_.accepts_only_events()) {
    if (!out_.open()) sse_.Start(StatusHeaders(ended_state_));
    out_.BeginEvent(outcome_id_, response.head);
  } else {
    answer_.StartJson(response.head.size() + members_.size() + response.body_size + tail_.size(),
                      StatusHeaders(ended_state_));
    answer_.responder().Write(std::move(response.head), nullptr);
  }
  AskNext();
}

void RequestExchange::OnChunk(v1::BodyChunk chunk) {
  if (lost_stream()) return Finish();
  if (!body_.Take(chunk)) return Break();
  if (!members_.empty()) chunk.mutable_bytes()->insert(1, std::exchange(members_, {}));
  const bool more = body_.running();
  auto written = [this] { AskNext(); };
  if (spec_.collect) {
    collected_.append(chunk.bytes());
    return more ? AskNext() : Answer(std::move(collected_.append(tail_)));
  }
  absl::AnyInvocable<void()> next = nullptr;
  if (more) next = Guard(std::move(written));
  if (out_.open()) {
    out_.Piece(std::move(*chunk.mutable_bytes()), std::move(next));
  } else {
    answer_.responder().Write(std::move(*chunk.mutable_bytes()), std::move(next));
  }
  if (!more) FinishBody();
}

void RequestExchange::FinishBody() {
  if (out_.open()) {
    out_.FinishEvent(tail_);
    out_.End();
  } else {
    answer_.responder().Write(std::move(tail_), nullptr);
    answer_.responder().End();
  }
  Finish();
}

void RequestExchange::Answer(std::string text) {
  if (finished()) return;
  if (lost_stream()) return Finish();
  if (spec_.collect) {
    auto collect = std::move(spec_.collect);
    Finish();
    return collect(std::move(text));
  }
  int http_status = 200;
  if (spec_.modern) {
    ModernResponse modern = ToModernResponse(
        {spec_.modern->method, spec_.modern->named, spec_.modern->server_info}, text);
    text = std::move(modern.text);
    http_status = modern.http_status;
  }
  if (out_.open()) {
    out_.Event(outcome_id_, text, nullptr);
    out_.End();
  } else {
    // An answer without a call is the bridge's own: a refusal or something it looked up.
    if (ended_state_.empty() && spec_.status_wish != StatusWish::kNone) {
      ended_state_ = EndedAgentState(core::FindMember(text, "error") ? "refused" : "");
    }
    answer_.Json(http_status, std::move(text), StatusHeaders(ended_state_));
  }
  Finish();
}

void RequestExchange::OnPeerGone() {
  if (spec_.modern && kept_) {
    left_ = true;
    if (call_id_.empty() && events_) return;  // for the answer, or for the id
    if (!call_id_.empty()) return CancelLeft();
  }
  Finish();
}

void RequestExchange::CancelLeft() {
  v1::CallRef call;
  call.set_call_id(call_id_);
  core_.client.CancelCall(std::move(call), [](const absl::StatusOr<v1::Call>&) {});
  Finish();
}

net::HeaderList RequestExchange::StatusHeaders(std::string state) const {
  if (spec_.status_wish == StatusWish::kNone) return {};
  return {{std::string(kAgentStatus), std::move(state)}};
}

void RequestExchange::AnswerSessionGone() {
  if (lost_stream()) return Finish();
  ++core_.gauges.session_mismatches;
  core_.sessions.Forget(spec_.session_id);
  if (spec_.collect || out_.open()) {
    return Answer(core::MakeErrorResponse(spec_.raw_id, core::kSessionNotFound,
                                          "session not found; send initialize again"));
  }
  answer_.NoSession(spec_.raw_id);
  Finish();
}

void RequestExchange::AnswerCallGone() {
  core_.sessions.Forget(spec_.session_id);
  AnswerFailure(absl::AbortedError("the control plane was restarted and no longer knows the call; "
                                   "whether it has run is not known"),
                /*started=*/true);
}

void RequestExchange::AnswerFailure(const absl::Status& status, bool started) {
  if (lost_stream()) return Finish();
  if (status.code() == absl::StatusCode::kUnavailable && !spec_.collect && !out_.open()) {
    if (spec_.modern) {
      answer_.RpcError(503, spec_.raw_id, core::kInternalError, core::Message(status),
                       StatusData(status, /*started=*/false), RetryAfter());
    } else {
      answer_.Failure(spec_.raw_id, status);
    }
    return Finish();
  }
  std::string data = StatusData(status, started);
  if (started) data = core::SetMember(data, "diagnostics", Diagnostics());
  Answer(core::MakeErrorResponse(spec_.raw_id, core::kServerError, core::Message(status), data));
}

std::string RequestExchange::Diagnostics() const {
  return DiagnosticsOf(core_.loop, started_)
      .Int("last_event_age_ms", absl::ToInt64Milliseconds(core_.loop.Now() - heard_))
      .String("session", spec_.session_id)
      .String("instance", instance_)
      .String("last_state", v1::CallPhase_Name(states_.newest().phase()))
      .Bool("stream", position_.has_value())
      .Bool("reattaching", listened_.has_value())
      .Take();
}

void RequestExchange::OnBroken(const absl::Status& status) {
  if (body_.running()) return Break();
  if (status.code() == absl::StatusCode::kUnavailable && position_ && !listened_) {
    return Reattach();
  }
  if (status.code() == absl::StatusCode::kNotFound) {
    return listened_ ? AnswerCallGone() : AnswerSessionGone();
  }
  if (sse_.open() && sse_.resumable()) {
    // The call is safe at the control plane, and another reader may have its stream: the client
    // comes back with Last-Event-ID.
    sse_.Close(StreamEnd::kBroken, /*tell=*/false);
    return Finish();
  }
  AnswerFailure(status, /*started=*/true);
}

void RequestExchange::Break() {
  if (lost_stream()) return Finish();
  if (spec_.collect) {
    return Answer(core::MakeErrorResponse(spec_.raw_id, core::kServerError,
                                          "the answer was lost on its way",
                                          R"({"reason":"body_lost"})"));
  }
  if (out_.open()) {
    out_.Cut();
  } else {
    answer_.responder().Abort();
  }
  Finish();
}

void RequestExchange::OnHardTimer() {
  if (half_told()) return Break();
  const bool started = events_.has_value();
  const std::string diagnostics = Diagnostics();
  core::LogWarn("hard_timer", {{"session", spec_.session_id}, {"diagnostics", diagnostics}});
  Answer(
      core::MakeErrorResponse(spec_.raw_id, core::kServerError,
                              "the control plane was silent beyond the budget of the call",
                              core::SetMember(HardTimerData(started), "diagnostics", diagnostics)));
}

void RequestExchange::OnTick() {
  if (lost_stream()) {
    for (const std::string& ask : std::exchange(shared_asks_, {})) {
      RefuseAsk(ask, "the client is gone");
    }
  }
  if (!sse_.open()) return;
  if (!sse_.Check(Exchanges::kTick)) return Finish();
  states_.TellIfDue();
}

void RequestExchange::Drain(bool last) {
  if (!last) {
    if (sse_.open() && !half_told()) sse_.Comment("draining");
    return;
  }
  if (half_told()) return Break();
  if (sse_.open() && sse_.resumable()) {
    sse_.Close(StreamEnd::kDrain, /*tell=*/true);
    return Finish();
  }
  Answer(core::MakeErrorResponse(spec_.raw_id, core::kServerError, "the server is shutting down",
                                 R"({"reason":"draining","certainty":"unknown"})"));
}

}  // namespace callboard::bridge
