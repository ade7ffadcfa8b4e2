// The one place that writes event streams: events, heartbeats, ends, the watch over slow readers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "bridge/config.h"
#include "bridge/http_answer.h"
#include "bridge/message_stream.h"
#include "core/mcp/line_separators.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/random.h"
#include "net/http_server.h"

namespace callboard::bridge {

// One SSE answer. Loop thread; owned by an exchange; opened by Start(), ended once by End(),
// Close(), Cut() or its own judgement in Check(). Data need not be one line: line feeds between
// JSON tokens become spaces, and U+0085, U+2028 and U+2029 are written as escapes. Bounds: what is
// unsent is bounded by callers who wait for `more` and `written`. How long it lived and why it
// ended is counted in the gauges.
class SseWriter final : public MessageStream {
 public:
  // `gauges` and `config` must outlive the writer.
  SseWriter(core::EventLoop& loop, core::Random& random, const BridgeConfig& config,
            BridgeGauges& gauges, HttpAnswer answer);
  SseWriter(const SseWriter&) = delete;
  SseWriter& operator=(const SseWriter&) = delete;
  // An open stream that was not ended is cut.
  ~SseWriter() override;

  void Start(net::HeaderList headers = {});
  bool open() const override { return open_; }
  bool resumable() const override { return resumable_; }
  // Nothing written waits for the reader.
  bool idle() const { return answer_.responder().unsent_bytes() == 0; }

  // A comment whenever nothing was written for so long; BridgeConfig's if it is not called.
  void BeatEvery(absl::Duration heartbeat) { heartbeat_ = heartbeat; }
  // Where the stream stands, for a client that has not been told yet: Close() tells it.
  void StandsAt(std::string id) { position_ = std::move(id); }

  // Id, `retry:` and empty data.
  void Prime(std::string_view id);
  // `retry:` alone.
  void Retry();
  void Comment(std::string_view text);
  // An event that is no MCP message; without an id.
  void Aside(std::string_view type, std::string_view data);
  // `more` runs at once while no more than BridgeLimits::gathered_bytes_max wait, so that events
  // which come together leave together, else when the kernel has taken this one.
  void Event(std::string_view id, std::string_view data, More more) override;
  void BeginEvent(std::string_view id, std::string_view data) override;
  void Piece(std::string data, Written written) override;
  void FinishEvent(std::string_view data) override;

  // Ends the answer, too.
  void End() override;
  // Ends answer and connection before all is told; the client is to come back with the last id.
  // With `tell`, `event: close` says so, and names the id to come back with.
  void Close(StreamEnd why, bool tell);
  // Drops the connection: the reader sees that the stream is not complete.
  void Cut(StreamEnd why = StreamEnd::kBroken) override;

  // To be called every second or so: heartbeat, maximum life, slow readers. False if the stream
  // was ended or cut here.
  bool Check(absl::Duration until_next_check);

 private:
  void Write(std::string text, Written written);
  void Count(StreamEnd why);
  StreamEnd CauseOfLoss() const;

  core::EventLoop& loop_;
  core::Random& random_;
  const BridgeConfig& config_;
  BridgeGauges& gauges_;
  HttpAnswer answer_;
  bool open_ = false;
  bool in_event_ = false;
  core::LineSeparatorEscaper escaper_;  // of the event that is written in pieces
  bool resumable_ = false;
  std::string position_;       // the last id
  std::string next_position_;  // that of the event which is being written
  absl::Duration heartbeat_;
  absl::Time started_ = absl::InfinitePast();
  absl::Time last_write_ = absl::InfinitePast();
  absl::Time life_end_ = absl::InfiniteFuture();
  uint64_t written_bytes_ = 0;
  // As the last Check() found it: a reader has taken something if less waits than was added.
  uint64_t written_then_ = 0;
  size_t unsent_then_ = 0;  // our part of the gauge
  absl::Time moved_ = absl::InfinitePast();
};

}  // namespace callboard::bridge
