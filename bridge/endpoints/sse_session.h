// One GET of HTTP+SSE (MCP 2024-11-05): the stream that is a session, and what its client posts.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "bridge/bridge_core.h"
#include "bridge/endpoints/request_server.h"
#include "bridge/endpoints/surface.h"
#include "bridge/endpoints/visit.h"
#include "bridge/event_pump.h"
#include "bridge/exchange.h"
#include "bridge/session_cache.h"
#include "bridge/shared_stream.h"
#include "bridge/sse_writer.h"

namespace callboard::bridge {

// Everything for the client goes on the stream: answers, what comes before them, what the session
// is told, what it is asked. Nothing of it has an id, as this revision resumes nothing: when the
// stream ends, so does the session. Calls under way then go on as those of any client that hung up;
// a session without any is closed at the control plane at once.
//
// Owned by Exchanges; loop thread. Lives until the client goes, the control plane ends the session,
// is away for longer than BridgeConfig::reattach, or the stream's maximum life is over.
class SseSession final : public Exchange {
 public:
  // `id`: what its client posts with. `instance`: as the path named it.
  SseSession(BridgeCore& core, RequestServer& requests, HttpAnswer answer, std::string id,
             Surface surface, std::string instance);

  // Opens the stream and says where to post.
  void Start();
  // Whether a message may come: else the client has to begin anew.
  bool open() const { return sse_.open() && !finished(); }
  // Answers the POST (202 for whatever is answered on the stream, or a refusal).
  void Take(const VisitPtr& visit);

  void Drain(bool last) override;
  // It is open for as long as its client likes.
  bool ends() const override { return false; }

 private:
  // The control plane did not open the session in time.
  void OnHardTimer() override;
  void OnTick() override;
  void OnPeerGone() override { Leave(busy()); }

  void Serve(const Visit& visit);
  void Initialize(const core::JsonRpcMessage& message);
  void OnOpened(const absl::StatusOr<v1::Session>& session, const std::string& result);
  void Pass(const VisitPtr& visit);
  void Tell(std::string message);
  void Listen();
  void OnEvent(const absl::StatusOr<v1::ListenEvent>& event);

  bool has_room() const;
  // Some of its requests have no answer yet.
  bool busy() const;
  void CloseSession(const std::string& session_id);
  void Leave(bool keep_calls);

  BridgeCore& core_;
  RequestServer& server_;
  const std::string id_;
  const Surface surface_;
  const std::string instance_;
  std::string initializing_;  // raw id of the request that opens the session
  std::optional<SessionInfo> session_;
  std::set<uint64_t> requests_;  // exchanges; some may be over
  SseWriter sse_;
  std::shared_ptr<SharedStream> shared_;
  std::optional<EventPump<v1::ListenEvent>> events_;
};

}  // namespace callboard::bridge
