// Asks for large results again, some time after their callers had them: whole, or gone with a
// reason.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bridge/control_plane_client.h"
#include "core/runtime/event_loop.h"
#include "tests/sim/trace.h"

namespace callboard::sim {

// Outlives the clients that it asks by, as they come and go. Loop thread only. Bounded by the calls
// of a world.
class LaterFetches {
 public:
  LaterFetches(core::EventLoop& loop, Trace& trace) : loop_(loop), trace_(trace) {}

  void AddClient(bridge::ControlPlaneClient* client) { clients_.push_back(client); }
  void RemoveClient(bridge::ControlPlaneClient* client) {
    std::erase(clients_, client);
    for (const auto& run : std::exchange(runs_, {})) {
      if (run->client != client) {
        runs_.push_back(run);
      } else if (!run->done) {
        Again(run->call_id, run->size, run->beginning, absl::Seconds(1));
      }
    }
  }
  // A call has ended with a body of that size, of which its caller has had the beginning.
  void Add(std::string call_id, uint64_t size, std::string beginning) {
    const auto wait = absl::Milliseconds(static_cast<int64_t>(200 * (1 + ++added_ % 40)));
    Again(std::move(call_id), size, std::move(beginning), wait);
  }

 private:
  struct Run {
    std::string call_id;
    uint64_t size = 0;
    std::string beginning;
    std::string body;
    bool has_outcome = false;
    bool done = false;
    bridge::ControlPlaneClient* client = nullptr;
    std::unique_ptr<core::EventSource<v1::InvokeEvent>> source;
  };

  void Again(std::string call_id, uint64_t size, std::string beginning, absl::Duration wait) {
    while (!timers_.empty() && !timers_.front().pending()) timers_.pop_front();
    timers_.push_back(loop_.After(wait, [this, call_id = std::move(call_id), size,
                                         beginning = std::move(beginning)]() mutable {
      Begin(std::move(call_id), size, std::move(beginning));
    }));
  }
  void Begin(std::string call_id, uint64_t size, std::string beginning) {
    if (clients_.empty()) {
      return Again(std::move(call_id), size, std::move(beginning), absl::Seconds(1));
    }
    std::erase_if(runs_, [](const std::shared_ptr<Run>& run) { return run->done; });
    auto run = std::make_shared<Run>();
    run->call_id = std::move(call_id);
    run->size = size;
    run->beginning = std::move(beginning);
    v1::CallRef ref;
    ref.set_call_id(run->call_id);
    run->client = clients_.back();
    run->source = run->client->FetchOutcome(ref);
    runs_.push_back(run);
    Pull(run);
  }
  void Pull(const std::shared_ptr<Run>& run) {
    run->source->Next([this, weak = std::weak_ptr(run)](absl::StatusOr<v1::InvokeEvent> event) {
      if (auto locked = weak.lock()) OnEvent(locked, event);
    });
  }
  void OnEvent(const std::shared_ptr<Run>& run, const absl::StatusOr<v1::InvokeEvent>& event) {
    if (!event.ok()) return OnEnd(*run, event.status());
    if (event->has_outcome()) {
      run->has_outcome = true;
      const v1::CallOutcome& outcome = event->outcome();
      if (!outcome.body().has_size() && outcome.message().empty()) {
        trace_.Violate(kInvariant, "no body, and nothing says why: " + outcome.ShortDebugString());
      }
      if (outcome.body().has_size() && outcome.body().size() != run->size) {
        trace_.Violate(kInvariant,
                       fmt::format("{} bytes, not {}", outcome.body().size(), run->size));
      }
      if (!outcome.body().has_size()) trace_.Total("large results said to be gone");
    }
    if (event->has_chunk()) run->body.append(event->chunk().bytes());
    Pull(run);
  }
  void OnEnd(Run& run, const absl::Status& status) {
    run.done = true;
    if (absl::IsNotFound(status)) return;  // its receipt has expired
    if (!absl::IsOutOfRange(status)) {
      return Again(run.call_id, run.size, run.beginning, absl::Seconds(2));
    }
    if (!run.has_outcome) trace_.Violate(kInvariant, "it ends without an outcome");
    if (run.body.empty()) return;
    if (run.body.size() != run.size || !run.body.starts_with(run.beginning)) {
      trace_.Violate(kInvariant, fmt::format("{} of {} bytes, or others than its caller had",
                                             run.body.size(), run.size));
    }
    trace_.Total("large results fetched");
  }

  static constexpr std::string_view kInvariant =
      "a large result that is kept is given back whole, or said to be gone with a reason";

  core::EventLoop& loop_;
  Trace& trace_;
  std::vector<bridge::ControlPlaneClient*> clients_;
  uint64_t added_ = 0;
  std::deque<core::Timer> timers_;
  std::vector<std::shared_ptr<Run>> runs_;
};

}  // namespace callboard::sim
