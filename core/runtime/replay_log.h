// A numbered, bounded log: append gives a number, acknowledge trims, replay goes on after a number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace callboard::core {

// Serves a session's streams and a call's events on the link. Numbers start at 1 and have no
// holes. Beyond its bounds the log drops its oldest items and its floor rises; whoever then asks
// for less than the floor must be told of the gap (dropped_through()).
template <class T>
class ReplayLog {
 public:
  struct Limits {
    size_t items_max;
    size_t bytes_max;
  };

  explicit ReplayLog(Limits limits) : limits_(limits) {}

  // Appends and returns the item's number. `bytes` is what the item counts against bytes_max; one
  // item larger than the bound is kept alone.
  uint64_t Append(T item, size_t bytes) {
    items_.push_back({std::move(item), bytes});
    bytes_ += bytes;
    const uint64_t number = last();
    while (items_.size() > 1 && (items_.size() > limits_.items_max || bytes_ > limits_.bytes_max)) {
      DropOldest();
      dropped_through_ = floor_;
    }
    return number;
  }

  // Of an empty log: its next item has the number after that one.
  void StartAfter(uint64_t number) { floor_ = number; }

  // The peer has everything up to and including `number`.
  void Acknowledge(uint64_t number) {
    while (!items_.empty() && floor_ < number) DropOldest();
  }

  // The item of that number; nullptr when it is gone or not there yet.
  const T* Find(uint64_t number) const {
    if (number <= floor_ || number > last()) return nullptr;
    return &items_[static_cast<size_t>(number - floor_ - 1)].item;
  }
  T* Find(uint64_t number) { return const_cast<T*>(std::as_const(*this).Find(number)); }

  // Highest number that is gone, acknowledged or dropped; 0 at first.
  uint64_t floor() const { return floor_; }
  // Highest number that was dropped because of the bounds; 0 if none was.
  uint64_t dropped_through() const { return dropped_through_; }
  // Number of the newest item ever appended; 0 if none.
  uint64_t last() const { return floor_ + items_.size(); }
  size_t size() const { return items_.size(); }
  size_t bytes() const { return bytes_; }
  bool empty() const { return items_.empty(); }

 private:
  struct Slot {
    T item;
    size_t bytes;
  };

  void DropOldest() {
    bytes_ -= items_.front().bytes;
    items_.pop_front();
    ++floor_;
  }

  Limits limits_;
  std::deque<Slot> items_;
  size_t bytes_ = 0;
  uint64_t floor_ = 0;
  uint64_t dropped_through_ = 0;
};

}  // namespace callboard::core
