// When a stdio client's session is tried again, how, and when to give it up.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "core/runtime/event_loop.h"

namespace callboard::apps {

enum class LinkState {
  kIdle,           // no session, and nothing is tried: the client's next request begins anew
  kConnecting,     // the first session, or one after a failure
  kConnected,      // the server has answered under the session
  kResuming,       // level 1: the same session is tried
  kReRegistering,  // level 2: the old id once more; only if it is unknown, a new session
  kFailed,         // everything is being answered and freed; kIdle follows at once
};
std::string_view StateName(LinkState state);

// What became of one attempt.
enum class Attempt {
  kValid,            // the server knows the session, or has opened one
  kGone,             // it does not know the session (404)
  kUnauthenticated,  // 401
  kForbidden,        // 403
  kFailed,           // anything else: nobody there, no answer, an error
};

struct ReconnectConfig {
  // Between two attempts: doubled up to the greatest, and the first again once something was heard.
  absl::Duration wait_first = absl::Milliseconds(500);
  absl::Duration wait_max = absl::Seconds(4);
  // From the loss of a session to FAILED; open calls with longer time-outs of their own extend it.
  absl::Duration budget = absl::Seconds(120);
  // The same where no session was lost: a client's start, or its next request after FAILED.
  absl::Duration connect_budget = absl::Seconds(30);
  // An attempt that is not answered by then has failed.
  absl::Duration attempt_timeout = absl::Seconds(10);
};

// The state machine of docs/operations.md, "stdio clients", without I/O. Two failures in a row at
// level 1, or a 404, lead to level 2; a failure at level 2 leads back; 401, 403 and the end of the
// budget lead to kFailed and, at once, kIdle. Loop thread only; owned by the face, which is its
// host and outlives it.
class Reconnector {
 public:
  enum class Success { kOpened, kResumed, kReRegistered };
  struct Failure {
    // "reconnect_budget_spent", "unauthenticated", "forbidden".
    std::string_view reason;
    std::string detail;  // of the last attempt, or of what was refused
  };

  // Attempts are answered by Tried(), later and not inline. None of these destroys the machine.
  class Host {
   public:
    virtual ~Host() = default;
    // Does the server know the session? That it answers at all says nothing.
    virtual void Probe() = 0;
    // Opens a session.
    virtual void Initialize() = 0;
    // No result of the attempt is wanted any more.
    virtual void Abandon() = 0;
    virtual void OnConnected(Success success) = 0;
    // Answers and frees everything.
    virtual void OnFailed(const Failure& failure) = 0;
  };

  Reconnector(core::EventLoop& loop, const ReconnectConfig& config, Host& host)
      : loop_(loop), config_(config), host_(host) {}

  // From kIdle: a session is wanted.
  void Open();
  // From kConnected: what was open broke, or (`gone`) the server does not know the session.
  void Lost(bool gone, std::string detail, absl::Duration budget);
  // The end of the attempt under way.
  void Tried(Attempt attempt, std::string detail);
  // A request was answered with 401 or 403.
  void Refused(Attempt attempt, std::string detail);
  // The server has said something for the client: the waits begin anew.
  void Heard() { wait_ = config_.wait_first; }
  // To kIdle without a word.
  void Stop();

  LinkState state() const { return state_; }
  // Of the present or last loss: how many attempts, and what came of the newest eight.
  int attempts() const { return attempts_; }
  const std::deque<std::string>& results() const { return results_; }
  // For how long the session has been away; zero if it is not.
  absl::Duration away() const;

  struct Counts {
    uint64_t resumed = 0;
    uint64_t re_registered = 0;
    uint64_t failed = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  void Begin(LinkState state, absl::Duration budget);
  void TryLater();
  void Try();
  void Connected();
  void Note(std::string result);
  void Fail(std::string_view reason, std::string detail);
  void EndTimers();

  core::EventLoop& loop_;
  const ReconnectConfig config_;
  Host& host_;
  LinkState state_ = LinkState::kIdle;
  bool trying_ = false;
  bool opening_ = false;  // the attempt is to open a session
  int failures_ = 0;      // in a row, at level 1
  int attempts_ = 0;
  absl::Duration wait_ = config_.wait_first;
  absl::Time since_;
  std::deque<std::string> results_;
  Counts counts_;
  core::Timer budget_;
  core::Timer timer_;  // the next attempt, or the end of the present one
};

}  // namespace callboard::apps
