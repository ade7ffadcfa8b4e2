// Implementation of StdioBackend.
#include "backend_agent/backends/stdio_backend.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/mcp/id_at_edges.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

constexpr size_t kLineEdgeBytes = 256;
// Of a line that is no message, as much as tells a person what it is.
constexpr size_t kForeignBytesMax = 200;

std::optional<uint64_t> ParseId(std::string_view raw) {
  uint64_t id = 0;
  auto [end, error] = std::from_chars(raw.data(), raw.data() + raw.size(), id);
  if (error != std::errc() || end == raw.data()) return std::nullopt;
  return id;
}

}  // namespace

StdioBackend::StdioBackend(core::AsioEventLoop& loop, core::Random& random, Spool& spool,
                           StdioBackendConfig config, LogSink log_sink)
    : loop_(loop),
      config_(std::move(config)),
      log_sink_(std::move(log_sink)),
      backoff_(config_.restart_first, config_.restart_max, random),
      line_(spool, config_.result_bytes_max) {}

void StdioBackend::Start(Events* events) {
  events_ = events;
  loop_.Post(lifetime_.Wrap([this] { SpawnChild(); }));
}

void StdioBackend::SpawnChild() {
  if (events_ == nullptr) return;
  auto child = StdioChild::Spawn(loop_, config_.command,
                                 {.on_output = [this](std::string_view bytes) { OnOutput(bytes); },
                                  .on_error = [this](std::string_view bytes) { OnError(bytes); },
                                  .on_end = [this](ProcessEnd end) { OnEnd(end); }});
  if (!child.ok()) {
    Log(core::Message(child.status()));
    SpawnLater();
    // There is no process that could have ended.
    events_->OnDown({.detail = std::string(core::Message(child.status()))});
    return;
  }
  child_ = *std::move(child);
  spawned_ = loop_.Now();
  start_timed_out_ = false;
  timer_ = loop_.After(config_.start_timeout, [this] {
    start_timed_out_ = true;
    child_->Kill();
  });
  events_->OnUp();
}

void StdioBackend::SpawnLater() {
  timer_ = loop_.After(backoff_.Next(), [this] { SpawnChild(); });
}

std::unique_ptr<BackendExchange> StdioBackend::Send(uint64_t id, std::string text,
                                                    bool expects_reply, const core::TraceContext&) {
  const auto end_later = [&](absl::Status status, bool reached) {
    loop_.Post(lifetime_.Wrap([this, id, status = std::move(status), reached]() mutable {
      if (events_ != nullptr) events_->OnExchangeEnd(id, std::move(status), reached);
    }));
  };
  if (child_ == nullptr) {
    end_later(absl::UnavailableError("the child process is not there"), false);
    return nullptr;
  }
  text.push_back('\n');
  absl::AnyInvocable<void()> written;
  if (!expects_reply) {
    written = [this, id] {
      if (events_ != nullptr) events_->OnExchangeEnd(id, absl::OkStatus(), true);
    };
  }
  absl::Status status = child_->Write(std::move(text), std::move(written));
  if (!status.ok()) {
    end_later(core::MakeError(absl::StatusCode::kUnavailable, core::Message(status)), false);
  } else if (expects_reply) {
    awaiting_.insert(id);
  }
  return nullptr;
}

void StdioBackend::SetRevision(std::string_view revision) {
  // initialize is done: the child has started.
  if (!revision.empty() && child_ != nullptr && stopped_ == nullptr) timer_.Cancel();
}

void StdioBackend::Probe(absl::AnyInvocable<void(bool alive)> callback) {
  loop_.Post(lifetime_.Wrap(
      [this, callback = std::move(callback)]() mutable { callback(child_ != nullptr); }));
}

void StdioBackend::Stop(absl::AnyInvocable<void()> done) {
  events_ = nullptr;
  timer_.Cancel();
  if (child_ == nullptr) {
    done();
    return;
  }
  stopped_ = std::move(done);
  child_->Terminate();
  timer_ = loop_.After(config_.stop_grace, [this] { child_->Kill(); });
}

std::string StdioBackend::description() const {
  return fmt::format("{}", fmt::join(config_.command.arguments, " "));
}

// ---- output -----------------------------------------------------------------------------------

void StdioBackend::OnOutput(std::string_view bytes) {
  auto alive = lifetime_.Watch();
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (line_head_.size() < kLineEdgeBytes) {
      line_head_.append(piece.substr(0, kLineEdgeBytes - line_head_.size()));
    }
    line_status_ = line_.Append(piece);
    if (!line_status_.ok()) {
      line_tail_.append(piece.size() > kLineEdgeBytes ? piece.substr(piece.size() - kLineEdgeBytes)
                                                      : piece);
      if (line_tail_.size() > kLineEdgeBytes) {
        line_tail_.erase(0, line_tail_.size() - kLineEdgeBytes);
      }
    }
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    EndLine();
    if (alive.expired()) return;
  }
}

void StdioBackend::EndLine() {
  if (!line_status_.ok()) {
    EndTooLong();
    return;
  }
  std::string_view head = line_head_;
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r"), head.size()));
  const bool json = core::IsObject(head) || core::IsArray(head);
  const bool blank = head.empty();
  const std::string printed_head = std::exchange(line_head_, {});
  Payload line = line_.Take();
  if (blank) return;
  if (!json) {
    LogForeign(printed_head);
    return;
  }
  const std::string_view text = line.view();
  if (text.size() <= kInlineBodyMax) {
    auto message = core::ParseJsonRpc(text, true);
    // An array may be a batch of the 2025-03-26 revision.
    if (!message.ok() && (core::IsObject(text.substr(text.find_first_not_of(" \t\r"))) ||
                          message.status().code() == absl::StatusCode::kInvalidArgument)) {
      LogForeign(text);
      return;
    }
    if (message.ok() && (!message->result.empty() || !message->error.empty())) {
      if (auto id = ParseId(message->id)) awaiting_.erase(*id);
    }
  } else if (auto id = ParseId(
                 core::FindIdAtEdges(printed_head, text.substr(text.size() - kLineEdgeBytes)))) {
    awaiting_.erase(*id);
  }
  if (events_ == nullptr) return;
  events_->OnMessage(std::move(line), 0);
}

// A line that could not be kept. The call it answers ends; without knowing which, nothing can.
void StdioBackend::EndTooLong() {
  absl::Status status = std::exchange(line_status_, absl::OkStatus());
  if (line_.size() > config_.result_bytes_max) {
    status = core::MakeError(absl::StatusCode::kResourceExhausted,
                             fmt::format("result of {} bytes exceeds the limit of {} bytes",
                                         line_.size(), config_.result_bytes_max));
  }
  std::optional<uint64_t> id = ParseId(core::FindIdAtEdges(line_head_, line_tail_));
  line_head_.clear();
  line_tail_.clear();
  (void)line_.Take();
  if (!id && awaiting_.size() == 1) id = *awaiting_.begin();
  if (!id) {
    Log(core::Message(status));
    return;
  }
  awaiting_.erase(*id);
  if (events_ != nullptr) events_->OnExchangeEnd(*id, std::move(status), true);
}

void StdioBackend::OnError(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (error_line_.size() < config_.log_line_bytes_max) {
      error_line_.append(piece.substr(0, config_.log_line_bytes_max - error_line_.size()));
    }
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    Log(std::exchange(error_line_, {}));
  }
}

void StdioBackend::LogForeign(std::string_view line) {
  ++foreign_lines_;
  Log(line.substr(0, kForeignBytesMax));
}

void StdioBackend::Log(std::string_view line) {
  log_.emplace_back(line.substr(0, config_.log_line_bytes_max));
  log_bytes_ += log_.back().size();
  while (log_.size() > 1 &&
         (log_.size() > config_.log_lines_max || log_bytes_ > config_.log_bytes_max)) {
    log_bytes_ -= log_.front().size();
    log_.pop_front();
  }
  if (!log_sink_) return;
  if (const absl::Time now = loop_.Now(); now - sink_second_ >= absl::Seconds(1)) {
    if (const int untold = sink_lines_ - config_.sink_lines_max; untold > 0) {
      log_sink_(fmt::format("({} lines more are not shown)", untold));
    }
    sink_second_ = now;
    sink_lines_ = 0;
  }
  if (sink_lines_++ < config_.sink_lines_max) log_sink_(log_.back());
}

void StdioBackend::OnEnd(ProcessEnd end) {
  const int64_t pid = child_->pid();
  if (!error_line_.empty()) Log(std::exchange(error_line_, {}));
  (void)line_.Take();
  line_status_ = absl::OkStatus();
  line_head_.clear();
  line_tail_.clear();
  auto open = std::exchange(awaiting_, {});
  child_.reset();
  timer_.Cancel();
  if (stopped_) {
    auto stopped = std::exchange(stopped_, nullptr);
    stopped();
    return;
  }
  if (events_ == nullptr) return;
  if (loop_.Now() - spawned_ >= config_.life_that_resets) backoff_.Reset();
  SpawnLater();
  std::string detail = DescribeEnd(config_.name, pid, end);
  if (start_timed_out_) {
    detail += fmt::format(", because it had not answered initialize within {} s",
                          absl::ToInt64Seconds(config_.start_timeout));
  } else if (!log_.empty() && end.exit_status != 0) {
    detail += fmt::format("; its last words: {}", log_.back());
  }
  auto alive = lifetime_.Watch();
  for (uint64_t id : open) {
    events_->OnExchangeEnd(id, core::MakeError(absl::StatusCode::kUnavailable, detail), true);
    if (alive.expired()) return;
  }
  events_->OnDown({.process_ended = true,
                   .exit_status = end.exit_status,
                   .exit_signal = end.exit_signal,
                   .detail = std::move(detail)});
}

}  // namespace callboard::agent
