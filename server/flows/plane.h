// What all flows of one control plane share: its ports, its configuration and its tables.
#pragma once

#include <memory>

#include "core/runtime/event_loop.h"
#include "core/runtime/offload.h"
#include "core/runtime/planted_bug.h"
#include "core/runtime/random.h"
#include "server/domain/elicitation_table.h"
#include "server/domain/execution_table.h"
#include "server/domain/request_table.h"
#include "server/domain/seat_registry.h"
#include "server/domain/session_table.h"
#include "server/domain/tool_catalog.h"
#include "server/flows/argument_check.h"
#include "server/flows/control_plane.h"
#include "server/flows/ready_queue.h"
#include "server/flows/store.h"

namespace callboard::server {

// Owned by ControlPlane::Impl, outlives the flows. Loop thread.
struct Plane {
  Plane(core::EventLoop& loop_in, core::Random& random_in, core::Offload& offload_in,
        Store& store_in, ControlPlaneConfig config_in)
      : loop(loop_in),
        random(random_in),
        offload(offload_in),
        store(store_in),
        config(std::move(config_in)),
        term(core::Planted(core::PlantedBug::kTermNotRaised) ? 1 : store.term()),
        seats(SeatRegistryLimits{}),
        sessions(config.limits, config.budgets, term),
        executions(config.limits, config.budgets),
        ready(std::make_shared<ReadyQueue>(loop)) {}

  // Between the loop's time and what is kept in the store, which other processes read.
  int64_t UnixMs(absl::Time when) const {
    return absl::ToUnixMillis(loop.WallNow() - (loop.Now() - when));
  }
  absl::Time FromUnixMs(int64_t ms) const {
    return loop.Now() - (loop.WallNow() - absl::FromUnixMillis(ms));
  }

  core::EventLoop& loop;
  core::Random& random;
  core::Offload& offload;
  Store& store;
  ControlPlaneConfig config;
  const uint64_t term;
  SeatRegistry seats;
  ToolCatalog catalog;
  ArgumentCheck argument_check;
  SessionTable sessions;
  ExecutionTable executions;
  RequestTable requests;
  ElicitationTable elicitations;
  std::shared_ptr<ReadyQueue> ready;
  bool draining = false;
};

}  // namespace callboard::server
