// The stdio face's transport on the HTTP client of net/.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "apps/stdio/mcp_transport.h"
#include "core/runtime/event_loop.h"
#include "net/byte_stream.h"
#include "net/http_client.h"

namespace callboard::apps {

struct HttpTransportConfig {
  std::string host;         // the Host header
  std::string path;         // of the endpoint, with its query
  net::HeaderList headers;  // of every request, e.g. Authorization
  size_t message_bytes_max = 256 * 1024 * 1024;
  // No byte of an answer that has begun for that long, not even a heartbeat: it is broken.
  absl::Duration read_idle = absl::Seconds(45);
};

// Loop thread only. Bounds: one message of each answer is in memory, at most message_bytes_max.
class HttpTransport final : public McpTransport {
 public:
  // The connector leads to the endpoint's host and port.
  HttpTransport(core::EventLoop& loop, std::unique_ptr<net::Connector> connector,
                HttpTransportConfig config);
  ~HttpTransport() override;

  std::unique_ptr<TransportExchange> Post(const SessionHeaders& session, Kind kind,
                                          const std::string& key, std::string text,
                                          AnswerSink* sink) override;
  std::unique_ptr<TransportExchange> Listen(const SessionHeaders& session, const std::string& after,
                                            AnswerSink* sink) override;
  std::unique_ptr<TransportExchange> Delete(const SessionHeaders& session,
                                            AnswerSink* sink) override;
  void PauseRelayed(bool paused) override;

 private:
  class Exchange;

  std::unique_ptr<TransportExchange> Send(std::string method, const SessionHeaders& session,
                                          net::HeaderList headers, std::string body, bool relayed,
                                          AnswerSink* sink);

  core::EventLoop& loop_;
  const HttpTransportConfig config_;
  net::HttpClient client_;
  bool paused_ = false;
  std::set<Exchange*> relayed_;  // owned by who sent them
};

}  // namespace callboard::apps
