// How many bytes may be written to a link and not yet be confirmed: grows with bandwidth and delay.
#pragma once

#include <cstdint>
#include <deque>

#include "absl/time/time.h"

namespace callboard::core {

// Starts at `least` and follows one and a half times the product of the highest delivery rate of
// late and the lowest round trip of this link, between `least` and `most`. A path that is full
// delivers no faster the more is put in front of it, so the queue in front of it stays within half
// a round trip; a short path stays at `least`. Both sides of a stream use it with the peer's count
// of received bytes. Pure; loop thread.
class LinkWindow {
 public:
  LinkWindow(uint64_t least, uint64_t most) : least_(least), most_(most), limit_(least) {}

  // A frame was written; `total` bytes have been written on this link by now.
  void OnWritten(uint64_t total, absl::Time now);
  // The peer has received `total` bytes.
  void OnConfirmed(uint64_t total, absl::Time now);
  // A new link: nothing is known of its path.
  void Reset();

  uint64_t limit() const { return limit_; }

 private:
  struct Written {
    uint64_t total;
    absl::Time at;
    uint64_t confirmed;       // by the peer when it was written
    absl::Time confirmed_at;  // when that was confirmed
  };

  const uint64_t least_;
  const uint64_t most_;
  uint64_t limit_;
  std::deque<Written> written_;  // not confirmed; bounded by frames under way
  uint64_t confirmed_ = 0;
  absl::Time confirmed_at_ = absl::InfinitePast();
  double rate_ = 0;  // bytes a second, the highest of the present and the former period
  double former_rate_ = 0;
  absl::Duration round_trip_ = absl::InfiniteDuration();  // the lowest of this link
  absl::Time period_end_ = absl::InfinitePast();
};

}  // namespace callboard::core
