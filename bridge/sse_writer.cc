// Implementation of SseWriter.
#include "bridge/sse_writer.h"

#include <fmt/format.h>

#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/line_separators.h"
#include "core/mcp/sse_codec.h"

namespace callboard::bridge {

SseWriter::SseWriter(core::EventLoop& loop, core::Random& random, const BridgeConfig& config,
                     BridgeGauges& gauges, HttpAnswer answer)
    : loop_(loop),
      random_(random),
      config_(config),
      gauges_(gauges),
      answer_(std::move(answer)),
      heartbeat_(config.heartbeat) {}

SseWriter::~SseWriter() {
  if (open_) Cut(CauseOfLoss());
}

void SseWriter::Start(net::HeaderList headers) {
  open_ = true;
  ++gauges_.streams.open;
  ++gauges_.streams.opened;
  started_ = last_write_ = moved_ = loop_.Now();
  life_end_ = started_ + config_.stream_life_max * (1.0 - 0.1 * random_.Unit());
  answer_.StartEvents(std::move(headers));
}

void SseWriter::Prime(std::string_view id) {
  resumable_ = true;
  position_ = id;
  Write(core::EncodeSsePriming(id, absl::ToInt64Milliseconds(config_.retry)), nullptr);
}

void SseWriter::Retry() {
  Write(fmt::format("retry: {}\n\n", absl::ToInt64Milliseconds(config_.retry)), nullptr);
}

void SseWriter::Comment(std::string_view text) { Write(core::EncodeSseComment(text), nullptr); }

void SseWriter::Aside(std::string_view type, std::string_view data) {
  Write(core::EncodeSseEvent(type, {}, data), nullptr);
}

void SseWriter::Event(std::string_view id, std::string_view data, More more) {
  if (!id.empty()) {
    resumable_ = true;
    position_ = id;
  }
  std::string text;
  if (data.find('\n') == data.npos && data.find('\r') == data.npos) {
    text = core::EncodeSseEvent("message", id, data);
  } else {
    // Flattening the data inside the event would join the event's own lines.
    std::string line(data);
    core::FlattenLines(line.data(), line.size());
    text = core::EncodeSseEvent("message", id, line);
  }
  // An id has digits and points only.
  text = core::EscapeLineSeparators(std::move(text));
  const bool room =
      answer_.responder().unsent_bytes() + text.size() <= config_.limits.gathered_bytes_max;
  if (!room || more == nullptr) return Write(std::move(text), std::move(more));
  Write(std::move(text), nullptr);
  more();
}

void SseWriter::BeginEvent(std::string_view id, std::string_view data) {
  in_event_ = true;
  std::string text = "event: message\n";
  if (!id.empty()) {
    text.append("id: ").append(id).push_back('\n');
    next_position_ = id;
  }
  Write(text.append("data: ").append(escaper_.Next(std::string(data))), nullptr);
}

void SseWriter::Piece(std::string data, Written written) {
  core::FlattenLines(data.data(), data.size());
  Write(escaper_.Next(std::move(data)), std::move(written));
}

void SseWriter::FinishEvent(std::string_view data) {
  in_event_ = false;
  if (!next_position_.empty()) {
    resumable_ = true;
    position_ = std::exchange(next_position_, {});
  }
  std::string text = escaper_.Next(std::string(data));
  Write(text.append(escaper_.Rest()).append("\n\n"), nullptr);
}

void SseWriter::End() {
  if (!open_) return;
  // A reader must not take half an event for a whole one, nor wait for the other half.
  if (in_event_) return Cut();
  Count(StreamEnd::kFinished);
  answer_.responder().End(/*close=*/false);
}

void SseWriter::Close(StreamEnd why, bool tell) {
  if (!open_) return;
  if (in_event_) return Cut(why);
  if (tell) Write(core::EncodeSseEvent("close", position_, "{}"), nullptr);
  Count(why);
  answer_.responder().End(/*close=*/true);
}

void SseWriter::Cut(StreamEnd why) {
  if (!open_) return;
  Count(why);
  answer_.responder().Abort();
}

bool SseWriter::Check(absl::Duration until_next_check) {
  if (!open_) return true;
  const absl::Time now = loop_.Now();
  const size_t unsent = answer_.responder().unsent_bytes();
  // What is framed counts for more than what was written: a reader that takes nothing never passes.
  if (unsent == 0 || unsent < unsent_then_ + (written_bytes_ - written_then_)) moved_ = now;
  gauges_.streams.unsent_bytes += unsent - unsent_then_;
  unsent_then_ = unsent;
  written_then_ = written_bytes_;
  if (now - moved_ >= config_.slow_reader) {
    Cut(StreamEnd::kSlow);
    return false;
  }
  if (in_event_) return true;
  if (now >= life_end_) {
    Close(StreamEnd::kMaxLife, /*tell=*/true);
    return false;
  }
  // Where bytes still wait, the peer will not hear of us any sooner by one more.
  if (unsent == 0 && now + until_next_check > last_write_ + heartbeat_) Comment("ping");
  return true;
}

void SseWriter::Write(std::string text, Written written) {
  if (!open_) return;
  last_write_ = loop_.Now();
  written_bytes_ += text.size();
  answer_.responder().Write(std::move(text), std::move(written));
}

void SseWriter::Count(StreamEnd why) {
  open_ = false;
  StreamGauges& streams = gauges_.streams;
  const absl::Duration life = loop_.Now() - started_;
  --streams.open;
  ++streams.ended[static_cast<size_t>(why)];
  streams.lives[static_cast<size_t>(why)].Observe(life);
  streams.unsent_bytes -= unsent_then_;
  unsent_then_ = 0;
}

StreamEnd SseWriter::CauseOfLoss() const {
  switch (answer_.responder().peer_loss()) {
    case net::PeerLoss::kNone:
      break;
    case net::PeerLoss::kClosed:
      return StreamEnd::kClient;
    case net::PeerLoss::kWriteFailed:
      return StreamEnd::kWriteFailed;
    case net::PeerLoss::kSilent:
      // One that is alive, but takes nothing, ends the same way.
      return unsent_then_ > 0 ? StreamEnd::kSlow : StreamEnd::kIdle;
    case net::PeerLoss::kStalled:
      return StreamEnd::kSlow;
  }
  return StreamEnd::kBroken;
}

}  // namespace callboard::bridge
