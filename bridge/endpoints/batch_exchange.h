// A JSON-RPC batch (MCP 2025-03-26 only): its requests run at the same time, one array answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bridge/endpoints/request_server.h"
#include "bridge/exchange.h"

namespace callboard::bridge {

// Owned by Exchanges; loop thread. Each answer stands where its request stood.
class BatchExchange final : public Exchange {
 public:
  BatchExchange(BridgeCore& core, HttpAnswer answer);

  // An answer that is known already.
  void AddAnswer(std::string text);
  void AddRequest(RequestServer& server, const SessionInfo& session,
                  const core::JsonRpcMessage& request, RequestSpec spec);
  // Nothing more comes: answers as soon as the last answer is there, 202 if there are none.
  void Seal();

  void Drain(bool last) override;

 private:
  // The requests have hard timers of their own.
  void OnHardTimer() override {}
  void OnPeerGone() override;
  void Take(size_t index, std::string text);
  void AnswerIfComplete();

  BridgeCore& core_;
  std::vector<std::string> answers_;
  std::vector<uint64_t> requests_;
  size_t pending_ = 0;
  size_t bytes_ = 0;
  bool sealed_ = false;
};

}  // namespace callboard::bridge
