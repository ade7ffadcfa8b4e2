// Implementation of ServerStream.
#include "apps/stdio/server_stream.h"

#include <algorithm>
#include <utility>

#include "core/telemetry/log.h"

namespace callboard::apps {

void ServerStream::Open() {
  wanted_ = true;
  Send();
}

void ServerStream::Resume() {
  if (!open_) exchange_.reset();
  Send();
}

void ServerStream::Renew() {
  exchange_.reset();
  parked_ = open_ = false;
  again_ = 0;
  position_.clear();
  Send();
}

void ServerStream::Close() {
  wanted_ = parked_ = open_ = false;
  again_ = 0;
  position_.clear();
  timer_.Cancel();
  exchange_.reset();
}

void ServerStream::Send() {
  if (!wanted_ || parked_ || exchange_ != nullptr || !link_.connected()) return;
  timer_.Cancel();
  exchange_ = link_.transport().Listen(link_.session(), position_, this);
}

void ServerStream::OnHead(const AnswerHead& head) { open_ = head.http_status == 200; }

void ServerStream::OnEvent(AnswerEvent event) {
  if (event.retry) retry_ = event.retry;
  if (!event.id.empty()) position_ = std::move(event.id);
  if (event.text.empty()) return;
  again_ = 0;
  link_.OnServerMessage(std::move(event.text));
}

void ServerStream::OnEnd(AnswerEnd end) {
  const auto ended = std::move(exchange_);
  const bool was_open = std::exchange(open_, false);
  const bool busy = end.http_status >= 500 || end.http_status == 408 || end.http_status == 409 ||
                    end.http_status == 429;
  // Too many streams, or a server that is ending, are no loss of the session.
  if (const auto trouble = TroubleOf(end, link_.session()); trouble && !busy) {
    return link_.OnTrouble(*trouble, DescribeEnd(end));
  }
  if (!was_open && !busy) {
    parked_ = true;
    core::LogDebug("no_server_stream", {{"reason", DescribeEnd(end)}});
    return;
  }
  const FaceConfig& config = link_.config();
  const absl::Duration wait =
      std::min(config.again_max, config.again_first * (1 << std::min(again_++, 10)));
  timer_ =
      link_.loop().After(std::max(wait, retry_.value_or(absl::ZeroDuration())), [this] { Send(); });
}

}  // namespace callboard::apps
