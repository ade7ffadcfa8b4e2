// Implementation of UrlBackend.
#include "backend_agent/backends/url_backend.h"

#include <utility>

#include "core/runtime/strings.h"

namespace callboard::agent {

UrlBackend::UrlBackend(core::EventLoop& loop, Make make_http, Make make_sse,
                       absl::Duration sse_patience)
    : loop_(loop),
      make_http_(std::move(make_http)),
      make_sse_(std::move(make_sse)),
      sse_patience_(sse_patience),
      carrier_(make_http_()) {}

void UrlBackend::Start(Backend::Events* events) {
  events_ = events;
  carrier_->Start(this);
}

std::unique_ptr<BackendExchange> UrlBackend::Send(uint64_t id, std::string text, bool expects_reply,
                                                  const core::TraceContext& trace) {
  return carrier_->Send(id, std::move(text), expects_reply, trace);
}

void UrlBackend::Probe(absl::AnyInvocable<void(bool alive)> callback) {
  carrier_->Probe(std::move(callback));
}

void UrlBackend::Stop(absl::AnyInvocable<void()> done) {
  events_ = nullptr;
  patience_.Cancel();
  carrier_->Stop(std::move(done));
}

void UrlBackend::OnUp() {
  up_ = true;
  patience_.Cancel();
  events_->OnUp();
}

void UrlBackend::OnDown(BackendExit exit) {
  up_ = false;
  if (sse_ && loop_.Now() - found_sse_ >= kFindingsBelieved) {
    SwitchLater(false, "the event stream has ended; looking anew which transport is spoken");
  } else if (sse_) {
    patience_ =
        loop_.After(sse_patience_, [this] { SwitchLater(false, "the event stream is not there"); });
  }
  events_->OnDown(std::move(exit));
}

void UrlBackend::OnMessage(Payload message, uint64_t exchange) {
  events_->OnMessage(std::move(message), exchange);
}

void UrlBackend::OnExchangeEnd(uint64_t id, absl::Status status, bool reached) {
  if (!sse_ && status.code() == absl::StatusCode::kUnimplemented) {
    SwitchLater(true, std::string(core::Message(status)));
  }
  events_->OnExchangeEnd(id, std::move(status), reached);
}

// Later: the carrier that goes is the caller.
void UrlBackend::SwitchLater(bool to_sse, std::string why) {
  if (std::exchange(switching_, true)) return;
  loop_.Post(lifetime_.Wrap(
      [this, to_sse, why = std::move(why)]() mutable { Switch(to_sse, std::move(why)); }));
}

void UrlBackend::Switch(bool to_sse, std::string why) {
  switching_ = false;
  if (events_ == nullptr) return;
  auto alive = lifetime_.Watch();
  if (std::exchange(up_, false)) {
    // The exchanges of the session go with this, before their carrier does.
    events_->OnDown({.detail = std::move(why)});
    if (alive.expired() || events_ == nullptr) return;
  }
  patience_.Cancel();
  sse_ = to_sse;
  if (to_sse) found_sse_ = loop_.Now();
  carrier_ = to_sse ? make_sse_() : make_http_();
  carrier_->Start(this);
}

}  // namespace callboard::agent
