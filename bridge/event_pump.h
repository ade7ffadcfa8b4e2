// Pulls events from a control plane's source one by one, without recursion when they come inline.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/runtime/event_source.h"
#include "core/runtime/lifetime.h"

namespace callboard::bridge {

// Owned by the consumer, whose handler may destroy the pump. Loop thread only.
template <class T>
class EventPump {
 public:
  using Handler = absl::AnyInvocable<void(absl::StatusOr<T>)>;

  // The handler gets one event for each Ask().
  EventPump(std::unique_ptr<core::EventSource<T>> source, Handler handler)
      : source_(std::move(source)), handler_(std::move(handler)) {}

  // Asks for the next event: says that the former one is consumed. At most one is outstanding.
  void Ask() {
    if (delivering_) {
      asked_again_ = true;
      return;
    }
    const auto alive = lifetime_.Watch();
    do {
      asked_again_ = false;
      inside_next_ = true;
      source_->Next(lifetime_.Wrap([this](absl::StatusOr<T> event) { Take(std::move(event)); }));
      if (alive.expired()) return;
      inside_next_ = false;
    } while (asked_again_);
  }

 private:
  void Take(absl::StatusOr<T> event) {
    const auto alive = lifetime_.Watch();
    // What came later than Next() must start the loop anew if the handler asks for more.
    const bool inline_event = inside_next_;
    delivering_ = true;
    handler_(std::move(event));
    if (alive.expired()) return;
    delivering_ = false;
    if (!inline_event && asked_again_) Ask();
  }

  std::unique_ptr<core::EventSource<T>> source_;
  Handler handler_;
  bool inside_next_ = false;
  bool delivering_ = false;
  bool asked_again_ = false;
  core::Lifetime lifetime_;
};

}  // namespace callboard::bridge
