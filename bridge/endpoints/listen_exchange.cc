// Implementation of ListenExchange.
#include "bridge/endpoints/listen_exchange.h"

#include <fmt/format.h>

#include "bridge/lasting_listen.h"
#include "bridge/translator.h"

namespace callboard::bridge {

ListenExchange::ListenExchange(BridgeCore& core, HttpAnswer answer, const SessionInfo& session,
                               std::optional<v1::EventId> after, StatusWish status_wish)
    : Exchange(core.exchanges, answer),
      core_(core),
      session_id_(session.id),
      revision_(session.revision),
      term_(session.term),
      after_(std::move(after)),
      may_prime_(!after_),
      sse_(core.loop, core.random, core.config, core.gauges, std::move(answer)),
      states_(core.loop, sse_, status_wish),
      slot_(core, session.id) {
  WatchPeer();
}

void ListenExchange::Start() {
  // Of a call's stream there may be nothing left to tell.
  if (!after_ || after_->stream() == 0) OpenEvents();
  v1::ListenRequest request;
  request.set_session_id(session_id_);
  if (after_) {
    request.set_stream(after_->stream());
    *request.mutable_after() = *after_;
    request.set_with_status(after_->stream() != 0 && states_.wanted());
  }
  events_.emplace(std::make_unique<LastingListen>(core_.loop, core_.random, core_.client,
                                                  std::move(request), core_.config.reattach,
                                                  /*open=*/false),
                  [this](absl::StatusOr<v1::ListenEvent> event) { OnEvent(std::move(event)); });
  AskNext();
}

void ListenExchange::OpenEvents() {
  if (sse_.open()) return;
  sse_.Start();
  // Clients and proxies take a stream for open when its first byte comes.
  sse_.Comment("listening");
}

void ListenExchange::OnEvent(absl::StatusOr<v1::ListenEvent> event) {
  if (finished()) return;
  if (!event.ok()) return OnBroken(event.status());
  if (!event->has_replaying()) {
    const bool lost = event->has_end() && event->end().reason() == "body_lost";
    CountResume(event->has_gap() ? Resume::kGap : lost ? Resume::kGone : Resume::kResumed);
  }
  switch (event->event_case()) {
    case v1::ListenEvent::kReplaying:
      Prime(event->replaying().from());
      break;
    case v1::ListenEvent::kGap:
      OpenEvents();
      sse_.Comment(fmt::format("gap {} events lost", event->gap().lost()));
      break;
    case v1::ListenEvent::kLive: {
      OpenEvents();
      v1::EventId start;
      start.set_term(term_);
      Prime(start);
      break;
    }
    case v1::ListenEvent::kStreamEvent:
      return Relay(event->stream_event().id(), NotificationText(event->stream_event()));
    case v1::ListenEvent::kAsk:
      if (core_.draining) return;  // see RequestExchange::OnAsk
      return Relay(event->ask().id(), AskText(event->ask()));
    case v1::ListenEvent::kOutcome:
      return OnOutcome(event->outcome());
    case v1::ListenEvent::kChunk:
      return OnChunk(std::move(*event->mutable_chunk()));
    case v1::ListenEvent::kStatus:
      OnStatus(std::move(*event->mutable_status()));
      break;
    case v1::ListenEvent::kEnd:
      if (event->end().reason() == "session_ended") core_.sessions.Forget(session_id_);
      return End();
    // Of a newer control plane.
    case v1::ListenEvent::EVENT_NOT_SET:
      break;
  }
  AskNext();
}

void ListenExchange::OnBroken(const absl::Status& status) {
  const bool unknown = status.code() == absl::StatusCode::kNotFound;
  if (unknown) CountResume(Resume::kGone);
  if (unknown) core_.sessions.Forget(session_id_);
  if (sse_.open() && !unknown) {
    sse_.Close(StreamEnd::kBroken, /*tell=*/false);
    return Finish();
  }
  if (unknown) return sse_.open() ? End() : AnswerUnknown();
  answer_.Failure({}, status);
  Finish();
}

// The session may have been ended elsewhere while this bridge still believed in it.
void ListenExchange::AnswerUnknown() {
  v1::SessionRef request;
  request.set_session_id(session_id_);
  core_.client.GetSession(std::move(request),
                          lifetime_.Wrap([this](const absl::StatusOr<v1::Session>& session) {
                            if (session.status().code() != absl::StatusCode::kNotFound) {
                              return End();
                            }
                            ++core_.gauges.session_mismatches;
                            answer_.NoSession({});
                            Finish();
                          }));
}

void ListenExchange::CountResume(Resume resume) {
  if (!after_ || std::exchange(resume_counted_, true)) return;
  ++core_.gauges.streams.resumes[static_cast<size_t>(resume)];
}

// With an id the client can come back before the first event: from where the stream stood when it
// was opened, or, if the control plane did not say, from the beginning of the term.
void ListenExchange::Prime(const v1::EventId& id) {
  if (!std::exchange(may_prime_, false)) return;
  if (core::HasPriming(revision_)) return sse_.Prime(FormatEventId(id));
  // An older client learns it when its stream is closed.
  sse_.StandsAt(FormatEventId(id));
}

void ListenExchange::Relay(const v1::EventId& id, const std::string& text) {
  may_prime_ = false;
  OpenEvents();
  sse_.Event(FormatEventId(id), text, lifetime_.Wrap([this] { AskNext(); }));
}

// Nobody has heard it on this stream: it need not wait until the head has gone.
void ListenExchange::OnStatus(v1::CallStatus status) {
  if (!states_.wanted()) return;
  OpenEvents();
  states_.Take(std::move(status));
  if (std::exchange(first_status_, false)) states_.TellFirst();
}

void ListenExchange::OnOutcome(const v1::CallOutcome& outcome) {
  may_prime_ = false;
  if (WasCancelledByClient(outcome)) {
    states_.End(outcome);  // of a stream with nothing else to tell the answer is 204
    return AskNext();
  }
  if (states_.wanted()) OpenEvents();
  states_.End(outcome);
  // Only calls of tools have inputs that can be judged invalid.
  const Asked asked{outcome.client_request_id(), revision_, /*is_tool_call=*/true, {}};
  ResponseText response = RenderOutcome(asked, outcome);
  if (response.body_size == 0) return Relay(outcome.id(), response.head);
  OpenEvents();
  body_.Start(response.body_size);
  tail_ = std::move(response.tail);
  sse_.BeginEvent(FormatEventId(outcome.id()), response.head);
  AskNext();
}

void ListenExchange::OnChunk(v1::BodyChunk chunk) {
  if (!body_.Take(chunk)) {
    sse_.Cut();
    return Finish();
  }
  // Asking for the next event only after the write is what keeps large bodies out of memory.
  const bool more = body_.running();
  auto next = lifetime_.Wrap([this] { AskNext(); });
  if (more) {
    sse_.Piece(std::move(*chunk.mutable_bytes()), std::move(next));
  } else {
    sse_.Piece(std::move(*chunk.mutable_bytes()), nullptr);
    sse_.FinishEvent(tail_);
    AskNext();
  }
}

void ListenExchange::End() {
  if (sse_.open()) {
    sse_.End();
  } else {
    // A stream without an end would be asked for again and again; 204 is what stops an EventSource,
    // and the official TypeScript client too.
    answer_.Empty(204);
  }
  Finish();
}

void ListenExchange::OnHardTimer() { End(); }

void ListenExchange::OnTick() {
  if (!sse_.open()) return;
  if (!sse_.Check(Exchanges::kTick)) return Finish();
  states_.TellIfDue();
}

void ListenExchange::Drain(bool last) {
  if (!last) {
    if (sse_.open() && !body_.running()) sse_.Comment("draining");
    return;
  }
  OpenEvents();
  sse_.Close(StreamEnd::kDrain, /*tell=*/true);
  Finish();
}

}  // namespace callboard::bridge
