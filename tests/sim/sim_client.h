// A simulated MCP client: real HTTP bytes, sessions, streams, resumption, and a check of all it is
// told.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/lifetime.h"
#include "net/http_client.h"
#include "tests/sim/client_surroundings.h"
#include "tests/sim/sim_dcc.h"
#include "tests/sim/sse_reader.h"

namespace callboard::sim {

struct ClientHabits {
  std::string name;
  bool rude = false;
  std::string revision = "2025-11-25";
  int seat = -1;         // -1: the facade, else index of the seat whose tools are passed through
  bool selects = false;  // in place of the facade: all seats' tools under names of their own
  int calls_max = 3;     // at once
  bool listens = true;
  std::string capabilities = "{}";  // raw
  bool wishes = false;              // subscribes to resources and sets log levels
  bool batches = false;             // sends some of its calls in batches
  bool reads_slowly = false;
};

// Loop thread only. A polite client sees every call to its end and violates the trace when it is
// told nothing, twice, or something that is not its own. A rude one checks the contents only.
//
// Sources: sim_client.cc (sessions, exchanges), client_calls.cc (what it calls), client_checks.cc
// (what it is told), client_asks.cc (what it is asked), client_interest.cc (what it wants to hear),
// client_batches.cc.
class SimClient {
 public:
  SimClient(ClientSurroundings& world, ClientHabits habits);
  ~SimClient();

  void Start();
  // No new calls from now on; those open are seen to their end.
  void StopCalling();
  // The control plane has ended with a store that failed since then: what was wished meanwhile may
  // be forgotten.
  void DoubtWishesSince(absl::Time when);
  // Nothing is open any more but the session itself.
  bool quiet() const;
  // Gives everything up without a word.
  void Vanish();
  bool vanished() const { return vanished_; }
  // One call of a read-only tool, as soon as there is a session; `done` learns whether it
  // succeeded.
  void Ask(int seat, absl::AnyInvocable<void(bool ok)> done);

  // All has had time to settle: what it wants to know it has been told since it last changed, and
  // its DCC is asked to tell just that.
  void CheckNews(const DccPlace& place);
  // Index of the seat it is about; -1: the facade.
  int seat() const { return habits_.seat; }

  const std::string& name() const { return habits_.name; }
  // Open calls in words, for messages.
  std::string OpenCalls() const;

 private:
  enum class Kind {
    kInitialize,
    kInitialized,
    kCall,
    kBatch,
    kResume,
    kListen,
    kCancel,
    kAnswer,
    kDelete,
    kRude
  };
  class Request;
  // Whether the session hears of a resource.
  struct Wish {
    // kUnsure: a request was lost, and may still have its effect at any time.
    enum class State { kWanted, kUnwanted, kPending, kUnsure } state = State::kPending;
    absl::Time since;
  };
  struct Cursor {
    bool seen = false;
    uint64_t term = 0;
    uint64_t n = 0;
  };
  struct Session {
    std::string id;
    std::string nonce;
    bool ended = false;  // by a DELETE, whose answer may have been lost
    std::map<uint64_t, Cursor> streams;
    std::string listen_id;  // last id of the GET stream
    // It was cut off before it had an id: what was on its way then nobody can tell it again.
    bool may_have_missed = false;
    absl::Time opened;
    absl::Time listens_since = absl::InfiniteFuture();
    absl::Time listen_opened = absl::InfiniteFuture();  // the GET stream of now
    std::map<std::string, Wish> wishes;                 // by URI
    Wish level;
    size_t level_wanted = 0;
    std::map<std::string, absl::Time> heard;      // by URI or method of a list
    std::map<std::string, int> times_heard;       // lists, by method
    absl::Time heard_all = absl::InfinitePast();  // it had to look at everything anew
    // By a DCC's connection: the newest of its logs outside calls, and whether some may be missing.
    std::map<std::string, std::pair<int64_t, bool>> logs;
    bool chose_level = false;
  };
  struct Call {
    int64_t id = 0;
    std::string tag;
    std::string tool;
    std::string seat_id;
    std::string nonce;
    absl::Time sent;
    bool checked = true;         // false: a rude act makes its end anybody's guess
    bool facade_answer = false;  // answered by the facade itself
    bool wants_progress = false;
    bool in_batch = false;  // and so without a stream: it is asked on the session's own
    int64_t bytes = 0;
    int last_step = -1;
    uint64_t step_term = 0;  // of the control plane that told it
    double last_note = -2;   // its place in the queue, from -1 towards 0
    bool cancel_sent = false;
    bool cancelled = false;  // and the cancel was accepted
    bool cancel_counts = false;
    absl::Time cancelled_at;
    bool answered = false;
    bool open = true;
    uint64_t request = 0;  // under way; 0: none
    std::string last_id;
    uint64_t last_term = 0;  // of that id
    std::string wish;        // the URI or level that its answer settles; empty: a tool's call
    bool wants_it = false;
    absl::AnyInvocable<void(bool)> done;
  };

  void After(absl::Duration delay, absl::AnyInvocable<void()> fn);
  absl::Duration Between(int64_t low_ms, int64_t high_ms);
  bool Chance(uint64_t one_in) { return world_.random.Below(one_in) == 0; }

  uint64_t Send(Kind kind, uint64_t call, std::string method, std::string body,
                net::HeaderList extra = {});
  void OnHead(Request& request);
  bool OnItem(uint64_t key, SseItem item);
  void OnEnd(uint64_t key, absl::Status status);
  void OnBody(Request& request);

  void Connect();
  void OnSession(Request& request);
  void LoseSession(std::string_view why);
  void CloseSession();
  void Listen();

  void Think();
  void MakeCall();
  uint64_t SendCall(const std::string& tool, const SeatName& seat, bool checked);
  // Enters the call into the tables; its request is still to be sent.
  uint64_t OpenCall(const std::string& wanted, const SeatName& seat, bool checked);
  // The JSON-RPC request of a tool's call, its facade's arguments included.
  std::string ComposeCall(Call& call, const SeatName& seat);
  std::string PickTool();
  const SeatName& PickSeat();
  bool on_facade() const { return habits_.seat < 0 && !habits_.selects; }
  void MaybeCancel(uint64_t call);
  void CheckCancel(uint64_t call);
  void Resume(uint64_t call);
  void OnCallEnd(Request& request, const absl::Status& status);
  void EndCall(Call& call, std::string_view how);
  void RudeAct();
  void RudeTurn(uint64_t call);
  void ReadSlowly(uint64_t request);
  void DropConnection(uint64_t call);

  // ---- client_asks.cc ----
  void TakeAsk(const core::JsonRpcMessage& message, Kind kind, uint64_t call);
  void Answer(const std::string& raw_id, const std::string& mark, bool with_error);
  void ForgeAnswer();

  // ---- client_interest.cc ----
  void MakeWish();
  void SendWish(std::string method, std::string params, const std::string& wish, bool wants_it);
  void OnWishEnd(const Call& call, bool good);
  void TakeNotice(const core::JsonRpcMessage& message, Kind kind, uint64_t call);
  void TakeLog(const core::JsonRpcMessage& message, Kind kind, uint64_t call);
  void TakeUpdate(const std::string& uri);
  void CheckLogOrder(std::string_view data);
  // Nothing stood between client and control plane since; what was under way then has come.
  bool CalmSince(absl::Time when) const;
  void HearAll();

  // ---- client_batches.cc ----
  void MakeBatch();
  void OnBatchEnd(Request& request, const absl::Status& status);

  void TakeMessage(std::string_view text, Kind kind, uint64_t call);
  void TakeProgress(const core::JsonRpcMessage& message, Kind kind, uint64_t call);
  void TakeQueueNote(const core::JsonRpcMessage& message, Call& call);
  void TakeAnswer(const core::JsonRpcMessage& message, Kind kind, uint64_t call);
  void CheckOwn(std::string_view text, const Call& call);
  void CheckId(Request& request, const SseItem& item);
  void Tick();

  ClientSurroundings& world_;
  const ClientHabits habits_;
  std::unique_ptr<net::HttpClient> http_;
  std::optional<Session> session_;
  std::map<uint64_t, std::unique_ptr<Request>> requests_;
  std::map<uint64_t, Call> calls_;
  std::deque<absl::AnyInvocable<void()>> when_connected_;
  std::set<std::string> asked_;  // raw ids, of all sessions
  // At its DCC a lost request of an earlier session may still have an effect.
  std::set<std::string> ever_unsure_;
  uint64_t last_request_ = 0;
  uint64_t last_call_ = 0;
  uint64_t last_session_ = 0;
  uint64_t listen_request_ = 0;
  bool connecting_ = false;
  bool calling_ = true;
  bool vanished_ = false;
  core::Timer tick_;
  std::deque<core::Timer> timers_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::sim
