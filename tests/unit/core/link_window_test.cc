// Tests of how much may be under way on a link.
#include "core/runtime/link_window.h"

#include <gtest/gtest.h>

#include <deque>

namespace callboard::core {
namespace {

constexpr uint64_t kLeast = 256 << 10;
constexpr uint64_t kMost = 4 << 20;

// A path of a bandwidth and a delay each way, behind a sender that always has more to write.
class Path {
 public:
  Path(double bytes_per_second, absl::Duration one_way)
      : rate_(bytes_per_second), one_way_(one_way) {}

  // Sends for `time` in frames of 64 KiB and returns the bytes delivered.
  uint64_t Fill(LinkWindow& window, absl::Duration time) {
    constexpr absl::Duration kStep = absl::Microseconds(100);
    const uint64_t before = confirmed_;
    for (const absl::Time end = now_ + time; now_ < end; now_ += kStep) {
      while (!confirms_.empty() && confirms_.front().at <= now_) {
        confirmed_ = confirms_.front().total;
        window.OnConfirmed(confirmed_, now_);
        confirms_.pop_front();
      }
      while (sent_ - confirmed_ < window.limit()) {
        sent_ += 64 << 10;
        window.OnWritten(sent_, now_);
        free_at_ = std::max(free_at_, now_) + absl::Seconds((64 << 10) / rate_);
        queue_max_ = std::max(queue_max_, free_at_ - now_);
        confirms_.push_back({free_at_ + 2 * one_way_, sent_});
      }
    }
    return confirmed_ - before;
  }
  absl::Duration queue_max() const { return queue_max_; }

 private:
  struct Confirm {
    absl::Time at;
    uint64_t total;
  };
  double rate_;
  absl::Duration one_way_;
  absl::Time now_ = absl::UnixEpoch();
  absl::Time free_at_ = absl::UnixEpoch();
  absl::Duration queue_max_;
  uint64_t sent_ = 0;
  uint64_t confirmed_ = 0;
  std::deque<Confirm> confirms_;
};

TEST(LinkWindow, ShortPathStaysAtTheLeast) {
  LinkWindow window(kLeast, kMost);
  Path path(125e6, absl::Microseconds(20));
  path.Fill(window, absl::Seconds(2));
  EXPECT_EQ(window.limit(), kLeast);
}

TEST(LinkWindow, LongFatPathIsFilled) {
  LinkWindow window(kLeast, kMost);
  Path path(50e6, absl::Milliseconds(15));  // 400 Mbit/s, 30 ms: 1.5 MB under way
  path.Fill(window, absl::Seconds(2));
  const uint64_t delivered = path.Fill(window, absl::Seconds(1));
  EXPECT_GT(delivered, 45'000'000u);
}

TEST(LinkWindow, QueueInFrontOfALongTransferStaysWithinARoundTrip) {
  LinkWindow window(kLeast, kMost);
  Path path(25e6, absl::Milliseconds(10));
  path.Fill(window, absl::Seconds(120));
  EXPECT_LT(path.queue_max(), absl::Milliseconds(45));
}

TEST(LinkWindow, NeverExceedsTheMost) {
  LinkWindow window(kLeast, kMost);
  Path path(1e9, absl::Milliseconds(100));
  path.Fill(window, absl::Seconds(5));
  EXPECT_EQ(window.limit(), kMost);
}

TEST(LinkWindow, NewLinkStartsAtTheLeast) {
  LinkWindow window(kLeast, kMost);
  Path path(1e9, absl::Milliseconds(100));
  path.Fill(window, absl::Seconds(5));
  window.Reset();
  EXPECT_EQ(window.limit(), kLeast);
}

}  // namespace
}  // namespace callboard::core
