// Between bridge and control plane: checks that each source keeps the contract of control.proto.
#pragma once

#include <memory>

#include "bridge/control_plane_client.h"
#include "core/runtime/event_loop.h"
#include "tests/sim/store_witness.h"
#include "tests/sim/trace.h"

namespace callboard::sim {

// Forwards everything. Violates the trace when a call has two outcomes, anything but the chunks of
// its body after the outcome, a stream whose ids do not grow, or an event that the store may still
// lose. `witness` outlives it.
std::unique_ptr<bridge::ControlPlaneClient> MakeCheckedClient(
    core::EventLoop& loop, Trace& trace, StoreWitness& witness,
    std::unique_ptr<bridge::ControlPlaneClient> inner);

}  // namespace callboard::sim
