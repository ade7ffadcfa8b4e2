// MCP on a client's stdin and stdout, in front of a Callboard that is reached by HTTP.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "apps/stdio/client_request.h"
#include "apps/stdio/face_link.h"
#include "apps/stdio/line_output.h"
#include "apps/stdio/line_splitter.h"
#include "apps/stdio/note_queue.h"
#include "apps/stdio/reconnector.h"
#include "apps/stdio/server_stream.h"
#include "apps/stdio/session_attempt.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"

namespace callboard::apps {

// One client, one session at a time. The client sees a server that is always there: each of its
// requests is answered once, with the server's own bytes, or with an error that names a reason;
// sessions are resumed and opened anew behind its back. Loop thread only; everything passed by
// reference outlives it. Bounds: FaceConfig. Nothing that comes from either side ends it but the
// end of the input.
class StdioFace final : public ClientRequest::Owner, private Reconnector::Host {
 public:
  // `place`: the URL, for messages. `done` is called once, when the session has ended after
  // OnInputEnd() or Stop(); it may destroy the face.
  StdioFace(core::EventLoop& loop, core::Random& random, McpTransport& transport,
            LineOutput& output, const FaceConfig& config, std::string place,
            absl::AnyInvocable<void()> done);
  ~StdioFace() override;

  // From the client.
  void OnLine(std::string line);
  void OnTooLongLine(const LineSplitter::TooLong& line);
  void OnInputEnd();
  // It has read some of what was written.
  void OnOutputRead();
  // Ends the session without waiting for answers.
  void Stop();

  LinkState state() const { return reconnector_.state(); }
  size_t open_requests() const { return requests_.size(); }

 private:
  using Requests = std::map<uint64_t, std::unique_ptr<ClientRequest>>;

  // ---- the client's side: stdio_face.cc
  void OnBatch(const std::string& line);
  void OnMessage(std::string text);
  void OnRequest(const core::JsonRpcMessage& message, std::string text);
  void OnInitialize(const core::JsonRpcMessage& message, std::string text);
  void OnNotification(const core::JsonRpcMessage& message, std::string text);
  void OnCancel(const core::JsonRpcMessage& message, std::string text);
  void OnClientAnswer(const core::JsonRpcMessage& message, std::string text);
  ClientRequest::Asked Describe(const core::JsonRpcMessage& message, std::string text);
  Requests::iterator FindRequest(std::string_view raw_id);
  void Add(ClientRequest::Asked asked);
  void Remove(Requests::iterator request);
  void Say(std::string text);
  void SayError(std::string_view raw_id, int code, std::string_view message,
                std::string_view reason);
  void EndIfDone();
  void Farewell();

  // ---- the server's side: stdio_face_session.cc
  core::EventLoop& loop() override { return loop_; }
  McpTransport& transport() override { return transport_; }
  const FaceConfig& config() const override { return config_; }
  const SessionHeaders& session() const override { return session_; }
  bool connected() const override { return reconnector_.state() == LinkState::kConnected; }
  void OnTrouble(Trouble trouble, std::string detail) override;
  void OnServerMessage(std::string text) override;
  void OnAnswer(ClientRequest& request, std::string response) override;
  void OnNoAnswer(ClientRequest& request, std::string_view reason,
                  std::string_view sentence) override;

  void Probe() override;
  void Initialize() override;
  void Abandon() override { attempt_.reset(); }
  void OnConnected(Reconnector::Success success) override;
  void OnFailed(const Reconnector::Failure& failure) override;

  void HandleTrouble(Trouble trouble, const std::string& detail);
  void OnAttempt(SessionAttempt::Result result);
  void AnswerInitialize(std::string response);
  void OnNewSession();
  void Restore();
  void TellThatListsChanged();
  void ForgetAsks(std::string_view why);
  void Learn(const ClientRequest::Asked& asked, std::string_view response);
  std::string FailedAnswer(const ClientRequest& request, std::string_view reason,
                           std::string_view sentence) const;

  core::EventLoop& loop_;
  core::Random& random_;
  McpTransport& transport_;
  LineOutput& output_;
  const FaceConfig config_;
  const std::string place_;
  absl::AnyInvocable<void()> done_;

  // What the client has said of itself; empty: it has not initialized.
  std::string initialize_params_;
  std::string initialize_id_;    // of its request while it is not answered; else empty
  std::string initialize_text_;  // the request itself
  bool speaks_2024_ = false;     // the client; the server is spoken to in 2025-03-26
  bool behind_ = false;          // the session was opened behind the client's back
  std::string capabilities_;     // as the client was told them

  SessionHeaders session_;
  uint64_t epoch_ = 0;  // of sessions
  // For another session.
  std::string log_level_params_;
  std::set<std::string> subscribed_;  // raw URIs
  std::set<std::string> repeatable_;  // names of tools that may run twice

  uint64_t last_request_ = 0;
  Requests requests_;  // in order of their coming
  size_t request_bytes_ = 0;
  std::set<std::string> asks_;  // raw ids of the server's requests to the client
  Reconnector reconnector_;
  NoteQueue notes_;
  ServerStream stream_;
  std::unique_ptr<SessionAttempt> attempt_;

  bool paused_ = false;
  bool ending_ = false;   // nothing more is taken from the client
  bool parting_ = false;  // nor from the server
  core::Timer end_timer_;
  class Goodbye;
  std::unique_ptr<Goodbye> goodbye_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::apps
