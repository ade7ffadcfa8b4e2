// What one call costs as protobuf on the agent link, in both directions.
#include <benchmark/benchmark.h>

#include <string>

#include "callboard/v1/agent.pb.h"

namespace callboard {
namespace {

v1::ServerFrame DispatchFrame(size_t params_bytes) {
  v1::ServerFrame frame;
  frame.set_received(1'000'000);
  auto* dispatch = frame.add_items()->mutable_dispatch();
  dispatch->set_call_id(std::string(16, 'c'));
  dispatch->set_attempt(1);
  dispatch->set_owner_term(1'800'000'000'000);
  dispatch->set_seat_id(std::string(32, 'a'));
  dispatch->set_method("tools/call");
  dispatch->mutable_params()->set_inline_(std::string(params_bytes, 'p'));
  dispatch->set_kind(v1::Dispatch::REQUEST);
  dispatch->set_lane(v1::MAIN);
  dispatch->set_session_id(std::string(32, 's'));
  dispatch->set_fair_key(std::string(32, 's'));
  dispatch->set_queue_ms(600'000);
  dispatch->set_run_ms(120'000);
  return frame;
}

void DispatchRoundTrip(benchmark::State& state) {
  const v1::ServerFrame frame = DispatchFrame(static_cast<size_t>(state.range(0)));
  v1::ServerFrame parsed;
  std::string bytes;
  for (auto _ : state) {
    frame.SerializeToString(&bytes);
    benchmark::DoNotOptimize(parsed.ParseFromString(bytes));
  }
  state.counters["frame_bytes"] = static_cast<double>(bytes.size());
}
BENCHMARK(DispatchRoundTrip)->Arg(100)->Arg(1'000)->Arg(64 * 1'024);

void OutcomeRoundTrip(benchmark::State& state) {
  v1::AgentFrame frame;
  frame.set_received(1'000'000);
  auto* started = frame.add_items()->mutable_call_event();
  started->set_call_id(std::string(16, 'c'));
  started->set_attempt(1);
  started->set_n(1);
  started->mutable_started()->set_incarnation(1);
  auto* event = frame.add_items()->mutable_call_event();
  event->set_call_id(std::string(16, 'c'));
  event->set_attempt(1);
  event->set_n(2);
  event->mutable_outcome()->set_class_(v1::RESULT);
  event->mutable_outcome()->set_certainty(v1::FINISHED);
  event->mutable_outcome()->mutable_body()->set_inline_(
      std::string(static_cast<size_t>(state.range(0)), 'r'));
  v1::AgentFrame parsed;
  std::string bytes;
  for (auto _ : state) {
    frame.SerializeToString(&bytes);
    benchmark::DoNotOptimize(parsed.ParseFromString(bytes));
  }
}
BENCHMARK(OutcomeRoundTrip)->Arg(100)->Arg(1'000)->Arg(64 * 1'024);

}  // namespace
}  // namespace callboard
