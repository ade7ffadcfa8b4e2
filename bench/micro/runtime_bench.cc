// What the event loop's parts cost: a post, a timer that is set and cancelled, a log of events.
#include <benchmark/benchmark.h>

#include <boost/asio/io_context.hpp>
#include <string>

#include "core/runtime/asio_event_loop.h"
#include "core/runtime/replay_log.h"
#include "core/runtime/timer_queue.h"

namespace callboard::core {
namespace {

void PostAndRun(benchmark::State& state) {
  AsioEventLoop loop;
  int64_t left = 0;
  for (auto _ : state) {
    left = 1'000;
    for (int i = 0; i < 1'000; ++i) {
      loop.Post([&] {
        if (--left == 0) loop.Stop();
      });
    }
    loop.io().restart();
    loop.Run();
  }
  state.SetItemsProcessed(state.iterations() * 1'000);
}
BENCHMARK(PostAndRun);

void TimerSetAndCancelled(benchmark::State& state) {
  TimerQueue queue;
  const absl::Time base = absl::UnixEpoch();
  int64_t i = 0;
  for (auto _ : state) {
    Timer timer = queue.Add(base + absl::Seconds(++i % 600), [] {});
    timer.Cancel();
    benchmark::DoNotOptimize(queue.NextDue());
  }
}
BENCHMARK(TimerSetAndCancelled);

void ReplayLogAppendAcknowledge(benchmark::State& state) {
  ReplayLog<std::string> log({.items_max = 4'096, .bytes_max = 1 << 20});
  const std::string event(200, 'e');
  for (auto _ : state) {
    const uint64_t number = log.Append(event, event.size());
    if (number % 16 == 0) log.Acknowledge(number);
  }
}
BENCHMARK(ReplayLogAppendAcknowledge);

}  // namespace
}  // namespace callboard::core
