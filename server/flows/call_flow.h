// Every call from Invoke to its delivered outcome: admission, dispatch, events, budgets, ends.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/runtime/event_source.h"
#include "core/runtime/lifetime.h"
#include "server/domain/elicitation_table.h"
#include "server/flows/agent_directory.h"
#include "server/flows/durable_log.h"
#include "server/flows/kept_bodies.h"
#include "server/flows/live_call.h"
#include "server/flows/plane.h"
#include "server/flows/receipts.h"
#include "server/flows/request_state.h"
#include "server/flows/seat_audience.h"
#include "server/flows/tool_selections.h"

namespace callboard::server {

class OutcomeSource;

// Loop thread, owned by ControlPlane::Impl. Bounds: open_executions_max calls, per session
// calls_per_session_max; a call holds at most a window of its outcome's body. No consumer is called
// from inside (see ReadyQueue).
//
// Sources: call_invoke.cc (admission), call_dispatch.cc (towards the agent, after cuts),
// call_events.cc (from the agent), call_asks.cc (what it asks), call_streams.cc (streams and
// bodies, towards readers), call_end.cc (budgets, cancel, end, settle), call_durable.cc (what the
// store is told, calls of a former control plane), call_keys.cc (idempotency keys), call_park.cc
// and call_task.cc (clients without a session that are asked).
class CallFlow final : public AgentCalls {
 public:
  static constexpr size_t kInlineMax = 64 << 10;  // bytes of a body; one beyond goes in chunks

  using Hook = absl::AnyInvocable<void(const CallId&)>;
  // `ended_hook` runs when a call has ended, `asked_hook` when a task asks for something else than
  // before; they must not call back into the flow.
  CallFlow(Plane& plane, DurableLog& durable, KeptBodies& bodies, Receipts& receipts,
           SeatAudience& audience, ToolSelections& selections, Hook ended_hook, Hook asked_hook);
  ~CallFlow() override;
  void SetAgents(AgentDirectory* agents) { agents_ = agents; }

  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Invoke(v1::InvokeRequest request);

  // By the client's id. False: no such request is open.
  bool CancelRequest(const std::string& session_id, const std::string& request_id);
  bool CancelById(const CallId& id, v1::Cancel::Why why, v1::Reason reason);
  // Somebody relies on finding an open call again, and its outcome: the store is told, and the
  // call outlives its session's grace. `kept` runs once that is durable, or with the store's error;
  // at once for a call that is kept already, or over.
  void Keep(const CallId& id, absl::AnyInvocable<void(absl::Status)> kept);

  // ---- calls of clients without a session that go on as tasks ----
  // From now on it is by its id that the client learns what it is asked. To be kept then.
  void MakeTask(const CallId& id);
  // What the client is asked that the store knows of, raw JSON by key.
  std::map<std::string, std::string> InputRequests(const CallId& id) const;
  // Raw JSON, an object by these keys. False: there is no such task, or it is over.
  absl::StatusOr<bool> TakeInput(const CallId& id, std::string_view responses);

  bool Answer(const std::string& session_id, const v1::AskAnswer& answer);
  bool Notify(Session& session, const v1::Notify& notify);

  // A user is through with what a backend had asked it to do outside its client, which is told.
  // True: it is in a stream and durable with it.
  bool TellElicited(const std::string& seat_id, const std::string& params);

  // What the backend asks its user to do outside its client; `raw` has the id. Without `call` none
  // was its cause.
  void NoteElicitation(const std::string& seat_id, const std::string& session_id,
                       std::string_view raw, const CallId& call = {});
  // Until when a client that has left, or that a restart has cut off, may come back and answer.
  absl::Time AwaitedUntil(const Stream& stream) const;

  // Ends all calls of a session and its readers, then forgets it.
  void CloseSession(const std::string& session_id, const char* reason);
  // Cancels what has not started, but for jobs; the id stays.
  void SuspendSession(Session& session);
  // Requests to clients that are not answered, of all calls.
  size_t open_asks() const;
  // Streams whose grace is over.
  void Sweep();
  // What is known of the open calls and their streams goes to the store: an orderly end follows.
  void PutAll();

  // ---- at start, after sessions, streams and receipts ----
  struct StoredOutcome {
    v1::CallOutcome outcome;  // without its inline body
    uint64_t call_n = 0;
  };
  // What the stored events of its stream tell.
  struct StoredEvents {
    uint64_t have_n = 0;   // of its present attempt
    std::string progress;  // the newest value, raw; "": none
  };
  // `outcome`: it has one.
  void Restore(const CallId& id, const v1::CallRecord& record, const StoredEvents& events,
               const StoredOutcome* outcome);

  // ---- for the sources ----
  const core::Lifetime& lifetime() const { return lifetime_; }
  Plane& plane() { return plane_; }
  DurableLog& durable() { return durable_; }
  Receipts& receipts() { return receipts_; }
  KeptBodies& bodies() { return bodies_; }
  struct Piece {
    std::string bytes;
    bool last = false;
  };
  std::optional<Piece> TakePiece(const CallId& id);
  enum class BodyState { kReady, kComing, kGone };
  // Makes the body of an ended call start at its beginning for a new reader.
  BodyState PrepareBody(const CallId& id);
  BodyState StateOfBody(const CallId& id) const;
  void OnConsumed(const CallId& id, uint64_t body_bytes);
  void OnDelivered(const CallId& id);
  // `lost`: its consumer is gone, not replaced. Nothing happens if it is the call's source no more.
  void OnSourceGone(const CallId& id, const InvokeSource* source, bool lost);
  // A call's outcome for somebody else; nullopt while it is open. `reply` runs inline or later.
  using OutcomeReply = absl::AnyInvocable<void(v1::CallOutcome)>;
  // What whoever waits for it is told to know how long that may take.
  v1::Accepted AcceptanceOf(const CallId& id) const;
  void Follow(const CallId& id, OutcomeSource* source);
  void Unfollow(const CallId& id, OutcomeSource* source);
  void OutcomeOf(const CallId& id, OutcomeReply reply);
  void OnReaderGone(Stream& stream);
  // To a reader that has just come and wants it: the present state.
  void ShowStatusSoon(const CallId& id);
  void AddReader(const std::string& session_id);
  void RemoveReader(const std::string& session_id);

  // ---- AgentCalls ----
  bool FillDispatch(const CallId& id, v1::Dispatch& dispatch,
                    std::shared_ptr<const std::string>& body) override;
  bool FillAck(const CallId& id, v1::AckEntry& entry) override;
  void OnLinkUp(const std::string& agent_id, AgentSession& link) override;
  void OnLinkDown(const std::string& agent_id) override;
  void OnCallState(AgentSession& link, const v1::CallState& state) override;
  void OnCallEvent(AgentSession& link, v1::CallEvent& event) override;
  void OnChunk(AgentSession& link, v1::Chunk& chunk) override;
  void OnCancelAck(AgentSession& link, const v1::CancelAck& ack) override;
  void OnSeatUp(const std::string& seat_id) override;
  void OnNewIncarnation(const std::string& seat_id, uint64_t incarnation) override;
  void OnSeatDown(const std::string& seat_id, const std::string& why) override;
  void OnTurnEnd() override { durable_.Flush(); }

 private:
  using Calls = std::map<uint64_t, std::unique_ptr<LiveCall>>;

  LiveCall* Find(const CallId& id) const;
  // Whether that call is at the agent of that link, or at none: what one agent says of the calls
  // of another is ignored.
  bool MayTellOf(AgentSession& link, const CallId& id, const LiveCall* call) const;
  absl::Time Now() const { return plane_.loop.Now(); }
  absl::Duration Slack() const;

  // call_invoke.cc
  struct Refusal {
    v1::Reason reason;
    std::string message;
  };
  std::optional<Refusal> Admit(LiveCall& call, Session* session);
  // Of selected tools, of a session or of a request without one (nullptr): to the seat and tool
  // that the name stands for.
  std::optional<Refusal> RouteByName(v1::InvokeRequest& request, const Session* session);
  std::optional<Refusal> AdmitTool(LiveCall& call, const SeatRecord& seat, Session* session);
  std::optional<Refusal> CheckPin(LiveCall& call, const SeatRecord& seat, Session& session);
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Refuse(const v1::InvokeRequest& request,
                                                             Refusal refusal);

  // call_park.cc
  static std::string ParkBinding(const v1::InvokeRequest& request, const std::string& seat_id);
  void TakeAskOfParked(LiveCall& call, uint64_t n, const v1::Ask& ask, std::string params);
  // Answers its caller that input is required; the call goes on without one.
  void Park(LiveCall& call);
  // The call that a request brings answers for; nullptr: it brings none of ours.
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Resume(const v1::InvokeRequest& request);

  // call_task.cc
  using Responses = std::vector<std::pair<uint64_t, std::string_view>>;
  // Of what is parked, by the number of the ask; InvalidArgument: one is no object.
  static absl::StatusOr<Responses> FindResponses(const LiveCall& call, std::string_view responses);
  void TakeResponses(LiveCall& call, const Responses& responses);
  // All that is parked, raw JSON by key.
  static std::string ParkedRequests(const LiveCall& call);
  // Records the call; what it asks anew is shown once the store knows.
  void ShowAsked(LiveCall& call);
  void TellInput(const LiveCall& call);
  static bool RequiresInput(const LiveCall& call, const v1::Outcome& outcome);
  void AskForInput(LiveCall& call, const std::string& result);
  static bool AwaitsInput(const v1::InputRound& round);
  // The request once more, with what the round has brought.
  static std::string RoundParams(const LiveCall& call);
  void SendRound(LiveCall& call);

  // call_dispatch.cc
  void Send(LiveCall& call);
  void NextAttempt(LiveCall& call);
  void Retry(LiveCall& call, absl::Duration delay, const std::string& why);
  // The agent has not taken it because it is stopping: it is sent to whoever comes next.
  void AwaitSeat(LiveCall& call);
  // What the call ran on is gone: may it be sent again? Counts those that have had all attempts.
  bool MayRetry(const LiveCall& call, absl::Duration delay);
  absl::Duration RetryDelay(uint32_t attempt);
  void GiveVerdict(AgentSession& link, const v1::CallState& state);
  void EndLostOrphans(const std::string& agent_id,
                      const absl::flat_hash_map<CallId, uint32_t>& held, v1::Reason reason,
                      std::string_view message);
  void SweepOrphans();
  void AddVerdict(AgentSession& link, const CallId& id, uint32_t attempt,
                  v1::Verdict::Decision decision, uint64_t have_n = 0, uint64_t have_offset = 0);
  void Continue(AgentSession& link, const LiveCall& call);
  void OnMissing(LiveCall& call, const std::string& journal_id);
  void AckLater(LiveCall& call);
  std::pair<uint64_t, uint64_t> AckPoint(const LiveCall& call) const;
  // What comes of a call that nobody reads any more.
  void AckUnread(AgentSession& link, const CallId& id, uint32_t attempt, uint64_t n,
                 uint64_t offset);

  void LeaveWaiting(const LiveCall& call);
  void CountStarted(LiveCall& call);
  void UncountStarted(LiveCall& call);
  // Nothing is sent that might be sent again after a restart without the store knowing of it.
  bool StoreFirst(LiveCall& call, const std::string& journal_id);

  // call_keys.cc
  std::string KeyScope(const LiveCall& call, const Session* session) const;
  static std::string ArgumentsDigest(const LiveCall& call);
  // The answer to a call whose key is known; nullptr: it is to run.
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> TakeKeyed(LiveCall& call, Session* session,
                                                                const std::string& scope,
                                                                const std::string& digest);
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Reattach(LiveCall& call,
                                                               const v1::InvokeRequest& request);
  void TellFollowers(const CallId& id);

  // call_durable.cc
  void Record(LiveCall& call, bool all_stored = false);
  void RestoreEnded(LiveCall& call, const v1::CallRecord& record, const StoredOutcome& outcome);
  void RestoreOpen(LiveCall& call, const v1::CallRecord& record);
  void Return(LiveCall& call, const v1::CallState& state);
  void ReleaseHeld(LiveCall& call);
  void OnReceipt(Execution& record);
  // Asks the agent for what is missing of a body that is kept, if nobody else reads it.
  void PullBody(const CallId& id);
  void OnBodyWritten(const CallId& id, const KeptBodies::Wanted& wanted);
  void OnBodyOver(const CallId& id, const std::string& why);
  void SweepBodies();
  void OnReadable(Stream& stream);

  // call_asks.cc
  // The stream its client is asked on: the call's, or of one that has none its session's own.
  // nullptr: the client has never listened to that.
  Stream* AskedOn(const LiveCall& call) const;
  // An ask whose client is away waits for it through its grace, then ends with an error.
  void AwaitClient(LiveCall& call);
  // The same of all that are asked on a session's own stream.
  void AwaitClientOf(const Stream& own);
  void EndAsksOfTheGone(LiveCall& call);
  // On the stream that the client is asked on.
  void TellAsked(LiveCall& call, uint64_t n, std::string_view method, std::string params);
  void NoteElicitations(const LiveCall& call, const v1::Outcome& outcome);
  // Whose the elicitation is that `params` name, which is then nobody's any more.
  std::optional<ElicitationTable::Owner> TakeElicitation(const std::string& seat_id,
                                                         std::string_view params);
  // The same as TellElicited of an elicitation of a call that the agent still runs.
  void TakeElicited(LiveCall& call, uint64_t n, std::string params);

  // call_events.cc
  void OnStray(AgentSession& link, const CallId& id, const v1::CallEvent& event);
  void TakeEvent(LiveCall& call, v1::CallEvent& event);
  bool HearsLog(const LiveCall& call, std::string_view raw_params) const;
  void TakeOutcome(LiveCall& call, v1::CallEvent& event);
  void TakeAsk(LiveCall& call, uint64_t n, v1::Ask& ask, std::string params);
  void TakeAskBack(LiveCall& call, uint64_t n, const v1::MethodEvent& cancelled);
  void Publish(LiveCall& call, uint64_t n, const std::string& method, std::string params);
  // Whether progress with these params may be told now; it is then what the next has to exceed.
  static bool Grows(LiveCall& call, std::string_view params);
  bool OpenStream(LiveCall& call);
  // Of a caller that has just come: its stream is opened, or its call accepted, when it wants that.
  void AcceptInTime(LiveCall& call);
  v1::Accepted AcceptanceOf(const LiveCall& call) const;
  void Append(LiveCall& call, StreamItem item);
  void WakeReader(LiveCall& call);
  // Somebody reads the body of its outcome, or will when the outcome is read.
  static bool IsRead(const LiveCall& call);
  void SetPhase(LiveCall& call, v1::CallPhase phase, std::string message = {});
  // Who is told of its states: its caller, or whoever listens to its stream and wants them.
  static StreamReader* StatusReaderOf(const LiveCall& call);
  void ShowStatusSoon(LiveCall& call);
  void ShowStatus(LiveCall& call);
  // Tells a caller that wants progress where its queued call stands.
  // Tells a caller that sent a token soon what its call waits for.
  void NoteSoon(LiveCall& call);
  void NoteQueue(LiveCall& call);
  void AnswerAsk(LiveCall& call, uint64_t ask_n, const std::string& result,
                 const std::string& error);
  void SendAnswer(AgentSession& link, const LiveCall& call, uint64_t ask_n,
                  const v1::AskAnswer& said);

  // call_end.cc
  void KeepOutcome(LiveCall& call, Execution& record, const v1::CallOutcome& outcome);
  void Arm(LiveCall& call);
  void OnTimer(uint64_t order);
  absl::Time BudgetAt(const LiveCall& call) const;
  void ExpireBudget(LiveCall& call);
  void Cancel(LiveCall& call, v1::Cancel::Why why, v1::Reason reason, bool wait_for_agent);
  void SendCancel(LiveCall& call, v1::Cancel::Why why);
  void EndOwn(LiveCall& call, v1::OutcomeClass outcome, v1::Reason reason, v1::Certainty certainty,
              std::string message);
  // The call may be gone afterwards.
  void End(LiveCall& call, const Ending& ending, v1::CallOutcome outcome);
  void LogEnd(const LiveCall& call, const Ending& ending, const std::string& tool,
              const std::string& diagnostics) const;
  v1::CallOutcome MakeOutcome(const LiveCall& call, const Ending& ending) const;
  std::string Diagnostics(const LiveCall& call) const;
  v1::Certainty CertaintyNow(const LiveCall& call) const;
  void SettleAtAgent(const CallId& id, const std::string& agent_id);
  void Forget(LiveCall& call);

  static constexpr std::string_view kAsksItsClient = "the tool waits for what it asks its client";
  // Open requests of a backend to the client of one call.
  static constexpr size_t kAsksMax = 64;

  Plane& plane_;
  DurableLog& durable_;
  KeptBodies& bodies_;
  Receipts& receipts_;
  SeatAudience& audience_;
  ToolSelections& selections_;
  RequestState request_state_;
  std::map<CallId, std::vector<OutcomeSource*>> followers_;
  // Open calls of a former control plane, by agent; each is an open execution, so bounded with
  // them.
  std::map<std::string, std::set<CallId>> orphans_;
  Hook ended_hook_;
  Hook asked_hook_;
  AgentDirectory* agents_ = nullptr;
  Calls calls_;  // in the order of their start
  absl::flat_hash_map<CallId, LiveCall*> by_id_;
  std::map<std::string, std::vector<uint64_t>, std::less<>> waiting_;  // by seat
  std::set<uint64_t> ended_;  // ended calls that are not delivered yet
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
