// Implementation of AsioEventLoop: all timers share one Asio timer armed for the earliest.
#include "core/runtime/asio_event_loop.h"

#include <time.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/time/clock.h"
#include "core/runtime/timer_queue.h"

namespace callboard::core {

namespace asio = boost::asio;

struct AsioEventLoop::Impl {
  // One thread runs it, and Post from other threads still needs its lock: hint 1.
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::steady_timer timer{io};
  TimerQueue queue;
  absl::Time armed_for = absl::InfiniteFuture();
};

namespace {

absl::Time ReadClock(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace

AsioEventLoop::AsioEventLoop() : impl_(std::make_unique<Impl>()) {}
AsioEventLoop::~AsioEventLoop() = default;

absl::Time AsioEventLoop::Now() const { return ReadClock(CLOCK_BOOTTIME); }
absl::Time AsioEventLoop::WallNow() const { return ReadClock(CLOCK_REALTIME); }

void AsioEventLoop::Post(absl::AnyInvocable<void()> fn) { asio::post(impl_->io, std::move(fn)); }

namespace {

// Fires what is due, at most 64 callbacks a turn, and arms the Asio timer for the next.
template <class Impl, class Loop>
void Pump(Impl* impl, Loop* loop) {
  for (int fired = 0; fired < 64; ++fired) {
    auto fn = impl->queue.PopDue(loop->Now());
    if (!fn) break;
    fn();
  }
  auto next = impl->queue.NextDue();
  if (!next) {
    impl->armed_for = absl::InfiniteFuture();
    return;
  }
  impl->armed_for = *next;
  impl->timer.expires_after(
      absl::ToChronoNanoseconds(std::max(absl::ZeroDuration(), *next - loop->Now())));
  impl->timer.async_wait([impl, loop](const boost::system::error_code& ec) {
    if (!ec) Pump(impl, loop);
  });
}

}  // namespace

Timer AsioEventLoop::After(absl::Duration delay, absl::AnyInvocable<void()> fn) {
  const absl::Time when = Now() + std::max(delay, absl::ZeroDuration());
  Timer timer = impl_->queue.Add(when, std::move(fn));
  if (when < impl_->armed_for) {
    impl_->armed_for = when;
    impl_->timer.expires_after(absl::ToChronoNanoseconds(std::max(absl::ZeroDuration(), delay)));
    impl_->timer.async_wait([this](const boost::system::error_code& ec) {
      if (!ec) Pump(impl_.get(), this);
    });
  }
  return timer;
}

void AsioEventLoop::Run() { impl_->io.run(); }
void AsioEventLoop::Stop() { impl_->io.stop(); }
boost::asio::io_context& AsioEventLoop::io() { return impl_->io; }

}  // namespace callboard::core
