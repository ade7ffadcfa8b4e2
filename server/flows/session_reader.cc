// Implementation of SessionReader.
#include "server/flows/session_reader.h"

#include <algorithm>
#include <utility>

#include "core/runtime/planted_bug.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

std::unique_ptr<core::EventSource<v1::ListenEvent>> Fail(absl::StatusCode code,
                                                         const std::string& message) {
  return std::make_unique<EndedSource<v1::ListenEvent>>(core::MakeError(code, message));
}

}  // namespace

SessionReader::SessionReader(CallFlow& flow, std::shared_ptr<Stream> stream, StreamPosition after,
                             bool wants_status)
    : PulledSource(flow.plane().ready),
      flow_(flow),
      session_id_(stream->session_id),
      wants_status_(wants_status),
      tail_(flow) {
  replaying_.emplace();
  replaying_->mutable_from()->set_stream(stream->number);
  replaying_->mutable_from()->set_term(after.term);
  replaying_->mutable_from()->set_n(after.n);
  tail_.Attach(std::move(stream), after, this);
  flow_.AddReader(session_id_);
}

SessionReader::~SessionReader() { LetGo(); }

void SessionReader::LetGo() {
  if (!tail_.alive()) return;
  tail_.Detach();
  if (std::exchange(counted_, false)) flow_.RemoveReader(session_id_);
}

void SessionReader::EndReading(const char* reason) {
  // A finished stream is read to its end although its session is gone.
  if (std::string_view(reason) == "session_ended" && tail_.attached() && tail_.stream()->finished) {
    return;
  }
  if (end_reason_ == nullptr) end_reason_ = reason;
  tail_.Release();
  if (tail_.alive() && std::exchange(counted_, false)) flow_.RemoveReader(session_id_);
  MarkReady();
}

void SessionReader::SetStatus(v1::CallStatus status) {
  status_ = std::move(status);
  MarkReady();
}

std::optional<absl::StatusOr<v1::ListenEvent>> SessionReader::Take() {
  if (ended_) return absl::OutOfRangeError("the stream has ended");
  if (!tail_.alive()) return absl::UnavailableError("the control plane has ended");
  v1::ListenEvent event;
  if (end_reason_ != nullptr) {
    ended_ = true;
    event.mutable_end()->set_reason(end_reason_);
    return event;
  }
  if (replaying_) {
    *event.mutable_replaying() = *std::exchange(replaying_, std::nullopt);
    return event;
  }
  if (const uint64_t lost = tail_.TakeGap(); lost > 0) {
    event.mutable_gap()->set_lost(lost);
    return event;
  }
  if (auto next = tail_.Take<v1::ListenEvent>()) {
    if (next->has_outcome()) status_.reset();
    return *std::move(next);
  }
  if (tail_.done() || tail_.body_lost()) {
    const char* reason = tail_.body_lost() ? "body_lost" : "finished";
    ended_ = true;
    LetGo();
    event.mutable_end()->set_reason(reason);
    return event;
  }
  if (tail_.behind()) return std::nullopt;
  if (!std::exchange(live_, true)) {
    event.mutable_live();
    return event;
  }
  if (status_) {
    *event.mutable_status() = *std::exchange(status_, std::nullopt);
    return event;
  }
  return std::nullopt;
}

std::unique_ptr<core::EventSource<v1::ListenEvent>> OpenReader(CallFlow& flow,
                                                               const v1::ListenRequest& request) {
  Plane& plane = flow.plane();
  Session* session = plane.sessions.Use(request.session_id(), plane.loop.Now());
  if (session == nullptr) {
    return std::make_unique<EndedSource<v1::ListenEvent>>(NoSession(request.session_id()));
  }
  const uint64_t number = request.stream();
  if (request.has_after() && request.after().stream() != number) {
    return Fail(absl::StatusCode::kInvalidArgument,
                fmt::format("the id names stream {}, but stream {} is asked for",
                            request.after().stream(), number));
  }
  std::shared_ptr<Stream> stream;
  if (number == 0) {
    const bool is_new = !session->streams.contains(0);
    stream = plane.sessions.OwnStream(*session);
    if (is_new) flow.durable().Announce(*stream);
  } else if (auto found = session->streams.find(number); found != session->streams.end()) {
    stream = found->second;
  } else {
    return Fail(absl::StatusCode::kNotFound,
                fmt::format("session '{}' has no stream {}: its call has ended and the time to "
                            "fetch it is over",
                            session->id, number));
  }
  if (request.has_after() && request.after().term() != 0 &&
      request.after().term() < stream->first_term) {
    return Fail(absl::StatusCode::kNotFound,
                fmt::format("session '{}' no longer has the stream {} of that id: the store failed "
                            "when it was opened, and the control plane was killed then",
                            session->id, number));
  }
  if (StreamReader* former = std::exchange(stream->reader, nullptr)) {
    former->EndReading("taken_over");
  }
  const StreamPosition last = stream->last(plane.term);
  // The session's own stream from what nobody has been given yet, others from their beginning.
  StreamPosition after = number == 0
                             ? std::max(stream->read_to, StreamPosition{plane.term, 0})
                             : StreamPosition{stream->former_last.term == 0 ? plane.term : 0, 0};
  if (request.has_after()) {
    const StreamPosition named{request.after().term(), request.after().n()};
    // What an old term has lost with its end is not kept from anybody.
    after = named.term == plane.term ? std::min(named, {plane.term, stream->log.last()})
                                     : std::min(named, StreamPosition{plane.term, 0});
    if (core::Planted(core::PlantedBug::kReplayFromWrongTerm)) after.term = plane.term;
  }
  if (stream->finished && after >= last) {
    if (const auto call = CallId::From(stream->call_id)) flow.OnDelivered(*call);
  }
  const std::optional<CallId> call =
      request.with_status() ? CallId::From(stream->call_id) : std::nullopt;
  auto reader =
      std::make_unique<SessionReader>(flow, std::move(stream), after, request.with_status());
  if (call) flow.ShowStatusSoon(*call);
  return reader;
}

}  // namespace callboard::server
