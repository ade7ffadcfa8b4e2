// Counts the chunks of a body against the size that was announced for it.
#pragma once

#include <cstdint>

#include "callboard/v1/control.pb.h"

namespace callboard::bridge {

class BodyCountdown {
 public:
  void Start(uint64_t size) {
    left_ = size;
    running_ = true;
  }
  bool running() const { return running_; }

  // Ends with the byte that completes the size, whether or not that chunk says it is the last.
  // False if the chunk does not fit the announced size: the body is then of no use.
  bool Take(const v1::BodyChunk& chunk) {
    if (!running_ || chunk.bytes().size() > left_) return false;
    left_ -= chunk.bytes().size();
    if (chunk.last() && left_ > 0) return false;
    if (left_ == 0) running_ = false;
    return true;
  }

 private:
  uint64_t left_ = 0;
  bool running_ = false;
};

}  // namespace callboard::bridge
