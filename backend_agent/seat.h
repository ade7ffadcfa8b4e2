// What the uplink knows of a seat: it takes calls, runs them one after another and tells what
// happens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "backend_agent/payload.h"
#include "callboard/v1/agent.pb.h"
#include "callboard/v1/types.pb.h"
#include "core/telemetry/trace_context.h"

namespace callboard::agent {

// One call as a seat is given it. Deadlines are instants of the loop's Now().
struct CallSpec {
  std::string call_id;
  uint32_t attempt = 1;
  std::string method;
  Payload params;  // raw JSON object, or empty
  bool notification = false;
  v1::Lane lane = v1::MAIN;
  std::string lane_name;  // for NAMED
  int priority = 0;
  std::string fair_key;
  std::string session_id;
  uint64_t expect_incarnation = 0;  // 0: any
  absl::Time queue_deadline = absl::InfiniteFuture();
  absl::Duration run_budget = absl::InfiniteDuration();
  bool wants_progress = false;
  bool read_only = false;
  bool idempotent = false;
  core::TraceContext trace;
  // Calls with one key share one MCP session at the backend; empty: the one of all others.
  std::string backend_session;
  std::string control_plane;  // the one that is to be asked in that session
  // Of the client, raw JSON: for a session of its own, and for backends of the 2026-07-28 era.
  std::string client_capabilities;
  std::string client_info;
  std::string log_level;
  bool modern = false;  // the client speaks that era
  // The Mcp-Param-* headers it sent: names in lower case without that prefix, and values.
  std::vector<std::pair<std::string, std::string>> param_headers;
};

// How a call ended at the seat.
struct CallEnd {
  v1::OutcomeClass outcome_class = v1::LOST;
  v1::Reason reason = v1::REASON_UNSPECIFIED;
  v1::Certainty certainty = v1::UNKNOWN;
  Payload body;
  v1::OutcomeFacts facts;
  absl::Duration queued;
  absl::Duration ran;
  std::string backend_revision;
};

// Told by a seat about its calls, in order, never from inside Submit() or Cancel(). Per call:
// any number of OnQueued, then at most one OnStarting, then events, then exactly one OnEnd.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Place in the queue: `ahead` calls go first.
  virtual void OnQueued(const std::string& call_id, uint32_t ahead) = 0;
  // The first byte is about to go to the DCC. False: it must not (the journal cannot be written);
  // the seat then ends the call as REJECTED, JOURNAL_UNWRITABLE, NOT_STARTED.
  virtual bool OnStarting(const std::string& call_id, uint64_t incarnation) = 0;
  // Raw params of notifications/progress without the progressToken, of notifications/message, of
  // any other notification tied to the call.
  virtual void OnProgress(const std::string& call_id, std::string raw_params) = 0;
  virtual void OnLog(const std::string& call_id, std::string raw_params) = 0;
  virtual void OnNotification(const std::string& call_id, std::string method,
                              std::string raw_params) = 0;
  // A request of the backend to the client of that call, to be answered by Seat::Answer with the
  // same number. It ends with the call at the latest.
  virtual void OnAsk(const std::string& call_id, uint64_t ask, std::string method,
                     std::string raw_params) = 0;
  // The backend no longer wants an answer to that ask. Params of its notifications/cancelled,
  // without the requestId.
  virtual void OnAskCancelled(const std::string& call_id, uint64_t ask, std::string raw_params) = 0;
  // The end as the caller is told it. When the caller's run budget ends while the DCC is still at
  // work this is EXPIRED with certainty RUNNING, and the slot stays taken until OnSlotFree.
  virtual void OnEnd(const std::string& call_id, CallEnd end) = 0;
  // After an OnEnd with certainty RUNNING: the DCC has answered (or died) at last.
  virtual void OnLateEnd(const std::string& call_id, CallEnd end) = 0;
};

// A request of the backend to the client of one session that belongs to none of its calls.
struct SeatAsk {
  uint64_t number = 0;  // for Seat::Answer
  std::string backend_session;
  std::string control_plane;  // as the last call of that session named it
  std::string method;
  std::string raw_params;
  absl::Duration wait;  // for the client; the seat waits a little longer
};

// Told about changes of seats. Loop thread only.
class SeatObserver {
 public:
  virtual ~SeatObserver() = default;
  // Something in State() has changed (coalesced by the uplink).
  virtual void OnSeatChanged(const std::string& seat_id) = 0;
  // A notification of the backend that belongs to no call.
  virtual void OnNotice(const std::string& seat_id, std::string method, std::string raw_params) = 0;
  // To be answered by Seat::Answer, now or later.
  virtual void OnSessionAsk(const std::string& seat_id, SeatAsk ask) = 0;
  // The seat has no use for the answer any more. Params of a notifications/cancelled for the
  // client, without the requestId.
  virtual void OnSessionAskOver(const std::string& seat_id, uint64_t ask,
                                std::string raw_params) = 0;
};

// One place of a DCC. Loop thread only; owned by the agent. Destroying it drops its calls silently.
class Seat {
 public:
  virtual ~Seat() = default;

  virtual const std::string& seat_id() const = 0;
  // The whole state as the wire carries it.
  virtual v1::SeatState State() const = 0;
  // {"tools":[...]} as last listed; empty until known. Its digest is State().catalogue_digest.
  virtual Payload Catalogue() const = 0;

  // Takes a call. Rejections (queue full, wrong incarnation, cordoned, backend down) come as OnEnd.
  virtual void Submit(CallSpec spec) = 0;
  // DROPPED: was queued; OnEnd(CANCELLED, NOT_STARTED) follows. DELIVERED: the backend was told,
  // and CANNOT_STOP: it runs on: the caller is told at once by OnEnd(CANCELLED, RUNNING), the slot
  // stays taken until the DCC answers, then OnLateEnd. OVER: not known here.
  virtual v1::CancelAck::Effect Cancel(const std::string& call_id, v1::Cancel::Why why) = 0;

  // The client's answer to OnAsk or OnSessionAsk: a raw result or a raw error object. One that is
  // over is ignored.
  virtual void Answer(uint64_t ask, bool is_error, Payload text) = 0;

  // What the control plane wants to hear of the backend from now on: its log level (empty: as the
  // backend likes) and its resources. Kept through restarts of the backend.
  virtual void SetInterest(const v1::Interest& interest) = 0;
  virtual void SetCordon(bool cordoned) = 0;
  // After a restart of the agent: an earlier run's call may still be at work in this DCC, so the
  // seat counts as busy until a probe of its main thread answers.
  virtual void AssumeBusy() = 0;
};

}  // namespace callboard::agent
