// Fills one frame of the agent link up to its bound.
#pragma once

#include <cstddef>
#include <cstdint>

#include "callboard/v1/agent.pb.h"
#include "google/protobuf/message.h"

namespace callboard::agent {

// What a frame counts in `received`: both ends count the same, whatever carries it.
inline uint64_t PacingBytes(const google::protobuf::Message& frame) { return frame.ByteSizeLong(); }

// More than all fields of an item but its variable text may take.
inline constexpr size_t kItemOverhead = 128;

// Lives for the filling of one frame. Loop thread only.
class FrameBuilder final {
 public:
  explicit FrameBuilder(size_t bytes_max) : whole_max_(bytes_max), bytes_max_(bytes_max) {}

  // The item is to be filled before the next call of any method.
  v1::AgentItem* Add() { return frame_.add_items(); }
  bool empty() const { return frame_.items_size() == 0; }

  size_t bytes() {
    for (; counted_ < frame_.items_size(); ++counted_) {
      bytes_ += frame_.items(counted_).ByteSizeLong() + kItemPrefix;
    }
    return bytes_;
  }
  size_t room() {
    const size_t used = bytes();
    return used < bytes_max_ ? bytes_max_ - used : 0;
  }
  // Narrows the frame to what it holds now and `more` bytes.
  void Narrow(size_t more) {
    const size_t limit = bytes() + more;
    if (limit < bytes_max_) bytes_max_ = limit;
  }

  // Takes Narrow() back.
  void Widen() { bytes_max_ = whole_max_; }

  v1::AgentFrame& frame() { return frame_; }

 private:
  // Tag and length of an item, and once a frame's own `received` (at most 11 bytes).
  static constexpr size_t kItemPrefix = 5;
  static constexpr size_t kFramePrefix = 11;

  size_t whole_max_;
  size_t bytes_max_;
  size_t bytes_ = kFramePrefix;
  int counted_ = 0;
  v1::AgentFrame frame_;
};

}  // namespace callboard::agent
