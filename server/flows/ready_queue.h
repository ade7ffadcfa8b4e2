// Hands events to consumers at the end of a turn, so that no consumer runs inside a flow's loop.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/event_source.h"
#include "core/runtime/lifetime.h"

namespace callboard::server {

class ReadyQueue;

// Something that has events for its consumer. Owned by the consumer, who may outlive the control
// plane.
class Deliverable {
 public:
  explicit Deliverable(std::shared_ptr<ReadyQueue> queue) : queue_(std::move(queue)) {}
  virtual ~Deliverable();
  Deliverable(const Deliverable&) = delete;
  Deliverable& operator=(const Deliverable&) = delete;

 protected:
  void MarkReady();
  virtual void Pump() = 0;

 private:
  friend class ReadyQueue;
  std::shared_ptr<ReadyQueue> queue_;
  bool ready_ = false;
};

// Loop thread only. At most one entry per Deliverable. Run() is called at the end of a turn by
// whoever has one, and by a posted callback otherwise.
class ReadyQueue final : public std::enable_shared_from_this<ReadyQueue> {
 public:
  explicit ReadyQueue(core::EventLoop& loop) : loop_(loop) {}

  core::EventLoop& loop() { return loop_; }

  void Add(Deliverable* deliverable) {
    ready_.push_back(deliverable);
    if (posted_ || in_turn_) return;
    posted_ = true;
    loop_.Post([self = weak_from_this()] {
      if (auto queue = self.lock()) {
        queue->posted_ = false;
        queue->Run();
      }
    });
  }
  void Remove(Deliverable* deliverable) {
    std::replace(ready_.begin(), ready_.end(), deliverable, static_cast<Deliverable*>(nullptr));
  }
  // From here on a Run() is certain to follow in this turn: nothing needs to be posted.
  void BeginTurn() { in_turn_ = true; }
  // Anything may have been destroyed when this returns, the control plane included.
  void Run() {
    auto self = shared_from_this();
    in_turn_ = false;
    while (!ready_.empty()) {
      Deliverable* next = ready_.front();
      ready_.pop_front();
      if (next == nullptr) continue;
      next->ready_ = false;
      next->Pump();
    }
  }

 private:
  core::EventLoop& loop_;
  std::deque<Deliverable*> ready_;
  bool posted_ = false;
  bool in_turn_ = false;
};

inline Deliverable::~Deliverable() {
  if (ready_) queue_->Remove(this);
}

inline void Deliverable::MarkReady() {
  if (ready_) return;
  ready_ = true;
  queue_->Add(this);
}

// The pulling side of a source: subclasses say what comes next. Loop thread only. A consumer may
// ask again from inside the callback without the stack growing, and may destroy the source there.
template <class Event>
class PulledSource : public core::EventSource<Event>, public Deliverable {
 public:
  using Deliverable::Deliverable;

  void Next(absl::AnyInvocable<void(absl::StatusOr<Event>)> callback) final {
    callback_ = std::move(callback);
    OnDemand();
    Pump();
  }

 protected:
  // The event handed out last has been consumed.
  virtual void OnDemand() = 0;
  // The next event, the end, or nothing yet.
  virtual std::optional<absl::StatusOr<Event>> Take() = 0;

  void Pump() final {
    if (pumping_) return;
    pumping_ = true;
    const auto alive = lifetime_.Watch();
    while (callback_ != nullptr) {
      auto event = Take();
      if (!event) break;
      auto callback = std::move(callback_);
      callback_ = nullptr;
      callback(*std::move(event));
      if (alive.expired()) return;
    }
    pumping_ = false;
  }
  bool wanted() const { return callback_ != nullptr; }

 private:
  absl::AnyInvocable<void(absl::StatusOr<Event>)> callback_;
  bool pumping_ = false;
  core::Lifetime lifetime_;
};

// A source that ends at once.
template <class Event>
class EndedSource final : public core::EventSource<Event> {
 public:
  explicit EndedSource(absl::Status status) : status_(std::move(status)) {}
  void Next(absl::AnyInvocable<void(absl::StatusOr<Event>)> callback) override {
    callback(status_);
  }

 private:
  absl::Status status_;
};

}  // namespace callboard::server
