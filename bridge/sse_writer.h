// The one place that writes event streams: events, heartbeats, ends, the watch over slow readers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "bridge/config.h"
#include "bridge/http_answer.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"

namespace callboard::bridge {

// One SSE answer. Loop thread; owned by an exchange; opened by Start(), ended once by End(),
// Cut() or its own judgement in Check(). Data need not be one line: line feeds between JSON tokens
// become spaces. Bounds: what is unsent is bounded by callers who wait for `written`.
class SseWriter {
 public:
  using Written = absl::AnyInvocable<void()>;

  // `gauges` and `config` must outlive the writer.
  SseWriter(core::EventLoop& loop, core::Random& random, const BridgeConfig& config,
            BridgeGauges& gauges, HttpAnswer answer);
  SseWriter(const SseWriter&) = delete;
  SseWriter& operator=(const SseWriter&) = delete;
  // An open stream that was not ended is cut.
  ~SseWriter();

  void Start();
  bool open() const { return open_; }
  // Whether the client has seen an id it can come back with.
  bool resumable() const { return resumable_; }

  // Id, `retry:` and empty data.
  void Prime(std::string_view id);
  // `retry:` alone.
  void Retry();
  void Comment(std::string_view text);
  void Event(std::string_view id, std::string_view data, Written written);

  // One event whose data comes in pieces: Begin, any number of Piece, Finish.
  void BeginEvent(std::string_view id, std::string_view data);
  void Piece(std::string data, Written written);
  void FinishEvent(std::string_view data);

  // Ends the answer. `close` also ends the connection.
  void End(bool close = false);
  // Drops the connection: the reader sees that the stream is not complete.
  void Cut();

  // To be called every second or so: heartbeat, maximum life, slow readers. False if the stream
  // was ended or cut here.
  bool Check(absl::Duration until_next_check);

 private:
  void Write(std::string text, Written written);
  void Closed();

  core::EventLoop& loop_;
  core::Random& random_;
  const BridgeConfig& config_;
  BridgeGauges& gauges_;
  HttpAnswer answer_;
  bool open_ = false;
  bool in_event_ = false;
  bool resumable_ = false;
  absl::Time last_write_ = absl::InfinitePast();
  absl::Time life_end_ = absl::InfiniteFuture();
  absl::Time slow_since_ = absl::InfiniteFuture();
};

}  // namespace callboard::bridge
