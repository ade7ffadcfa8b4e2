// What seats say without a call, on its way to one control plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "backend_agent/frame_builder.h"

namespace callboard::agent {

// Keeps notices in order over cuts of the link and restarts of the control plane. To a control
// plane that acknowledges none (of an older build) they are written once. Pure table; owned by a
// SeatFeed::Port. Bounds: notices_max that say "look again" (of one kind one waits) and as many
// others; the oldest go, and the next of their seat says how many.
class NoticeQueue {
 public:
  explicit NoticeQueue(size_t notices_max) : notices_max_(notices_max) {}

  // `n` counts those of a seat that are kept until they are acknowledged; 0: another.
  void Add(const std::string& seat_id, uint64_t n, const std::string& method,
           const std::string& params);
  void RemoveSeat(const std::string& seat_id);

  void OnLinked(bool acknowledges);
  // What was written and not acknowledged is written again on the next link.
  void OnUnlinked();
  void OnAllReceived();
  void OnAck(std::string_view seat_id, uint64_t n);

  // Writes what the frame has room for.
  void Fill(FrameBuilder& frame, absl::FunctionRef<uint64_t(const std::string&)> incarnation_of);
  // To be written.
  size_t waiting() const { return kept_.size() - written_; }
  // Numbered ones given up so far.
  uint64_t lost() const { return lost_total_; }

 private:
  struct Kept {
    std::string seat_id;
    uint64_t n;
    uint64_t lost;  // before it
    std::string method;
    std::string params;
    bool was_written = false;
    bool look_again() const { return n == 0; }
  };

  void Lose(size_t index);
  void Erase(size_t index);

  const size_t notices_max_;
  std::deque<Kept> kept_;  // first those that have been written on this link
  size_t written_ = 0;
  std::map<std::string, uint64_t> lost_;  // by seat, since the newest that is kept
  uint64_t lost_total_ = 0;
  bool acknowledges_ = false;
};

}  // namespace callboard::agent
