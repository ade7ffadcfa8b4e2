// Implementation of BatchExchange.
#include "bridge/endpoints/batch_exchange.h"

#include <utility>

namespace callboard::bridge {

BatchExchange::BatchExchange(BridgeCore& core, HttpAnswer answer)
    : Exchange(core.exchanges, std::move(answer)), core_(core) {
  WatchPeer();
}

void BatchExchange::AddAnswer(std::string text) {
  answers_.emplace_back();
  ++pending_;
  Take(answers_.size() - 1, std::move(text));
}

void BatchExchange::AddRequest(RequestServer& server, const SessionInfo& session,
                               const core::JsonRpcMessage& request, RequestSpec spec) {
  const size_t index = answers_.size();
  answers_.emplace_back();
  ++pending_;
  spec.collect = lifetime_.Wrap([this, index](std::string text) { Take(index, std::move(text)); });
  requests_.push_back(server.Serve(session, request, std::move(spec)));
}

void BatchExchange::Seal() {
  sealed_ = true;
  AnswerIfComplete();
}

void BatchExchange::Take(size_t index, std::string text) {
  // An answer that does not fit is dropped for an error of its own; those are small.
  if (bytes_ + text.size() > core_.config.limits.batch_bytes_max) {
    const std::string id(core::FindMember(text, "id").value_or(""));
    text = core::MakeErrorResponse(id, core::kServerError,
                                   "the answers of this batch are too large; send it in parts",
                                   R"({"reason":"result_too_large"})");
  }
  bytes_ += text.size();
  answers_[index] = std::move(text);
  --pending_;
  AnswerIfComplete();
}

void BatchExchange::AnswerIfComplete() {
  if (!sealed_ || pending_ > 0 || finished()) return;
  if (answers_.empty()) {
    answer_.Empty(202);
    return Finish();
  }
  std::string array = "[";
  array.reserve(bytes_ + answers_.size() + 1);
  for (const std::string& text : answers_) {
    if (array.size() > 1) array.push_back(',');
    array.append(text);
  }
  array.push_back(']');
  answer_.Json(200, std::move(array));
  Finish();
}

void BatchExchange::OnPeerGone() {
  for (const uint64_t id : requests_) owner_.Abandon(id);
  Finish();
}

// The requests are drained one by one, which completes the batch.
void BatchExchange::Drain(bool) {}

}  // namespace callboard::bridge
