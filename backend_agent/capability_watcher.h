// Keeps the list of a backend's tools: pages it, keeps the backend's own bytes, knows when to look
// again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "backend_agent/mcp_session.h"
#include "backend_agent/payload.h"
#include "backend_agent/spool.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"

namespace callboard::agent {

struct WatcherLimits {
  size_t pages_max = 1'000;
  size_t tools_max = 100'000;                  // what is beyond is left out
  uint64_t catalogue_bytes_max = 64ull << 20;  // a longer list is not taken over
  absl::Duration page_timeout = absl::Seconds(30);
  absl::Duration coalesce = absl::Milliseconds(250);
  absl::Duration poll = absl::Seconds(60);  // +-10 %, for backends that cannot push
  // The wait before the first poll after a change (a DCC that starts finds its tools bit by bit,
  // after it has begun to serve); each further wait is twice as long, up to `poll`.
  absl::Duration first_poll = absl::Milliseconds(500);
  absl::Duration retry = absl::Seconds(5);  // after a listing that failed
};

// Owned by a McpSeat, outlived by the loop, the random source and the spool; told of the session by
// Attach. Loop thread only. A listing that fails leaves the former catalogue in place, and says
// why. Tools stay as the backend has them, but for x-mcp-header where it breaks the rules: such an
// annotation is taken out, or the tool where its backend takes no calls without headers that cannot
// be made (one of 2026-07-28 alone, over HTTP). That is logged once a tool and fault.
class CapabilityWatcher {
 public:
  // `on_changed` runs when the digest has changed.
  CapabilityWatcher(core::EventLoop& loop, core::Random& random, Spool& spool, WatcherLimits limits,
                    absl::AnyInvocable<void()> on_changed);

  // The session is ready: lists now and goes on watching. It must outlive the watcher or Detach().
  void Attach(McpSession* session);
  // The backend is gone: a listing under way ends, its waiters are called.
  void Detach();
  // notifications/tools/list_changed.
  void OnListChanged();
  // Lists anew, from now on, and then calls `done` (later, never inline); at the latest after
  // `limit`, or when the backend goes.
  void ListNow(absl::Duration limit, absl::AnyInvocable<void()> done);

  // Why the last listing was not taken, or not whole: a sentence; "" if all is well.
  const std::string& trouble() const { return trouble_; }
  // The inputSchema of a tool that has arguments to be repeated in headers; else empty.
  std::string_view MirroredSchema(std::string_view tool) const;
  // An annotation of the tool was taken out: over HTTP it can only be called in a session.
  bool IsMended(std::string_view tool) const { return mended_.contains(tool); }
  // {"tools":[...]}; empty until the list is known.
  const Payload& catalogue() const { return catalogue_; }
  // SHA-256 of it in hex digits; empty until known.
  const std::string& digest() const { return digest_; }

 private:
  struct Waiter {
    uint64_t needs_run;  // the listing with this number or a later one satisfies it
    core::Timer limit;
    absl::AnyInvocable<void()> done;
  };

  void Begin();
  void RequestPage(const std::string& cursor);
  void OnPage(McpReply reply);
  // Adds a tool to the list that is built.
  absl::Status Take(std::string_view tool);
  // The tool with sound annotations only; nullopt: it is not for clients of this backend.
  std::optional<std::string> Mend(std::string_view tool);
  // `trouble`: what a person should know of it.
  void End(bool complete, std::string trouble = "");
  void Wake(uint64_t finished_run);
  void ScheduleNext(absl::Duration delay);

  core::EventLoop& loop_;
  core::Random& random_;
  WatcherLimits limits_;
  absl::AnyInvocable<void()> on_changed_;
  McpSession* session_ = nullptr;
  Payload catalogue_;
  std::string digest_;
  std::string trouble_;

  bool running_ = false;
  bool again_ = false;  // somebody asked while a listing ran
  uint64_t run_ = 0;    // number of the listing that runs or ran last
  uint64_t request_ = 0;
  size_t pages_ = 0;
  size_t tools_ = 0;
  std::string cursor_;  // raw, of the page asked for
  PayloadBuilder builder_;
  core::Timer page_timer_;
  core::Timer next_timer_;  // coalescing, retry or poll
  absl::Duration poll_;     // the next wait
  absl::Time next_due_ = absl::InfiniteFuture();
  // By tool; of the list that is built, and of the one there is.
  std::map<std::string, std::string, std::less<>> mirrored_coming_;
  std::map<std::string, std::string, std::less<>> mirrored_;
  std::set<std::string, std::less<>> mended_coming_;
  std::set<std::string, std::less<>> mended_;
  std::map<std::string, std::string> faults_told_;
  uint64_t next_waiter_ = 1;
  std::map<uint64_t, Waiter> waiters_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
