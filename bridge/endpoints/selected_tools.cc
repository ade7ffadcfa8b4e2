// Implementation of SelectedTools.
#include "bridge/endpoints/selected_tools.h"

#include <fmt/format.h>

#include <utility>

#include "bridge/earlier_tools.h"
#include "core/mcp/tool_selection.h"

namespace callboard::bridge {
namespace {

constexpr std::string_view kToolsParameter = "tools";
// Of a result of tools/list: how many tools are selected and not shown.
constexpr std::string_view kLeftOut = "callboard/left_out";

}  // namespace

absl::StatusOr<std::string> SelectedTools::OfRequest(const Route& route,
                                                     const net::HttpRequest& request) {
  const auto wanted = ParameterOfQuery(request.query(), kToolsParameter);
  if (!wanted) return std::string();
  if (!route.instance.empty()) {
    return absl::InvalidArgumentError(
        "tools= is for /mcp: /mcp/{instance} shows all tools of its instance");
  }
  const auto selection = core::ToolSelection::Parse(*wanted);
  if (selection.ok()) return selection->text();
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("tools=: {}", core::Message(selection.status())));
}

std::optional<std::string> SelectedTools::AnswerHere(const core::JsonRpcMessage& request) {
  if (request.method == "tools/list" || request.method == "tools/call") return std::nullopt;
  return core::MakeErrorResponse(
      request.id, core::kMethodNotFound,
      fmt::format("method '{}' is not served on /mcp?tools=, which has tools only; connect to "
                  "/mcp/{{instance}} for one application",
                  request.method));
}

void SelectedTools::Serve(RequestExchange& exchange, const std::string& tools,
                          const core::JsonRpcMessage& request) {
  const ParamsView params = SliceParams(request.params);
  if (request.method == "tools/call") {
    v1::InvokeRequest call;
    call.set_method(request.method);
    call.set_params(std::string(request.params));
    ApplyMeta(params.meta, &call);
    if (exchange.spec().session_id.empty()) call.set_tools(tools);
    return exchange.Invoke(std::move(call), "", "");
  }
  std::string cursor;
  if (!params.cursor.empty() && params.cursor != "null") {
    // What is no string is none of ours either.
    cursor = core::DecodeString(params.cursor).value_or(std::string(params.cursor));
    if (!ToolPages::IsCursor(cursor)) {
      return exchange.Answer(core::MakeErrorResponse(
          exchange.spec().raw_id, core::kInvalidParams,
          "unknown cursor: give the nextCursor of the former page, or none"));
    }
  }
  List(exchange, tools, cursor);
}

void SelectedTools::List(RequestExchange& exchange, const std::string& tools,
                         const std::string& cursor) {
  v1::GetListRequest request;
  request.set_session_id(exchange.spec().session_id);
  if (exchange.spec().session_id.empty()) request.set_tools(tools);
  request.set_kind("tools");
  std::shared_ptr<const ToolPages> known;
  if (const auto found = lists_.find(tools); found != lists_.end()) {
    request.set_known_digest(found->second.digest);
    known = found->second.pages;
  }
  auto answer = [this, &exchange, tools, cursor,
                 known = std::move(known)](absl::StatusOr<v1::GetListResponse> reply) {
    if (reply.status().code() == absl::StatusCode::kNotFound) return exchange.AnswerSessionGone();
    if (!reply.ok()) return exchange.AnswerFailure(reply.status(), /*started=*/false);
    if (reply->list().empty() && known != nullptr) {
      return AnswerPage(exchange, *known, cursor, reply->left_out());
    }
    const auto pages = std::make_shared<const ToolPages>(std::move(*reply->mutable_list()),
                                                         core_.config.limits.tools_per_page_max);
    if (lists_.size() >= core_.config.limits.tool_lists_cached_max) lists_.clear();
    lists_[tools] = {reply->digest(), pages};
    AnswerPage(exchange, *pages, cursor, reply->left_out());
  };
  core_.client.GetList(std::move(request), exchange.Guard(std::move(answer)));
}

void SelectedTools::AnswerPage(RequestExchange& exchange, const ToolPages& pages,
                               std::string_view cursor, uint32_t left_out) const {
  const ToolPages::Page page = pages.After(cursor);
  std::string tools = fmt::format("[{}]", page.tools);
  if (!exchange.spec().modern) {
    if (auto earlier = ForEarlierClient(tools)) tools = *std::move(earlier);
  }
  std::string result = fmt::format(R"({{"tools":{})", tools);
  if (!page.next_cursor.empty()) {
    fmt::format_to(std::back_inserter(result), R"(,"nextCursor":"{}")", page.next_cursor);
  }
  if (left_out > 0) {
    fmt::format_to(std::back_inserter(result), R"(,"_meta":{{"{}":{}}})", kLeftOut, left_out);
  }
  result += '}';
  exchange.Answer(core::MakeResult(exchange.spec().raw_id, result));
}

}  // namespace callboard::bridge
