// Implementation of SseWriter.
#include "bridge/sse_writer.h"

#include <fmt/format.h>

#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/sse_codec.h"

namespace callboard::bridge {

SseWriter::SseWriter(core::EventLoop& loop, core::Random& random, const BridgeConfig& config,
                     BridgeGauges& gauges, HttpAnswer answer)
    : loop_(loop), random_(random), config_(config), gauges_(gauges), answer_(std::move(answer)) {}

SseWriter::~SseWriter() { Cut(); }

void SseWriter::Start() {
  open_ = true;
  ++gauges_.streams;
  ++gauges_.streams_opened;
  last_write_ = loop_.Now();
  life_end_ = last_write_ + config_.stream_life_max * (1.0 - 0.1 * random_.Unit());
  answer_.StartEvents();
}

void SseWriter::Prime(std::string_view id) {
  resumable_ = true;
  Write(core::EncodeSsePriming(id, absl::ToInt64Milliseconds(config_.retry)), nullptr);
}

void SseWriter::Retry() {
  Write(fmt::format("retry: {}\n\n", absl::ToInt64Milliseconds(config_.retry)), nullptr);
}

void SseWriter::Comment(std::string_view text) { Write(core::EncodeSseComment(text), nullptr); }

void SseWriter::Event(std::string_view id, std::string_view data, Written written) {
  if (!id.empty()) resumable_ = true;
  std::string text = core::EncodeSseEvent("message", id, data);
  // Flattening the data inside the event would join the event's own lines.
  if (data.find_first_of("\r\n") != std::string_view::npos) {
    std::string line(data);
    core::FlattenLines(line.data(), line.size());
    text = core::EncodeSseEvent("message", id, line);
  }
  Write(std::move(text), std::move(written));
}

void SseWriter::BeginEvent(std::string_view id, std::string_view data) {
  in_event_ = true;
  std::string text = "event: message\n";
  if (!id.empty()) text.append("id: ").append(id).push_back('\n');
  Write(text.append("data: ").append(data), nullptr);
}

void SseWriter::Piece(std::string data, Written written) {
  core::FlattenLines(data.data(), data.size());
  Write(std::move(data), std::move(written));
}

void SseWriter::FinishEvent(std::string_view data) {
  in_event_ = false;
  resumable_ = true;
  Write(std::string(data).append("\n\n"), nullptr);
}

void SseWriter::End(bool close) {
  if (!open_) return;
  // A reader must not take half an event for a whole one, nor wait for the other half.
  if (in_event_) return Cut();
  Closed();
  answer_.responder().End(close);
}

void SseWriter::Cut() {
  if (!open_) return;
  Closed();
  answer_.responder().Abort();
}

bool SseWriter::Check(absl::Duration until_next_check) {
  if (!open_) return true;
  const absl::Time now = loop_.Now();
  const size_t unsent = answer_.responder().unsent_bytes();
  if (unsent <= config_.limits.unsent_bytes_max) {
    slow_since_ = absl::InfiniteFuture();
  } else if (slow_since_ == absl::InfiniteFuture()) {
    slow_since_ = now;
  } else if (now - slow_since_ >= config_.slow_reader_time) {
    ++gauges_.slow_readers_cut;
    Cut();
    return false;
  }
  if (in_event_) return true;
  if (now >= life_end_) {
    Write("event: close\ndata: {}\n\n", nullptr);
    End(/*close=*/true);
    return false;
  }
  // Where bytes still wait, the peer will not hear of us any sooner by one more.
  if (unsent == 0 && now + until_next_check > last_write_ + config_.heartbeat) Comment("ping");
  return true;
}

void SseWriter::Write(std::string text, Written written) {
  if (!open_) return;
  last_write_ = loop_.Now();
  answer_.responder().Write(std::move(text), std::move(written));
}

void SseWriter::Closed() {
  open_ = false;
  --gauges_.streams;
}

}  // namespace callboard::bridge
