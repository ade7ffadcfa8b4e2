// MCP sessions at one backend that belong to one client each, beside the one all others share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "backend_agent/mcp_session.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"

namespace callboard::agent {

struct ClientSessionLimits {
  // Beyond it the one that has been unused for longest is ended; if all are in use a client gets
  // none and goes by the shared one.
  size_t sessions_max = 64;
  absl::Duration idle = absl::Minutes(15);
};

// A client that can be asked (sampling, elicitation, roots) speaks to a backend in a session of its
// own, with its own capabilities, so that the backend knows whom it may ask and what it asks
// reaches nobody else. Loop thread only; owned by a McpSeat. Keys are the client sessions' ids.
class ClientSessions final {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnProgress(const std::string& key, uint64_t request, std::string raw_params) = 0;
    virtual void OnServerNotification(const std::string& key, uint64_t request, std::string method,
                                      std::string raw_params) = 0;
    virtual void OnServerRequest(const std::string& key, uint64_t request, std::string raw_id,
                                 std::string method, std::string raw_params) = 0;
    // It has ended; what it asked needs no answer. May come from inside Open().
    virtual void OnSessionOver(const std::string& key) = 0;
  };

  ClientSessions(core::EventLoop& loop, core::Random& random, Events& events,
                 SessionLimits session_limits, ClientSessionLimits limits);
  ~ClientSessions();

  // The client's session at the server behind `shared`, opened at first use. nullptr: it has none
  // and cannot get one. `control_plane`: where the client is to be asked from now on.
  McpSession* Open(McpSession& shared, const std::string& key, const ClientDescription& client,
                   const std::string& control_plane);
  // nullptr if there is none.
  McpSession* Find(const std::string& key) const;
  // Empty if there is no such session.
  std::string ControlPlaneOf(const std::string& key) const;
  // The level of log messages that has been set in that session; nullptr if there is none.
  std::string* LevelOf(const std::string& key);
  // The process has ended: drops them all, their requests without replies.
  void Clear();
  size_t size() const { return sessions_.size(); }

 private:
  class Entry;

  void End(const std::string& key);
  bool MakeRoom();
  void EndIdle();

  core::EventLoop& loop_;
  core::Random& random_;
  Events& events_;
  const SessionLimits session_limits_;
  const ClientSessionLimits limits_;
  std::map<std::string, std::unique_ptr<Entry>> sessions_;
  std::vector<std::unique_ptr<Entry>> ending_;  // say goodbye, or may be in a callback
  core::Timer idle_timer_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
