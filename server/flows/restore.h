// What the store holds at the start of a control plane, back in its tables.
#pragma once

#include "absl/status/status.h"
#include "server/flows/call_flow.h"
#include "server/flows/durable_log.h"
#include "server/flows/kept_bodies.h"
#include "server/flows/notice_intake.h"
#include "server/flows/plane.h"
#include "server/flows/receipts.h"
#include "server/flows/seat_audience.h"
#include "server/flows/seat_keeper.h"
#include "server/flows/tool_selections.h"

namespace callboard::server {

// Where what the store holds goes.
struct RestoredTables {
  Plane& plane;
  DurableLog& durable;
  KeptBodies& bodies;
  Receipts& receipts;
  SeatAudience& audience;
  ToolSelections& selections;
  SeatKeeper& seats;
  NoticeIntake& notices;
  CallFlow& flow;
};

// Once, before anything else happens. Events stay in the store: what they are is noted, and readers
// fetch them. Records that no longer belong to anything are erased.
absl::Status RestoreTables(const RestoredTables& tables);

}  // namespace callboard::server
