// One process of a simulated DCC: its tools, its main thread, the calls it is working on, what it
// asks and what it tells by itself.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/mcp/jsonrpc.h"
#include "tests/sim/sim_dcc.h"

namespace callboard::sim {

// Owned by its place; destroying it is the end of the process: what runs is over, nobody is told.
// Answers go to the backend they were asked by, if it is still there.
//
// Sources: dcc_process.cc (tools), dcc_asks.cc (requests to clients), dcc_notices.cc (resources,
// lists, logs).
class SimDcc {
 public:
  SimDcc(DccPlace& place, int64_t pid);
  ~SimDcc();

  int64_t pid() const { return pid_; }
  // One JSON-RPC message of exchange `id` of the backend `serial`.
  void Receive(uint64_t serial, uint64_t id, std::string_view text);
  // That exchange of that backend is no more; what it asked for goes on.
  void Detach(uint64_t serial, uint64_t exchange);
  // That backend is no more.
  void Left(uint64_t serial);
  void Freeze(absl::Duration duration);
  void ChangeAll();
  std::string OpenAsks() const;
  bool TellsShared(const std::string& uri) const;

 private:
  // One MCP session, by the serial of its backend.
  struct Peer {
    std::string capabilities;  // raw, of its client
    std::set<std::string> subscriptions;
    size_t level = 0;
    uint64_t connection = 0;  // unique in its place
    std::string nonce;        // of the one client whose session it is
    core::Timer aside;        // the next request to it outside its calls
  };
  struct Run {
    uint64_t serial = 0;
    uint64_t exchange = 0;
    std::string raw_id;
    std::string tool;
    std::string nonce;
    std::string tag;
    std::string progress_token;  // raw
    absl::Duration duration;
    int steps = 0;
    int step = 0;
    int64_t bytes = 0;
    bool begun = false;
    bool main_thread = true;
    bool detached = false;  // its connection is gone
    int asks_left = 0;      // before it is done
    bool asks_at_once = false;
    int asks_open = 0;
    core::Timer timer;
  };
  // One request to a client. Kept after its end, to notice a second answer.
  struct OpenAsk {
    uint64_t serial = 0;
    uint64_t run = 0;  // 0: it belongs to the session
    std::string mark;  // to be repeated in the answer
    bool arrived = false;
    bool ended = false;
    bool given_up = false;  // an answer is no longer owed
    core::Timer deadline;
    core::Timer patience;
  };

  void Reply(uint64_t serial, uint64_t exchange, std::string text, bool last);
  void Notify(std::string_view method);
  std::string ToolsPage(std::string_view params) const;
  void Call(uint64_t serial, uint64_t exchange, const core::JsonRpcMessage& message);
  void Cancel(uint64_t serial, std::string_view params);
  // Begins what the main thread is free for.
  void Turn();
  void Begin(uint64_t number);
  void Step(uint64_t number);
  void Finish(uint64_t number);
  void Progress(const Run& run, int step);
  std::string ResultText(const Run& run) const;
  void Forget(uint64_t number);

  // ---- dcc_asks.cc ----
  // The tool's work is done: asks what it has to ask, or finishes.
  void Proceed(uint64_t number);
  void Ask(uint64_t number);
  // Asks the client of that session, mostly while none of its calls runs.
  void AskAside(uint64_t serial);
  void AskAsideLater(uint64_t serial);
  struct Question;
  // Most servers heed what their client has said of itself.
  const Question& ChooseQuestion(uint64_t serial) const;
  // Sends the request to whoever has that session, in answer to that exchange; 0: to none.
  void Put(uint64_t serial, uint64_t exchange, const std::string& raw_id, std::string request);
  // Takes it back unless it is answered before.
  void GiveUpAfter(absl::Duration wait, const std::string& raw_id, OpenAsk& ask);
  void OnAskArrived(const std::string& raw_id);
  void TakeAnswer(uint64_t serial, const core::JsonRpcMessage& message);
  void GiveUp(const std::string& raw_id, OpenAsk& ask);
  void AskDone(uint64_t number);

  // ---- dcc_notices.cc ----
  // True: it was such a request, and has been answered.
  bool TakeWish(uint64_t serial, uint64_t exchange, const core::JsonRpcMessage& message);
  bool Pushes() const;
  void Tick();
  void Touch(const std::string& uri);
  void ChangeList(std::string_view method);
  void Log(const Run* run);
  void TellOfJob();

  DccPlace& place_;
  const int64_t pid_;
  std::vector<std::string> tools_;  // raw definitions
  std::set<std::string> loaded_;
  std::map<uint64_t, Run> runs_;
  std::deque<uint64_t> waiting_;  // for the main thread
  uint64_t on_main_thread_ = 0;
  uint64_t last_run_ = 0;
  std::map<uint64_t, Peer> peers_;       // by serial
  std::map<std::string, OpenAsk> asks_;  // by raw id
  uint64_t last_ask_ = 0;
  int extra_tools_ = 0;
  core::Timer tick_timer_;
  absl::Time frozen_until_ = absl::InfinitePast();
  core::Timer turn_timer_;
};

}  // namespace callboard::sim
