// Events that are fetched before their consumer asks, so that those which come together pass
// together.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace callboard::core {

// Between two threads, or a stream's write under way and the next: its owner has the lock. Bounded:
// has_room() ends when more than kBytesMax wait (one event may exceed it), or behind an event that
// nothing may follow before it is consumed. A reference to front() stays valid until Pop().
template <class Event>
class AheadQueue {
 public:
  static constexpr size_t kBytesMax = 8 * 1024;

  // `followed`: the next event may be fetched before this one is consumed.
  void Push(Event event, bool followed) {
    const size_t bytes = event.ByteSizeLong();
    bytes_ += bytes;
    followed_ = followed;
    events_.push_back({std::move(event), bytes});
  }
  Event& front() { return events_.front().event; }
  Event Pop() {
    Event event = std::move(events_.front().event);
    bytes_ -= events_.front().bytes;
    events_.pop_front();
    return event;
  }
  size_t size() const { return events_.size(); }
  bool empty() const { return events_.empty(); }
  // Whether another may be fetched although nobody waits for it.
  bool has_room() const { return followed_ && bytes_ <= kBytesMax; }

 private:
  struct Slot {
    Event event;
    size_t bytes;
  };
  std::deque<Slot> events_;
  size_t bytes_ = 0;
  bool followed_ = false;
};

}  // namespace callboard::core
