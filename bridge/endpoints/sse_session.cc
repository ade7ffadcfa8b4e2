// Implementation of SseSession.
#include "bridge/endpoints/sse_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "bridge/errors.h"
#include "bridge/lasting_listen.h"
#include "bridge/translator.h"

namespace callboard::bridge {

using core::JsonRpcMessage;

SseSession::SseSession(BridgeCore& core, RequestServer& requests, HttpAnswer answer, std::string id,
                       Surface surface, std::string instance)
    : Exchange(core.exchanges, answer),
      core_(core),
      server_(requests),
      id_(std::move(id)),
      surface_(std::move(surface)),
      instance_(std::move(instance)),
      sse_(core.loop, core.random, core.config, core.gauges, std::move(answer)),
      shared_(std::make_shared<SharedStream>(sse_)) {
  core_.sse_sessions[id_] = this;
  WatchPeer();
}

void SseSession::Start() {
  sse_.Start();
  // Without the origin, which clients compare and proxies change.
  sse_.Aside("endpoint", fmt::format("/messages?sessionId={}", id_));
}

// ---- what the client posts ----

void SseSession::Take(const VisitPtr& visit) {
  const JsonRpcMessage& message = visit->message;
  if (message.kind != JsonRpcMessage::Kind::kRequest) return Pass(visit);
  if (core_.draining && message.method != "ping") return visit->RefuseDraining(core::kServerError);
  if (!has_room()) {
    return visit->answer.RpcError(503, message.id, core::kServerError,
                                  "too much waits for this client to read its stream",
                                  R"({"reason":"too_many"})", RetryAfter());
  }
  visit->answer.Empty(202);
  Serve(*visit);
}

void SseSession::Serve(const Visit& visit) {
  const JsonRpcMessage& message = visit.message;
  if (message.method == "initialize" && !session_ && initializing_.empty()) {
    return Initialize(message);
  }
  // Before there is a session, what needs none is answered all the same.
  if (!session_ && message.method != "ping" && message.method != "initialize") {
    return Tell(core::MakeErrorResponse(
        message.id, core::kInvalidRequest,
        fmt::format("'{}' came before the answer to initialize", message.method)));
  }
  if (auto text = server_.AnswerHere(session_.value_or(SessionInfo()), message)) {
    return Tell(*std::move(text));
  }
  RequestSpec spec{.answer = visit.answer,
                   .session_id = session_->id,
                   .revision = session_->revision,
                   .raw_id = visit.raw_id()};
  spec.trace = visit.trace();
  spec.idempotency_key = visit.HeaderText("Idempotency-Key");
  spec.stream = shared_->Branch();
  std::erase_if(requests_, [this](uint64_t request) { return owner_.Find(request) == nullptr; });
  requests_.insert(server_.Serve(*session_, message, std::move(spec)));
}

void SseSession::Initialize(const JsonRpcMessage& message) {
  initializing_ = std::string(message.id);
  const core::McpRevision revision = NegotiateOverSse(message.params);
  Restart(core_.config.unary_wait);
  core_.client.OpenSession(
      ToOpenSession(surface_, revision, message.params),
      lifetime_.Wrap(
          [this, result = InitializeResult(core_.config, surface_, revision)](
              const absl::StatusOr<v1::Session>& session) { OnOpened(session, result); }));
}

void SseSession::OnOpened(const absl::StatusOr<v1::Session>& session, const std::string& result) {
  if (initializing_.empty()) {
    // The client was told already that it took too long.
    if (session.ok()) CloseSession(session->session_id());
    return;
  }
  const std::string raw_id = std::exchange(initializing_, {});
  Restart(absl::InfiniteDuration());
  absl::Status status = session.status();
  if (session.ok() && session->tools() != surface_.tools) {
    CloseSession(session->session_id());
    status = OldControlPlane();
  }
  if (!status.ok()) {
    return Tell(core::MakeErrorResponse(raw_id, core::kServerError, core::Message(status),
                                        StatusData(status, /*started=*/false)));
  }
  session_ = ToSessionInfo(*session);
  session_->instance_name = instance_;
  Tell(core::MakeResult(raw_id, result));
  Listen();
}

void SseSession::Pass(const VisitPtr& visit) {
  auto request = session_ ? ToSend(session_->id, visit->message) : std::nullopt;
  if (!request) return visit->answer.Empty(202);
  core_.client.Send(*std::move(request),
                    core_.exchanges.Await<v1::SendResponse>(
                        visit->answer, {}, [visit](const absl::StatusOr<v1::SendResponse>& sent) {
                          if (sent.ok()) return visit->answer.Empty(202);
                          visit->answer.Failure({}, sent.status());
                        }));
}

// ---- what the client is told ----

void SseSession::Tell(std::string message) { shared_->Event(std::move(message), nullptr); }

void SseSession::Listen() {
  v1::ListenRequest request;
  request.set_session_id(session_->id);
  events_.emplace(std::make_unique<LastingListen>(core_.loop, core_.random, core_.client,
                                                  std::move(request), core_.config.reattach,
                                                  /*open=*/false),
                  [this](const absl::StatusOr<v1::ListenEvent>& event) { OnEvent(event); });
  events_->Ask();
}

void SseSession::OnEvent(const absl::StatusOr<v1::ListenEvent>& event) {
  if (finished()) return;
  if (!event.ok() || event->has_end()) {
    // Without what its session is told a client is better off with another one.
    sse_.Close(StreamEnd::kBroken, /*tell=*/true);
    return Leave(/*keep_calls=*/true);
  }
  auto more = lifetime_.Wrap([this] { events_->Ask(); });
  if (event->has_stream_event()) {
    return shared_->Event(NotificationText(event->stream_event()), std::move(more));
  }
  if (event->has_ask()) return shared_->Event(AskText(event->ask()), std::move(more));
  events_->Ask();
}

// ---- its end ----

bool SseSession::has_room() const {
  return answer_.responder().unsent_bytes() + shared_->waiting_bytes() <=
         core_.config.limits.sse_waiting_bytes_max;
}

bool SseSession::busy() const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [this](uint64_t request) { return owner_.Find(request) != nullptr; });
}

void SseSession::CloseSession(const std::string& session_id) {
  v1::SessionRef request;
  request.set_session_id(session_id);
  core_.client.CloseSession(std::move(request),
                            [](const absl::StatusOr<v1::CloseSessionResponse>&) {});
}

void SseSession::Leave(bool keep_calls) {
  if (finished()) return;
  core_.sse_sessions.erase(id_);
  // Calls that go on have nobody to tell: what their backends ask is refused.
  shared_.reset();
  // Closing the session would cancel them.
  if (!keep_calls) {
    for (const uint64_t request : std::exchange(requests_, {})) owner_.Abandon(request);
    if (session_) CloseSession(session_->id);
  }
  Finish();
}

void SseSession::OnHardTimer() {
  Restart(absl::InfiniteDuration());
  Tell(core::MakeErrorResponse(std::exchange(initializing_, {}), core::kServerError,
                               "the control plane did not answer in time",
                               HardTimerData(/*started=*/false)));
}

void SseSession::OnTick() {
  if (!sse_.open() || !sse_.Check(Exchanges::kTick)) Leave(busy());
}

void SseSession::Drain(bool last) {
  if (!last) return;
  const bool keep_calls = busy();
  // They are drained after this stream, which takes their answers.
  for (const uint64_t request : requests_) {
    if (Exchange* const exchange = owner_.Find(request)) exchange->Drain(/*last=*/true);
  }
  sse_.Close(StreamEnd::kDrain, /*tell=*/true);
  Leave(keep_calls);
}

}  // namespace callboard::bridge
