// Implementation of RequestServer.
#include "bridge/endpoints/request_server.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "bridge/earlier_tools.h"
#include "bridge/facade/tools.h"

namespace callboard::bridge {
namespace {

v1::Target TargetOf(const SessionInfo& session) {
  v1::Target target;
  if (session.seat_id.empty()) {
    target.set_instance(session.instance_name);
  } else {
    target.set_seat_id(session.seat_id);
  }
  return target;
}

}  // namespace

std::optional<std::string> RequestServer::AnswerHere(const SessionInfo& session,
                                                     const core::JsonRpcMessage& request) const {
  if (request.method == "ping") return core::MakeResult(request.id, "{}");
  if (request.method == "initialize") {
    return core::MakeErrorResponse(request.id, core::kInvalidRequest,
                                   "the session is initialized already");
  }
  if (!session.tools.empty()) return selected_.AnswerHere(request);
  if (request.method == "tools/list") {
    const std::string_view cursor = SliceParams(request.params).cursor;
    if (!cursor.empty() && cursor != "null") {
      return core::MakeErrorResponse(request.id, core::kInvalidParams,
                                     "unknown cursor: tools/list has one page");
    }
    if (session.facade) return core::MakeResult(request.id, FacadeToolList());
    return std::nullopt;
  }
  if (!session.facade || request.method == "tools/call") return std::nullopt;
  return core::MakeErrorResponse(
      request.id, core::kMethodNotFound,
      fmt::format("method '{}' is not served on /mcp, which has tools only; connect to "
                  "/mcp/{{instance}} for one application",
                  request.method));
}

uint64_t RequestServer::Serve(const SessionInfo& session, const core::JsonRpcMessage& request,
                              RequestSpec spec) {
  spec.is_tool_call = request.method == "tools/call";
  spec.on_facade = session.facade;
  RequestExchange& exchange =
      core_.exchanges.Add(std::make_unique<RequestExchange>(core_, std::move(spec)));
  const uint64_t id = exchange.id();
  if (!session.tools.empty()) {
    selected_.Serve(exchange, session.tools, request);
  } else if (session.facade) {
    facade_.Call(exchange, request.params);
  } else if (request.method == "tools/list") {
    ListTools(exchange, TargetOf(session));
  } else {
    v1::InvokeRequest call;
    *call.mutable_target() = TargetOf(session);
    call.set_method(request.method);
    call.set_params(std::string(request.params));
    if (core::IsObject(request.params)) ApplyMeta(SliceParams(request.params).meta, &call);
    exchange.Invoke(std::move(call),
                    session.seat_id.empty() ? session.instance_name : session.seat_id, "");
  }
  return id;
}

void RequestServer::ListTools(RequestExchange& exchange, const v1::Target& target) {
  v1::GetListRequest request;
  *request.mutable_target() = target;
  request.set_kind("tools");
  const std::string key = target.seat_id().empty() ? target.instance() : target.seat_id();
  std::shared_ptr<const std::string> known;
  if (const auto found = core_.tool_lists.find(key); found != core_.tool_lists.end()) {
    request.set_known_digest(found->second.digest);
    known = found->second.text;
  }
  core_.client.GetList(
      std::move(request), exchange.Guard([this, &exchange, key, known = std::move(known)](
                                             absl::StatusOr<v1::GetListResponse> reply) {
        if (!reply.ok()) return exchange.AnswerFailure(reply.status(), /*started=*/false);
        if (reply->list().empty() && known != nullptr) return AnswerToolList(exchange, *known);
        if (reply->list().empty()) reply->set_list("[]");
        auto list = std::make_shared<const std::string>(std::move(*reply->mutable_list()));
        if (!reply->digest().empty()) {
          if (core_.tool_lists.size() >= core_.config.limits.tool_lists_cached_max) {
            core_.tool_lists.clear();
          }
          core_.tool_lists[key] = {reply->digest(), list};
        }
        AnswerToolList(exchange, *list);
      }));
}

void RequestServer::AnswerToolList(RequestExchange& exchange, const std::string& list) {
  std::optional<std::string> earlier;
  if (!exchange.spec().modern) earlier = ForEarlierClient(list);
  exchange.Answer(core::MakeResult(exchange.spec().raw_id,
                                   fmt::format(R"({{"tools":{}}})", earlier ? *earlier : list)));
}

}  // namespace callboard::bridge
