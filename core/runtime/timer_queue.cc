// Implementation of TimerQueue: a binary heap with lazy removal.
#include "core/runtime/timer_queue.h"

#include <algorithm>

namespace callboard::core {

Timer TimerQueue::Add(absl::Time when, absl::AnyInvocable<void()> fn) {
  SweepIfMostlyCancelled();
  auto entry = std::make_shared<Timer::Entry>();
  entry->fn = std::move(fn);
  heap_.push_back({when, next_order_++, entry});
  std::push_heap(heap_.begin(), heap_.end(), Later);
  return Timer(std::move(entry));
}

std::optional<absl::Time> TimerQueue::NextDue() {
  DropCancelledTop();
  if (heap_.empty()) return std::nullopt;
  return heap_.front().when;
}

absl::AnyInvocable<void()> TimerQueue::PopDue(absl::Time now) {
  DropCancelledTop();
  if (heap_.empty() || heap_.front().when > now) return nullptr;
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  auto entry = std::move(heap_.back().entry);
  heap_.pop_back();
  auto fn = std::move(entry->fn);
  entry->fn = nullptr;
  return fn;
}

void TimerQueue::DropCancelledTop() {
  while (!heap_.empty() && heap_.front().entry->fn == nullptr) {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    heap_.pop_back();
  }
}

void TimerQueue::SweepIfMostlyCancelled() {
  if (heap_.size() < sweep_at_) return;
  std::erase_if(heap_, [](const Node& node) { return node.entry->fn == nullptr; });
  std::make_heap(heap_.begin(), heap_.end(), Later);
  sweep_at_ = std::max<size_t>(1024, heap_.size() * 2);
}

}  // namespace callboard::core
