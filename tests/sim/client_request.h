// One HTTP exchange of a simulated client.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tests/sim/sim_client.h"

namespace callboard::sim {

// Owned by its client; deleted in OnEnd or when the client gives it up.
class SimClient::Request final : public net::HttpResponseSink {
 public:
  Request(SimClient& owner, uint64_t request_key, Kind request_kind, uint64_t call_key)
      : client(owner), key(request_key), kind(request_kind), call(call_key) {}

  void OnHead(net::HttpResponseHead answer) override {
    head = std::move(answer);
    status = head.status;
    last_byte = client.world_.loop.Now();
    const std::string* type = head.Header("Content-Type");
    sse = status == 200 && type != nullptr && type->find("text/event-stream") != std::string::npos;
    client.OnHead(*this);
  }
  void OnBody(std::string_view piece) override {
    last_byte = client.world_.loop.Now();
    client.world_.trace.Count(piece.size());
    if (!sse) {
      body.append(piece);
      return;
    }
    reader.Feed(piece, [&owner = client, this_key = key](SseItem item) {
      return owner.OnItem(this_key, std::move(item));
    });
  }
  void OnEnd(absl::Status end, bool) override { client.OnEnd(key, std::move(end)); }

  SimClient& client;
  const uint64_t key;
  const Kind kind;
  const uint64_t call;
  std::string session;  // nonce
  int status = 0;
  bool sse = false;
  bool paused = false;   // for a moment, as a slow reader does
  bool stopped = false;  // reading, for good
  bool gap = false;      // a gap was announced
  bool told_of_drain = false;
  net::HttpResponseHead head;
  std::string body;
  SseReader reader;
  absl::Time last_byte;
  std::unique_ptr<net::HttpExchange> exchange;
};

}  // namespace callboard::sim
