// What the stdio face asks of Streamable HTTP: post a message, listen to a stream, end a session.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace callboard::apps {

struct SessionHeaders {
  std::string session;   // Mcp-Session-Id; empty: none
  std::string revision;  // MCP-Protocol-Version; empty: not negotiated yet
};

struct AnswerHead {
  int http_status = 0;
  std::string session;  // of the answer to initialize
  bool is_stream = false;
};

struct AnswerEvent {
  std::string id;    // empty: the event has none
  std::string text;  // a JSON-RPC message in one line; empty: the event only says where it stands
  std::optional<absl::Duration> retry;
};

struct AnswerEnd {
  absl::Status status;   // OK: the answer came whole
  bool reached = false;  // the server may have acted on what it was sent
  int http_status = 0;   // 0: there was no answer
  std::string refusal;   // the body of an answer that is no success, its first 64 KiB
};

// Hears one answer. All calls come from the loop, never inline, and each may destroy the exchange.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void OnHead(const AnswerHead& head) = 0;
  // A message of a successful answer, or a place in its stream.
  virtual void OnEvent(AnswerEvent event) = 0;
  // Exactly once, and last.
  virtual void OnEnd(AnswerEnd end) = 0;
};

// A request under way. Destroying it aborts: no call to the sink follows.
class TransportExchange {
 public:
  virtual ~TransportExchange() = default;
};

// Loop thread only. Sinks outlive their exchanges, exchanges do not outlive the transport. A stream
// on which not even a heartbeat comes ends as broken.
class McpTransport {
 public:
  // kRelayed: an answer for the client, which waits while it does not read.
  enum class Kind { kRelayed, kOwn };

  virtual ~McpTransport() = default;
  // `key`: Idempotency-Key, or empty.
  virtual std::unique_ptr<TransportExchange> Post(const SessionHeaders& session, Kind kind,
                                                  const std::string& key, std::string text,
                                                  AnswerSink* sink) = 0;
  // `after`: Last-Event-ID; empty: the session's own stream, from now on.
  virtual std::unique_ptr<TransportExchange> Listen(const SessionHeaders& session,
                                                    const std::string& after, AnswerSink* sink) = 0;
  virtual std::unique_ptr<TransportExchange> Delete(const SessionHeaders& session,
                                                    AnswerSink* sink) = 0;
  // Nothing of answers for the client is read while they are paused.
  virtual void PauseRelayed(bool paused) = 0;
};

}  // namespace callboard::apps
