// What it costs to make receipts and waited events durable in the SQLite store, its thread
// included.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "core/runtime/asio_event_loop.h"
#include "core/runtime/offload.h"
#include "server/store/sqlite_store.h"

namespace callboard::server {
namespace {

// A store in a new folder of the working directory, so that the disk is the one people mean.
class BenchStore {
 public:
  explicit BenchStore(bool sync_full) {
    std::filesystem::create_directories(kFolder);
    SqliteStoreConfig config;
    config.path = fmt::format("{}/callboard.db", kFolder);
    config.new_cluster_id = "bench";
    config.sync_full = sync_full;
    auto opened = SqliteStore::Open(loop_, core::MakeThreadOffload(loop_), config);
    if (opened.ok()) store_ = *std::move(opened);
  }
  ~BenchStore() {
    store_ = nullptr;
    std::filesystem::remove_all(kFolder);
  }

  SqliteStore* store() { return store_.get(); }
  core::AsioEventLoop& loop() { return loop_; }
  void RunUntilStopped() {
    loop_.io().restart();
    loop_.Run();
  }

 private:
  static constexpr char kFolder[] = "bench_store";
  core::AsioEventLoop loop_;
  std::unique_ptr<SqliteStore> store_;
};

// Receipts as they come in 50 ms at 20 000 a second: appended without waiting, committed together.
void ReceiptsHeldTogether(benchmark::State& state) {
  BenchStore bench(false);
  if (bench.store() == nullptr) return state.SkipWithError("the store cannot be opened");
  const auto count = static_cast<int>(state.range(0));
  const std::string receipt(300, 'r');
  uint64_t number = 0;
  for (auto _ : state) {
    bench.loop().Post([&] {
      uint64_t position = 0;
      for (int i = 0; i < count; ++i) {
        position = bench.store()->Append({{fmt::format("receipts/{:016x}", ++number), receipt}});
      }
      bench.store()->WhenDurable(position, [&](const absl::Status&) { bench.loop().Stop(); });
    });
    bench.RunUntilStopped();
  }
  state.SetItemsProcessed(state.iterations() * count);
}
BENCHMARK(ReceiptsHeldTogether)->Arg(50)->Arg(1'000)->MeasureProcessCPUTime()->UseRealTime();

// `range(0)` streams, each of which waits for its event before it appends the next; 600 bytes each.
void WaitedEvents(benchmark::State& state) {
  BenchStore bench(state.range(1) != 0);
  if (bench.store() == nullptr) return state.SkipWithError("the store cannot be opened");
  constexpr int kEvents = 1'000;
  const std::string event(600, 'e');
  uint64_t number = 0;
  int left = 0;
  absl::AnyInvocable<void(uint64_t)> next = [&](uint64_t stream) {
    const uint64_t position =
        bench.store()->Append({{fmt::format("event/{:04x}/{:016x}", stream, ++number), event}});
    bench.store()->WhenDurable(position, [&, stream](const absl::Status&) {
      if (--left == 0) return bench.loop().Stop();
      if (left >= state.range(0)) next(stream);
    });
  };
  for (auto _ : state) {
    left = kEvents;
    bench.loop().Post([&] {
      for (int64_t i = 0; i < state.range(0); ++i) next(static_cast<uint64_t>(i));
    });
    bench.RunUntilStopped();
  }
  state.SetItemsProcessed(state.iterations() * kEvents);
  state.counters["commits"] = static_cast<double>(bench.store()->gauges().commits) /
                              static_cast<double>(state.iterations());
}
BENCHMARK(WaitedEvents)
    ->ArgNames({"streams", "full"})
    ->Args({1, 0})
    ->Args({16, 0})
    ->Args({256, 0})
    ->Args({1, 1})
    ->Args({16, 1})
    ->Args({256, 1})
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace callboard::server
