// A simulated MCP client: real HTTP bytes, sessions, streams, resumption, and a check of all it is
// told.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/lifetime.h"
#include "net/http_client.h"
#include "tests/sim/client_surroundings.h"
#include "tests/sim/sse_reader.h"

namespace callboard::sim {

struct ClientHabits {
  std::string name;
  bool rude = false;
  std::string revision = "2025-11-25";
  int seat = -1;      // -1: the facade, else index of the seat whose tools are passed through
  int calls_max = 3;  // at once
  bool listens = true;
};

// Loop thread only. A polite client sees every call to its end and violates the trace when it is
// told nothing, twice, or something that is not its own. A rude one checks the contents only.
class SimClient {
 public:
  SimClient(ClientSurroundings& world, ClientHabits habits);
  ~SimClient();

  void Start();
  // No new calls from now on; those open are seen to their end.
  void StopCalling();
  // Nothing is open any more but the session itself.
  bool quiet() const;
  // Gives everything up without a word.
  void Vanish();
  // One call of a read-only tool, as soon as there is a session; `done` learns whether it
  // succeeded.
  void Ask(int seat, absl::AnyInvocable<void(bool ok)> done);

  const std::string& name() const { return habits_.name; }
  // Open calls in words, for messages.
  std::string OpenCalls() const;

 private:
  enum class Kind { kInitialize, kInitialized, kCall, kResume, kListen, kCancel, kDelete, kRude };
  class Request;
  struct Cursor {
    bool seen = false;
    uint64_t term = 0;
    uint64_t n = 0;
  };
  struct Session {
    std::string id;
    std::string nonce;
    uint64_t plane = 0;
    std::map<uint64_t, Cursor> streams;
    std::string listen_id;  // last id of the GET stream
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
    int64_t bytes = 0;
    int last_step = -1;
    double last_note = -2;   // its place in the queue, from -1 towards 0
    bool cancelled = false;  // and the cancel was accepted
    bool cancel_counts = false;
    absl::Time cancelled_at;
    bool answered = false;
    bool open = true;
    uint64_t request = 0;  // under way; 0: none
    std::string last_id;
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
  void MaybeCancel(uint64_t call);
  void CheckCancel(uint64_t call);
  void Resume(uint64_t call);
  void OnCallEnd(Request& request, const absl::Status& status);
  void EndCall(Call& call, std::string_view how);
  void RudeAct();
  void RudeTurn(uint64_t call);

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
