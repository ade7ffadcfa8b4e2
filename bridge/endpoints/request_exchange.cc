// Implementation of RequestExchange.
#include "bridge/endpoints/request_exchange.h"

#include <fmt/format.h>

#include "bridge/errors.h"
#include "bridge/facade/rendering.h"

namespace callboard::bridge {
namespace {

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
      sse_(core.loop, core.random, core.config, core.gauges, answer_) {
  Restart(hard_wait_);
  if (!spec_.collect) WatchPeer();
}

void RequestExchange::Invoke(v1::InvokeRequest request, std::string instance, std::string slug) {
  instance_ = std::move(instance);
  slug_ = std::move(slug);
  request.set_session_id(spec_.session_id);
  request.set_client_request_id(spec_.raw_id);
  request.set_open_stream_after_ms(
      static_cast<uint64_t>(absl::ToInt64Milliseconds(core_.config.open_stream_after)));
  request.set_never_open_stream(spec_.collect != nullptr || !spec_.accepts_events ||
                                !StreamSlot::HasRoom(core_, spec_.session_id));
  request.set_on_detach(v1::InvokeRequest::KEEP);
  request.set_traceparent(spec_.traceparent);
  request.set_tracestate(spec_.tracestate);
  request.set_baggage(spec_.baggage);
  if (request.idempotency_key().empty()) request.set_idempotency_key(spec_.idempotency_key);

  // A wish of more than a day is bounded by the control plane.
  constexpr uint64_t kDayMs = 24 * 3600 * 1000;
  hard_wait_ = core_.config.hard_wait +
               absl::Milliseconds(static_cast<int64_t>(std::min(request.run_ms(), kDayMs)));
  Restart(hard_wait_);
  events_.emplace(core_.client.Invoke(std::move(request)),
                  [this](absl::StatusOr<v1::InvokeEvent> event) { OnEvent(std::move(event)); });
  events_->Ask();
}

void RequestExchange::OnEvent(absl::StatusOr<v1::InvokeEvent> event) {
  if (finished()) return;
  if (!event.ok()) return OnBroken(event.status());
  Restart(hard_wait_);
  switch (event->event_case()) {
    case v1::InvokeEvent::kAccepted:
      return OpenStream(event->accepted());
    case v1::InvokeEvent::kStreamEvent:
      return Relay(event->stream_event().id(), NotificationText(event->stream_event()));
    case v1::InvokeEvent::kAsk:
      return Relay(event->ask().id(), AskText(event->ask()));
    case v1::InvokeEvent::kOutcome:
      return OnOutcome(std::move(*event->mutable_outcome()));
    case v1::InvokeEvent::kChunk:
      return OnChunk(std::move(*event->mutable_chunk()));
    case v1::InvokeEvent::kStatus:
      phase_ = event->status().phase();
      break;
    // Of a newer control plane.
    case v1::InvokeEvent::EVENT_NOT_SET:
      break;
  }
  events_->Ask();
}

void RequestExchange::OpenStream(const v1::Accepted& accepted) {
  if (!sse_.open() && !spec_.collect && spec_.accepts_events) {
    slot_ = StreamSlot(core_, spec_.session_id);
    sse_.Start();
    if (core::HasPriming(spec_.revision)) {
      sse_.Prime(FormatEventId(accepted.id()));
    } else {
      // Headers alone leave some proxies silent.
      sse_.Comment("accepted");
      sse_.StandsAt(FormatEventId(accepted.id()));
    }
  }
  events_->Ask();
}

void RequestExchange::Relay(const v1::EventId& id, const std::string& text) {
  if (!sse_.open()) return events_->Ask();
  sse_.Event(FormatEventId(id), text, Guard([this] { events_->Ask(); }));
}

void RequestExchange::OnOutcome(v1::CallOutcome outcome) {
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
        Answer(core::MakeResult(spec_.raw_id, ErrorResult(LoadSkillFirst(tool->hit()))));
      };
  Restart(core_.config.unary_wait);
  core_.client.DescribeTool(std::move(request), Guard(std::move(reply)));
}

void RequestExchange::Deliver(const v1::CallOutcome& outcome) {
  if (WasCancelledByClient(outcome)) {
    // A cancelled request gets no response. But a POST must be answered by something: where no
    // stream is open yet that is an error, which the client drops, as it no longer waits for the
    // id.
    if (!sse_.open()) {
      return Answer(core::MakeErrorResponse(spec_.raw_id, core::kServerError, "cancelled",
                                            R"({"reason":"cancelled_by_client"})"));
    }
    sse_.End();
    return Finish();
  }
  ResponseText response = RenderOutcome(asked(), outcome);
  if (response.body_size == 0) return Answer(std::move(response.head));
  StartBody(std::move(response));
}

void RequestExchange::StartBody(ResponseText response) {
  if (spec_.collect && response.body_size > core_.config.limits.batch_bytes_max) {
    return Answer(core::MakeErrorResponse(
        spec_.raw_id, core::kServerError,
        fmt::format("the answer has {} bytes, too many for a batch; call it alone",
                    response.body_size),
        R"({"reason":"result_too_large"})"));
  }
  body_.Start(response.body_size);
  tail_ = std::move(response.tail);
  if (spec_.collect) {
    collected_ = std::move(response.head);
  } else if (sse_.open() || answer_.accepts_only_events()) {
    if (!sse_.open()) sse_.Start();
    sse_.BeginEvent(outcome_id_, response.head);
  } else {
    answer_.StartJson(response.head.size() + response.body_size + tail_.size());
    answer_.responder().Write(std::move(response.head), nullptr);
  }
  events_->Ask();
}

void RequestExchange::OnChunk(v1::BodyChunk chunk) {
  if (!body_.Take(chunk)) return Break();
  const bool more = body_.running();
  auto written = [this] { events_->Ask(); };
  if (spec_.collect) {
    collected_.append(chunk.bytes());
    return more ? events_->Ask() : Answer(std::move(collected_.append(tail_)));
  }
  absl::AnyInvocable<void()> next = nullptr;
  if (more) next = Guard(std::move(written));
  if (sse_.open()) {
    sse_.Piece(std::move(*chunk.mutable_bytes()), std::move(next));
  } else {
    answer_.responder().Write(std::move(*chunk.mutable_bytes()), std::move(next));
  }
  if (!more) FinishBody();
}

void RequestExchange::FinishBody() {
  if (sse_.open()) {
    sse_.FinishEvent(tail_);
    sse_.End();
  } else {
    answer_.responder().Write(std::move(tail_), nullptr);
    answer_.responder().End();
  }
  Finish();
}

void RequestExchange::Answer(std::string text) {
  if (finished()) return;
  if (spec_.collect) {
    auto collect = std::move(spec_.collect);
    Finish();
    return collect(std::move(text));
  }
  if (sse_.open()) {
    sse_.Event(outcome_id_, text, nullptr);
    sse_.End();
  } else {
    answer_.Json(200, std::move(text));
  }
  Finish();
}

void RequestExchange::AnswerSessionGone() {
  core_.sessions.Forget(spec_.session_id);
  constexpr std::string_view kMessage = "session not found; send initialize again";
  if (spec_.collect || sse_.open()) {
    return Answer(core::MakeErrorResponse(spec_.raw_id, core::kSessionNotFound, kMessage));
  }
  answer_.RpcError(404, spec_.raw_id, core::kSessionNotFound, kMessage);
  Finish();
}

void RequestExchange::OnBroken(const absl::Status& status) {
  if (body_.running()) return Break();
  if (status.code() == absl::StatusCode::kNotFound) return AnswerSessionGone();
  if (sse_.open() && sse_.resumable()) {
    // The call is safe at the control plane: the client comes back with Last-Event-ID.
    sse_.Close(StreamEnd::kBroken, /*tell=*/false);
    return Finish();
  }
  Answer(StatusErrorText(spec_.raw_id, status, /*started=*/true));
}

void RequestExchange::Break() {
  if (spec_.collect) {
    return Answer(core::MakeErrorResponse(spec_.raw_id, core::kServerError,
                                          "the answer was lost on its way",
                                          R"({"reason":"body_lost"})"));
  }
  if (sse_.open()) {
    sse_.Cut();
  } else {
    answer_.responder().Abort();
  }
  Finish();
}

void RequestExchange::OnHardTimer() {
  if (body_.running()) return Break();
  const absl::Time now = core_.loop.Now();
  std::string data = core::SetMember(HardTimerData(/*started=*/events_.has_value()), "diagnostics",
                                     core::JsonObject()
                                         .String("session", spec_.session_id)
                                         .String("instance", instance_)
                                         .Int("age_ms", absl::ToInt64Milliseconds(now - started_))
                                         .String("last_state", v1::CallPhase_Name(phase_))
                                         .Take());
  Answer(core::MakeErrorResponse(spec_.raw_id, core::kServerError,
                                 "the control plane was silent beyond the budget of the call",
                                 data));
}

void RequestExchange::OnTick() {
  if (sse_.open() && !sse_.Check(Exchanges::kTick)) Finish();
}

void RequestExchange::Drain(bool last) {
  if (!last) {
    if (sse_.open() && !body_.running()) sse_.Comment("draining");
    return;
  }
  if (body_.running()) return Break();
  if (sse_.open() && sse_.resumable()) {
    sse_.Close(StreamEnd::kDrain, /*tell=*/true);
    return Finish();
  }
  Answer(core::MakeErrorResponse(spec_.raw_id, core::kServerError, "the server is shutting down",
                                 R"({"reason":"draining","certainty":"unknown"})"));
}

}  // namespace callboard::bridge
