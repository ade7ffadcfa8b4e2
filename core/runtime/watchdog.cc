// Implementation of Watchdog.
#include "core/runtime/watchdog.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace callboard::core {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(10);
constexpr absl::Duration kPeriodMax = absl::Seconds(1);

// Time in which the machine was awake.
absl::Duration Awake() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace

Watchdog::Watchdog(EventLoop& loop, absl::Duration limit,
                   absl::AnyInvocable<void(absl::Duration)> on_hang)
    : loop_(loop),
      limit_(limit),
      period_(limit > absl::ZeroDuration() ? std::min(limit / 10, kPeriodMax) : kPeriodMax),
      on_hang_(std::move(on_hang)),
      interval_end_(loop.Now() + kInterval) {
  ScheduleBeat();
  if (limit_ > absl::ZeroDuration()) thread_ = std::thread([this] { Watch(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::ScheduleBeat() {
  due_ = loop_.Now() + period_ / 2;
  timer_ = loop_.At(due_, [this] { Beat(); });
}

void Watchdog::Beat() {
  const absl::Time now = loop_.Now();
  if (now >= interval_end_) {
    former_lag_ = std::exchange(lag_, absl::ZeroDuration());
    interval_end_ = now + kInterval;
  }
  lag_ = std::max(lag_, now - due_);
  beats_.fetch_add(1, std::memory_order_relaxed);
  ScheduleBeat();
}

absl::Duration Watchdog::loop_lag() const { return std::max(lag_, former_lag_); }

void Watchdog::Watch() {
  uint64_t seen = 0;
  absl::Duration silent = absl::ZeroDuration();
  absl::Duration last = Awake();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, absl::ToChronoNanoseconds(period_), [this] { return stopping_; })) {
    const absl::Duration now = Awake();
    const absl::Duration passed = now - std::exchange(last, now);
    const uint64_t beats = beats_.load(std::memory_order_relaxed);
    if (beats == 0) continue;
    if (std::exchange(seen, beats) != beats) {
      silent = absl::ZeroDuration();
      continue;
    }
    // If this thread was held up, so was the loop: of such a pause no more counts than of others.
    silent += std::min(passed, 2 * period_);
    if (silent < limit_) continue;
    lock.unlock();
    on_hang_(silent);
    return;
  }
}

}  // namespace callboard::core
