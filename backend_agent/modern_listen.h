// subscriptions/listen at a backend of revision 2026-07-28: what it says by itself outside the
// session that initialize opened.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "backend_agent/mcp_session.h"
#include "core/runtime/backoff.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"

namespace callboard::agent {

// One request that stays open for as long as it is wanted, and is made again, with backoff, when it
// ends. What it carries comes as notifications of the session. Loop thread; owned by a McpSeat.
class ModernListen {
 public:
  // `on_again` runs when it is made anew after a loss: what was said meanwhile is lost.
  ModernListen(core::EventLoop& loop, core::Random& random, std::function<void()> on_again)
      : loop_(loop),
        backoff_(absl::Milliseconds(500), absl::Seconds(30), random),
        on_again_(std::move(on_again)) {}

  // What is listened to beside the lists.
  struct Wish {
    std::set<std::string> uris;
    std::set<std::string> task_ids;
    bool operator==(const Wish&) const = default;
  };
  // From now on. `session` lives until Stop(), which tells the backend where it has to be told.
  void Listen(McpSession& session, Wish wish);
  void Stop();

  // Whether that notification is what it carries: as the exchange tells (`request`), or over one
  // pipe the params. The next wait is a short one then.
  bool Hears(uint64_t request, std::string_view params);
  // The backend takes back the request with that raw id. False: another one; else it is made again.
  bool EndedBy(std::string_view raw_id);

 private:
  void Ask();
  void OnEnd();

  core::EventLoop& loop_;
  core::Backoff backoff_;
  std::function<void()> on_again_;
  McpSession* session_ = nullptr;
  Wish wish_;
  uint64_t request_ = 0;
  core::Timer again_;
};

}  // namespace callboard::agent
