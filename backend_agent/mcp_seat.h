// A seat whose DCC speaks MCP: its queue, its session with the backend, its catalogue and its
// health.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "backend_agent/backend.h"
#include "backend_agent/capability_watcher.h"
#include "backend_agent/client_sessions.h"
#include "backend_agent/execution_queue.h"
#include "backend_agent/mcp_session.h"
#include "backend_agent/modern_listen.h"
#include "backend_agent/seat.h"
#include "backend_agent/seat_health.h"
#include "backend_agent/spool.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"

namespace callboard::agent {

struct SeatLimits {
  QueueLimits queue;
  SessionLimits session;
  ClientSessionLimits client_sessions;
  // Open requests of the backend to clients; one more is answered with an error.
  size_t asks_max = 256;
  // For the answer of a client that is asked outside its calls.
  absl::Duration session_ask_wait = absl::Minutes(5);
  WatcherLimits watcher;
  // After a broken exchange, for the news that the process has died.
  absl::Duration verdict_wait = absl::Milliseconds(250);
  // For the new list before the outcome of a call that changes it.
  absl::Duration relist_wait = absl::Seconds(5);
  // A slot whose caller has left is freed after this even without an answer.
  absl::Duration late_max = absl::Minutes(30);
  // A stdio backend that obeys a cancel rightly never answers. If it has been silent about the call
  // for this and past the call's run budget, and answers a ping, the slot is freed `settle` later.
  absl::Duration silence_max = absl::Seconds(30);
  absl::Duration silence_settle = absl::Seconds(1);
  // How long the main lane stays closed at most when an earlier run's call may be at work.
  absl::Duration busy_probe_timeout = absl::Seconds(60);
  absl::Duration probe_every = absl::Seconds(5);
  int probe_misses_max = 2;
  // Busy and idle again is told at most this often.
  absl::Duration busy_report_delay = absl::Milliseconds(200);
};

// What is known of the DCC apart from its MCP server: from configuration or a registry row.
struct SeatDescription {
  std::string seat_id;
  std::string name;
  std::string app;
  std::string version;
  std::string scene;
  std::string instance_id;
  std::string local_mcp_url;
  std::string discovery_row;  // raw JSON
  std::map<std::string, std::string> labels;
};

// Loop thread only; owned by the agent; everything passed by reference outlives it. While its
// backend is away calls wait, until their queue deadline; those that expect a process which has
// ended are refused. Bounds: SeatLimits. May be destroyed from inside any of its callbacks.
class McpSeat final : public Seat, private McpSession::Events, private ClientSessions::Events {
 public:
  // The number of the process with that pid (0: unknown) which is there now: the former one if it
  // is the same process, else a higher one. See IncarnationCounter.
  using IncarnationProvider = absl::AnyInvocable<uint64_t(int64_t pid)>;

  // `backend` may be null: the DCC is not there yet. Starts it.
  McpSeat(core::EventLoop& loop, core::Random& random, Spool& spool, CallObserver& calls,
          SeatObserver& seats, std::unique_ptr<Backend> backend, SeatDescription description,
          IncarnationProvider next_incarnation, SeatLimits limits = {});
  ~McpSeat() override;

  // Another process has taken this place (or none: null). What ran on the former one is lost.
  void ReplaceBackend(std::unique_ptr<Backend> backend, SeatDescription description);
  // News of the same process: scene, labels.
  void UpdateDescription(SeatDescription description);
  // Counts for tests and the simulation's bounds check.
  size_t open_asks() const { return asks_.size(); }
  size_t client_sessions() const { return client_sessions_.size(); }
  // Orderly end of the backend, which begins nothing more; then `done`.
  void Stop(absl::AnyInvocable<void()> done);

  // Seat
  const std::string& seat_id() const override { return description_.seat_id; }
  v1::SeatState State() const override;
  Payload Catalogue() const override { return watcher_.catalogue(); }
  void Submit(CallSpec spec) override;
  v1::CancelAck::Effect Cancel(const std::string& call_id, v1::Cancel::Why why) override;
  void Answer(uint64_t ask, bool is_error, Payload text) override;
  void SetInterest(const v1::Interest& interest) override;
  void SetCordon(bool cordoned) override;
  void AssumeBusy() override;

 private:
  enum class Phase {
    kQueued,
    kRunning,
    kFailing,  // the exchange broke; waiting for the news why
    kEnding,   // the answer is there; waiting for the new list
  };
  // What a backend that speaks 2026-07-28 alone asks a client of an earlier revision.
  struct Round {
    int number = 0;
    size_t open = 0;
    std::string state;                                           // raw JSON
    std::vector<std::pair<std::string, std::string>> responses;  // raw, by key
  };
  struct Call {
    CallSpec spec;
    LaneId lane;
    Phase phase = Phase::kQueued;
    bool told = false;  // the caller has been told an end; what follows is the late one
    bool slot = false;
    bool overran = false;        // its run budget is spent and it still holds its slot
    bool lists_changed = false;  // list_changed came while it ran
    absl::Time submitted;
    absl::Time started;
    absl::Time give_up_at;      // told: the end of late_max
    std::string session;        // key of the client session it runs in; empty: the shared one
    bool in_modern = false;     // it goes to the backend in revision 2026-07-28
    bool listed_anew = false;   // as its headers did not fit
    bool raises_level = false;  // of logs, at the shared session
    uint64_t request = 0;       // 0: it is not sent yet, or not again
    Payload sent_params;        // in_modern
    Round round;
    std::set<std::string> elicitations;  // of what it has asked: ids; at most kElicitationsMax
    core::Timer timer;
    core::Timer send_timer;
    CallEnd end;  // kFailing, kEnding
  };
  // A request of the backend that waits for a client.
  struct OpenAsk {
    std::string call_id;
    std::string session;
    std::string raw_id;
    std::string key;    // of an input request, which has no id
    core::Timer timer;  // call_id is empty: it belongs to the session
  };
  // McpSession::Events
  void OnBackendUp() override;
  void OnSessionReady() override;
  void OnEraKnown() override;
  void OnInitializeFailed(std::string why) override;
  void OnBackendRejoined() override;
  void OnBackendDown(BackendExit exit) override;
  void OnProgress(uint64_t request, std::string raw_params) override {
    OnProgress("", request, std::move(raw_params));
  }
  void OnServerNotification(uint64_t request, std::string method, std::string params) override {
    OnServerNotification("", request, std::move(method), std::move(params));
  }
  void OnServerRequest(uint64_t request, std::string raw_id, std::string method,
                       std::string params) override {
    OnServerRequest("", request, std::move(raw_id), std::move(method), std::move(params));
  }

  // ClientSessions::Events, and the same of the shared session with an empty key.
  void OnProgress(const std::string& key, uint64_t request, std::string raw_params) override;
  void OnServerNotification(const std::string& key, uint64_t request, std::string method,
                            std::string raw_params) override;
  void OnServerRequest(const std::string& key, uint64_t request, std::string raw_id,
                       std::string method, std::string raw_params) override;
  void OnSessionOver(const std::string& key) override;

  void BeginSession(std::unique_ptr<Backend> backend);
  // The session a call runs in; nullptr: it is no more.
  McpSession* SessionOf(const Call& call);
  // The call a message of the backend belongs to; nullptr if that is not certain.
  Call* CallOf(const std::string& session, uint64_t request, bool any_lane);
  void TakeAskBack(const std::string& key, const std::string& raw_params);
  // A user is through with what it was asked to do outside its client.
  void TakeElicited(const std::string& key, std::string raw_params);
  void EndAsksOf(const std::string& call_id);
  // Of the client of that session, but of none of its calls.
  void AskSession(const std::string& key, std::string raw_id, std::string method,
                  std::string raw_params);
  void OnSessionAskUnanswered(uint64_t ask);
  // Tells the shared session what it does not know yet of what is wanted.
  void ApplyInterest();
  // The same of a backend that says it in revision 2026-07-28.
  void ListenModern();
  void OnListenedAgain();
  void NoteInterest(const Call& call);
  void ApplyInterestLater();
  void SchedulePump();
  void Pump();
  void Start(const std::string& call_id);
  // mcp_seat_send.cc
  void ChooseSession(Call& call);
  void SendCall(const std::string& call_id);
  void Put(Call& call, Payload params);
  static Payload ParamsFor(const Call& call);
  std::vector<std::pair<std::string, std::string>> HeadersOf(const Call& call) const;
  // True: the reply is not the call's, it is sent once more with headers of a new list.
  bool SendsAgain(Call& call, const McpReply& reply);
  std::optional<McpReply> AnswerForBackend(const Call& call) const;
  // The level of log messages those sessions want that the seat is told of.
  std::string BaseLevel() const;
  bool IsRaised(const std::string& level) const;
  // That and the levels of requests of 2026-07-28 at work; empty: nothing is wanted.
  std::string WantedLevel() const;
  // True: the backend is asked for its log messages first, and the call is sent after that.
  bool SetsLevelFirst(Call& call);
  // A log message that comes only because such a request wants it, and belongs to another call or
  // to none.
  bool IsForRaisedOnly(const Call* call, const std::string& raw_params) const;
  void OnReply(const std::string& call_id, McpReply reply);
  void TakeAnswer(Call& call, McpReply reply);
  // mcp_seat_rounds.cc: a reply of such a backend, as the call's client understands it. False: it
  // asks for input first, and the call goes on.
  bool Translate(Call& call, McpReply& reply);
  // The other way round: a URL that the user has to open first becomes input that is required.
  static void RequireUrls(const Call& call, McpReply& reply);
  // What is answered to a client that brings back that the user did not open it.
  static std::optional<McpReply> DeclinedUrl(const Call& call);
  std::string UrlsOf(const Call& call, std::string_view result);
  void AskForInput(Call& call, std::string_view result);
  void TakeInput(const OpenAsk& open, bool is_error, const Payload& text);
  void SendRound(Call& call);
  void TakeFailure(Call& call, McpReply reply);
  void OnRunBudgetSpent(const std::string& call_id);
  bool TellBackendOfCancel(const Call& call, std::string_view reason);
  void EndLeftCall(Call& call, CallEnd end);
  void AwaitLateAnswer(Call& call);
  void AskWhetherDropped(const std::string& call_id);
  void GiveUpLeftCall(const std::string& call_id, std::string detail);
  void EndForDeadProcess(Call& call, const BackendExit& exit);
  void Finish(const std::string& call_id, CallEnd end);
  void RefuseQueued(const std::string& call_id, v1::Reason reason, std::string detail);
  void RefuseWrongIncarnations();
  bool MatchesProcess(uint64_t expected) const;
  void FreeSlot(Call& call);
  void FreeMainLane();
  void ReportHealth();
  // State() has changed in a way that may be told a little later, with what follows.
  void ReportSoon();
  void ScheduleProbe();
  void SeatChanged();
  // Observers are called in one order, never from inside Submit, Cancel and the like.
  void Tell(absl::AnyInvocable<void()> event);
  void TellLater(absl::AnyInvocable<void()> event);
  void Flush();

  core::EventLoop& loop_;
  core::Random& random_;
  Spool& spool_;
  CallObserver& observer_;
  SeatObserver& seats_;
  SeatDescription description_;
  IncarnationProvider next_incarnation_;
  SeatLimits limits_;

  std::map<std::string, Call> calls_;
  std::map<std::pair<std::string, uint64_t>, std::string> call_of_request_;  // by session too
  std::map<uint64_t, OpenAsk> asks_;
  v1::Interest interest_;
  std::string level_set_;             // at the shared session
  bool level_raised_ = false;         // it is beyond what sessions want
  std::set<std::string> subscribed_;  // at the shared session
  uint64_t next_ask_ = 1;
  ExecutionQueue queue_;
  std::unique_ptr<McpSession> session_;
  ClientSessions client_sessions_;
  CapabilityWatcher watcher_;
  ModernListen listen_;
  SeatHealth health_;

  uint64_t incarnation_ = 0;
  bool process_over_ = true;  // the process of `incarnation_` has ended
  bool was_ready_ = false;    // some session with the backend has been ready
  bool cordoned_ = false;
  bool main_busy_ = false;  // AssumeBusy
  uint64_t busy_probe_ = 0;
  int probe_misses_ = 0;

  core::Timer queue_timer_;
  absl::Time queue_timer_due_ = absl::InfiniteFuture();
  core::Timer busy_timer_;
  core::Timer probe_timer_;
  core::Timer interest_timer_;
  core::Timer busy_report_timer_;
  size_t queue_told_ = 0;
  bool pump_posted_ = false;
  bool flush_posted_ = false;
  bool flushing_ = false;
  std::deque<absl::AnyInvocable<void()>> events_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
