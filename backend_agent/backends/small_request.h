// One small HTTP request beside the messages: is anybody there, or the end of a session.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "net/http_client.h"

namespace callboard::agent {

// GET of a health path, or the DELETE of a session. Any answer counts. Destroying it drops the
// request; the listener may do so. Loop thread only.
class SmallRequest final : public net::HttpResponseSink {
 public:
  // kConnected comes first, then one of the others, each posted.
  enum class Event { kConnected, kAnswered, kFailed };

  SmallRequest(core::EventLoop& loop, net::HttpClient& client, std::string method,
               std::string target, net::HeaderList headers, absl::Duration timeout,
               absl::AnyInvocable<void(Event)> on_event)
      : loop_(loop), on_event_(std::move(on_event)) {
    http_ = client.Send(std::move(method), std::move(target), std::move(headers), "", this);
    timer_ = loop_.After(timeout, [this] { Report(Event::kFailed); });
  }

  void OnSending() override {
    loop_.Post(lifetime_.Wrap([this] {
      if (!over_) on_event_(Event::kConnected);
    }));
  }
  void OnHead(net::HttpResponseHead) override { Report(Event::kAnswered); }
  void OnBody(std::string_view) override {}
  void OnEnd(absl::Status status, bool) override {
    failure_ = status;
    Report(status.ok() ? Event::kAnswered : Event::kFailed);
  }

  // At kFailed: why; OK if there was no answer in time.
  const absl::Status& failure() const { return failure_; }

 private:
  void Report(Event event) {
    if (reported_) return;
    reported_ = true;
    // Later: the listener may destroy this request.
    loop_.Post(lifetime_.Wrap([this, event] {
      over_ = true;
      auto on_event = std::move(on_event_);
      on_event(event);
    }));
  }

  core::EventLoop& loop_;
  absl::AnyInvocable<void(Event)> on_event_;
  std::unique_ptr<net::HttpExchange> http_;
  core::Timer timer_;
  absl::Status failure_;
  bool reported_ = false;
  bool over_ = false;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
