// Implementation of EventStream.
#include "backend_agent/backends/event_stream.h"

#include <algorithm>
#include <utility>

#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

EventStream::EventStream(core::EventLoop& loop, core::Random& random, Spool& spool,
                         net::HttpClient& client, EventStreamConfig config, Callbacks callbacks)
    : loop_(loop),
      random_(random),
      spool_(spool),
      client_(client),
      config_(config),
      callbacks_(std::move(callbacks)) {}

void EventStream::Open(std::string target) {
  Close();
  target_ = std::move(target);
  active_ = true;
  joined_ = false;
  wait_ = config_.retry_first;
  server_retry_.reset();
  last_id_.clear();
  Connect();
}

void EventStream::Close() {
  active_ = false;
  lifetime_.Renew();
  timer_.Cancel();
  reader_.reset();
  http_.reset();
}

void EventStream::Reopen() {
  if (!active_) return;
  lifetime_.Renew();
  reader_.reset();
  http_.reset();
  timer_ = loop_.After(NextWait(), [this] { Connect(); });
}

void EventStream::Connect() {
  lost_ = false;
  net::HeaderList headers = callbacks_.headers();
  headers.emplace_back("Accept", "text/event-stream");
  if (config_.resumes && !last_id_.empty()) headers.emplace_back("Last-Event-ID", last_id_);
  http_ = client_.Send("GET", target_, std::move(headers), "", this);
}

void EventStream::OnHead(net::HttpResponseHead head) {
  const std::string* type = head.Header("content-type");
  if (head.status == 200 && type != nullptr && type->starts_with("text/event-stream")) {
    reader_.emplace(spool_, config_.message_bytes_max);
    opened_ = loop_.Now();
    if (std::exchange(joined_, true) && callbacks_.on_rejoined) callbacks_.on_rejoined();
    return;
  }
  const bool passing =
      head.status >= 500 || head.status == 408 || head.status == 409 || head.status == 429;
  active_ = passing && head.status != 501;
  const bool forgotten = joined_ && head.status == 404;
  Lose(core::MakeError(forgotten ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable,
                       fmt::format("GET {} was answered with HTTP {} {} and no event stream",
                                   target_, head.status, net::HttpReason(head.status))));
}

void EventStream::OnBody(std::string_view piece) {
  if (!reader_) return;
  const absl::Status status = reader_->Feed(piece, [this](Payload message) {
    if (config_.resumes) wait_ = config_.retry_first;
    callbacks_.on_event(reader_->event(), std::move(message));
  });
  last_id_ = reader_->last_id().empty() ? last_id_ : reader_->last_id();
  if (reader_->retry()) server_retry_ = std::min(*reader_->retry(), config_.server_retry_max);
  if (!status.ok()) Lose(status);
}

void EventStream::OnEnd(absl::Status status, bool) {
  if (status.ok()) {
    status = core::MakeError(absl::StatusCode::kUnavailable,
                             fmt::format("the backend ended the event stream {}", target_));
  }
  Lose(std::move(status));
}

// Later: the caller is the HTTP exchange that goes.
void EventStream::Lose(absl::Status status) {
  if (std::exchange(lost_, true)) return;
  if (reader_ && loop_.Now() - opened_ >= config_.retry_max) wait_ = config_.retry_first;
  reader_.reset();
  lifetime_.Renew();
  loop_.Post(lifetime_.Wrap([this, status = std::move(status)]() mutable {
    if (active_) {
      Reopen();
    } else {
      Close();
    }
    callbacks_.on_lost(std::move(status), !active_);
  }));
}

absl::Duration EventStream::NextWait() {
  const absl::Duration base = std::max(wait_, server_retry_.value_or(absl::ZeroDuration()));
  wait_ = std::min(config_.retry_max, wait_ * 2);
  return base * (0.75 + 0.5 * random_.Unit());
}

}  // namespace callboard::agent
