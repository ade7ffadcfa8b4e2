// What the control plane holds of one call until its outcome has been delivered.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "callboard/v1/agent.pb.h"
#include "callboard/v1/control.pb.h"
#include "callboard/v1/store.pb.h"
#include "core/runtime/event_loop.h"
#include "server/domain/ids.h"
#include "server/domain/stream.h"

namespace callboard::server {

class InvokeSource;

// The body of an outcome on its way from the agent to a reader. Holds at most a window.
struct OutcomeBody {
  uint64_t size = 0;
  uint64_t received = 0;  // contiguous bytes from the agent
  uint64_t taken = 0;     // handed to the reader
  uint64_t consumed = 0;  // done with by the reader
  std::deque<std::string> pieces;
  bool restarting = false;  // asked of the agent anew; its outcome's header is to come first
  bool lost = false;
  bool elsewhere = false;  // what came last was taken for whoever asks later

  bool complete() const { return received == size; }
};

// The body of any other event, put together here.
struct EventBody {
  bool active = false;
  bool dropped = false;  // larger than we keep: only counted through
  v1::CallEvent event;
  uint64_t size = 0;
  uint64_t received = 0;
  std::string bytes;
};

enum class CallStep {
  kWaiting,    // for its seat's link
  kRetryWait,  // for the time of the next attempt
  kStoring,    // for the store to know that it may be sent
  kInOutbox,   // to be written to the agent
  kSent,
  kAsking,  // for its client's answers, without which its backend does not go on; nothing runs
};

// Plain data of CallFlow, which owns it. Lives from Invoke until the outcome counts as delivered.
struct LiveCall {
  // What its caller is told of its state at most, where it is no event of a stream.
  static constexpr absl::Duration kStatusEvery = absl::Seconds(1);

  CallId id;
  uint64_t order = 0;
  v1::InvokeRequest request;
  std::shared_ptr<const std::string> params;  // of the request, if too large to go inline
  std::string seat_id;
  std::string agent_id;
  std::string journal_id;  // the agent's when the call was written to it
  std::string tool;
  bool read_only = false;
  bool idempotent = false;
  v1::Lane lane = v1::FREE;
  uint64_t expect_incarnation = 0;
  absl::Duration queue_budget;
  absl::Duration run_budget;

  absl::Time created;
  absl::Time hard_at;
  absl::Time accept_at = absl::InfiniteFuture();
  absl::Time sent_at = absl::InfiniteFuture();  // when the run budget began to count
  absl::Time started_at = absl::InfiniteFuture();
  absl::Time retry_at = absl::InfiniteFuture();
  absl::Time note_at = absl::InfiniteFuture();    // the caller is told what it waits for then
  absl::Time cancel_by = absl::InfiniteFuture();  // the agent answers a Cancel until then
  absl::Time exit_by = absl::InfiniteFuture();    // the agent tells how the DCC ended until then
  absl::Time asks_by = absl::InfiniteFuture();    // asks wait until then for a client that has left
  v1::Reason cancel_reason = v1::CANCELLED_BY_CLIENT;

  CallStep step = CallStep::kWaiting;
  uint32_t attempt = 1;
  bool ever_started = false;  // in any attempt
  bool queued = false;
  bool started = false;
  uint32_t ahead = 0;
  uint32_t notes = 0;          // how often the caller was told its place
  std::string shown_progress;  // the newest value of progress it was told, raw; "": none
  // A former control plane may have shown more than that: of a further attempt none is told.
  bool progress_lost = false;
  bool progress_muted = false;
  absl::Time last_note = absl::InfinitePast();
  uint64_t incarnation = 0;

  uint64_t have_n = 0;  // events of this attempt taken up to here
  EventBody event_body;
  bool outcome_seen = false;
  bool job_open = false;  // the agent goes on with it after the outcome
  uint64_t outcome_n = 0;
  OutcomeBody body;
  bool ended = false;  // towards the caller
  // Attempts that were made because one before them was lost; the rounds are its backend's wish.
  uint32_t tries() const { return attempt - round.number(); }
  // After an end that is not its agent's own it goes on over there; what comes is acknowledged.
  bool goes_on() const { return !ended || (step == CallStep::kSent && !outcome_seen); }

  InvokeSource* source = nullptr;
  std::shared_ptr<Stream> stream;
  std::set<uint64_t> asks;  // open ones, by ask_n
  // What the agent may not have got, by ask_n: said again after a cut. Bounded by asks_max.
  std::map<uint64_t, v1::AskAnswer> answers;
  // Of a caller without a session that can be asked: those of asks as it is told them, raw JSON,
  // and what its next request has to be to bring the answers.
  std::map<uint64_t, std::string> parked;
  std::string parked_binding;
  bool was_parked = false;  // it has a record
  bool comes_back = false;  // parked: another request is to bring the answers
  // ---- of a task ----
  bool as_task = false;         // what is parked is asked for, and answered, by the call's id
  std::set<uint64_t> unstored;  // of asks: those that are not shown, as the store lacks them
  v1::InputRound round;         // of a backend that requires input in place of a result

  uint32_t window = 0;
  uint64_t window_used = 0;  // consumed since the window was last raised
  bool window_changed = false;
  bool ack_waiting = false;
  uint64_t acked_n = 0;
  uint64_t acked_offset = 0;

  // ---- what outlives this control plane ----
  bool recorded = false;         // a CallRecord has been put
  std::string recorded_journal;  // and names this journal
  bool may_be_sent = false;      // a durable CallRecord names the journal
  bool record_kept = false;      // after the end, until the outcome is delivered
  bool counted = false;          // among its session's started calls
  bool job = false;              // somebody relies on finding it: it outlives its session's grace
  bool job_stored = false;       // and the store knows

  // ---- of a call that a former control plane began ----
  bool former = false;       // its agent has not said yet what it holds of it
  bool params_lost = false;  // too large to have been stored
  bool all_stored = false;   // nothing was shown beyond have_n
  bool may_jump = false;     // the first event may have any number: what was acknowledged is gone
  uint64_t hold_to = 0;      // progress up to here may have been shown already
  std::optional<std::pair<uint64_t, std::string>> held_progress;  // the newest of it

  absl::Time last_status = absl::InfinitePast();
  absl::Time status_at = absl::InfiniteFuture();  // the newest that is not shown yet is, then

  core::Timer timer;
  absl::Time timer_at = absl::InfiniteFuture();
};

}  // namespace callboard::server
