// Implementation of HttpAnswer: puts headers together.
#include "bridge/http_answer.h"

#include <iterator>

#include "bridge/errors.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/mcp/sse_codec.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

const std::pair<std::string, std::string> kJsonType = {"Content-Type", "application/json"};

}  // namespace

net::HeaderList RetryAfter() { return {{"Retry-After", "2"}}; }

net::HeaderList HttpAnswer::Headers(net::HeaderList first, net::HeaderList extra) const {
  first.insert(first.end(), std::make_move_iterator(extra.begin()),
               std::make_move_iterator(extra.end()));
  first.insert(first.end(), common_.begin(), common_.end());
  return first;
}

net::HeaderList HttpAnswer::EventHeaders(net::HeaderList extra) const {
  // The content type goes without parameters: some proxies and clients compare it as text (S4).
  return Headers({{"Content-Type", "text/event-stream"},
                  {"Cache-Control", "no-cache, no-transform"},
                  {"X-Accel-Buffering", "no"}},
                 std::move(extra));
}

void HttpAnswer::Json(int status, std::string body, net::HeaderList extra) const {
  if (only_events_ && status == 200) {
    responder_->StartStream(200, EventHeaders(std::move(extra)));
    responder_->Write(core::EncodeSseEvent({}, {}, body), nullptr);
    return responder_->End();
  }
  responder_->Respond(status, Headers({kJsonType}, std::move(extra)), std::move(body));
}

void HttpAnswer::Empty(int status, net::HeaderList extra) const {
  responder_->Respond(status, Headers({}, std::move(extra)), {});
}

void HttpAnswer::Error(int status, std::string_view message, net::HeaderList extra) const {
  Json(status, core::JsonObject().String("error", message).Take(), std::move(extra));
}

void HttpAnswer::RpcError(int status, std::string_view raw_id, int code, std::string_view message,
                          std::string_view raw_data, net::HeaderList extra) const {
  Json(status, core::MakeErrorResponse(raw_id, code, message, raw_data), std::move(extra));
}

void HttpAnswer::NoSession(std::string_view raw_id) const {
  RpcError(404, raw_id, core::kSessionNotFound, "session not found; send initialize again");
}

void HttpAnswer::Failure(std::string_view raw_id, const absl::Status& status) const {
  const int code = StatusHttpCode(status);
  RpcError(code, raw_id, server_error(), core::Message(status),
           StatusData(status, /*started=*/false), code == 503 ? RetryAfter() : net::HeaderList());
}

void HttpAnswer::StartJson(std::optional<uint64_t> size, net::HeaderList extra) const {
  responder_->StartStream(200, Headers({kJsonType}, std::move(extra)), size);
}

void HttpAnswer::StartEvents(net::HeaderList extra) const {
  responder_->StartStream(200, EventHeaders(std::move(extra)));
}

}  // namespace callboard::bridge
