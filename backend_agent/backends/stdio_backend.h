// A backend that is a child process speaking newline-delimited JSON on its pipes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "backend_agent/backend.h"
#include "backend_agent/backends/stdio_child.h"
#include "backend_agent/spool.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/backoff.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"

namespace callboard::agent {

struct StdioBackendConfig {
  StdioCommand command;
  std::string name;  // for people
  uint64_t result_bytes_max = 256ull << 20;
  absl::Duration start_timeout = absl::Seconds(30);  // until initialize is done
  absl::Duration stop_grace = absl::Seconds(2);      // between SIGTERM and SIGKILL
  absl::Duration restart_first = absl::Milliseconds(500);
  absl::Duration restart_max = absl::Seconds(30);
  absl::Duration life_that_resets = absl::Seconds(60);
  size_t log_lines_max = 200;        // beyond, the oldest go
  size_t log_line_bytes_max = 4096;  // of each line; the rest is cut
  size_t log_bytes_max = 64 * 1024;  // of all lines kept
  int sink_lines_max = 100;          // told to the log sink each second; the rest is counted
};

// Loop thread only. Everything passed by reference outlives it. The child is spawned again with
// backoff after it has ended. Its stderr, and lines of its stdout that are no JSON objects, go to a
// bounded log. Destroying the backend kills the child and its whole process group.
class StdioBackend final : public Backend {
 public:
  // Told each log line, for the agent's own log, as far as a flood leaves room; may be null.
  using LogSink = absl::AnyInvocable<void(std::string_view line)>;

  StdioBackend(core::AsioEventLoop& loop, core::Random& random, Spool& spool,
               StdioBackendConfig config, LogSink log_sink);

  void Start(Events* events) override;
  std::unique_ptr<BackendExchange> Send(uint64_t id, std::string text, bool expects_reply,
                                        const core::TraceContext& trace) override;
  void SetRevision(std::string_view revision) override;
  void Probe(absl::AnyInvocable<void(bool alive)> callback) override;
  void Stop(absl::AnyInvocable<void()> done) override;
  bool ends_unanswered_exchanges() const override { return false; }
  bool may_be_modern() const override { return true; }
  std::string description() const override;
  int64_t pid() const override { return child_ == nullptr ? 0 : child_->pid(); }

  // The newest lines of stderr, and those of stdout that were no messages (their first 200 bytes).
  const std::deque<std::string>& log() const { return log_; }
  size_t log_bytes() const { return log_bytes_; }
  // Lines of stdout, so far, that were no JSON-RPC messages.
  uint64_t foreign_lines() const { return foreign_lines_; }

 private:
  void SpawnChild();
  void SpawnLater();
  void OnOutput(std::string_view bytes);
  void EndLine();
  void EndTooLong();
  void OnError(std::string_view bytes);
  void LogForeign(std::string_view line);
  void Log(std::string_view line);
  void OnEnd(ProcessEnd end);

  core::AsioEventLoop& loop_;
  StdioBackendConfig config_;
  LogSink log_sink_;
  Events* events_ = nullptr;
  core::Backoff backoff_;
  std::unique_ptr<StdioChild> child_;
  absl::Time spawned_;
  bool start_timed_out_ = false;
  std::set<uint64_t> awaiting_;  // requests without a response yet
  PayloadBuilder line_;
  absl::Status line_status_;
  std::string line_head_;  // of a line, to find whose response it is when it is too long to keep
  std::string line_tail_;
  std::string error_line_;
  std::deque<std::string> log_;
  size_t log_bytes_ = 0;
  uint64_t foreign_lines_ = 0;
  absl::Time sink_second_ = absl::InfinitePast();  // when the present one began
  int sink_lines_ = 0;                             // in it, untold ones too
  core::Timer timer_;                              // start, restart or stop
  absl::AnyInvocable<void()> stopped_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
