// Implementation of the facade.
#include "bridge/facade/facade.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "bridge/errors.h"
#include "bridge/facade/rendering.h"

namespace callboard::bridge {
namespace {

constexpr uint32_t kInstancesShown = 20;
constexpr uint32_t kCandidatesMax = 100;
constexpr std::string_view kAppSeparator = "__";

v1::InvokeRequest ToolCall(std::string_view tool, std::string_view arguments,
                           std::string_view meta) {
  v1::InvokeRequest request;
  request.set_method("tools/call");
  request.set_params(ToolCallParams(tool, arguments, meta));
  ApplyMeta(meta, &request);
  return request;
}

}  // namespace

void Facade::Call(RequestExchange& exchange, std::string_view params) {
  const ParamsView view = SliceParams(params);
  const auto name = core::DecodeString(view.name);
  if (!name) {
    return exchange.Answer(core::MakeErrorResponse(exchange.spec().raw_id, core::kInvalidParams,
                                                   "tools/call needs params.name, a string"));
  }
  const auto tool = FindFacadeTool(*name);
  if (!tool) {
    auto arguments = NormalizeArguments(view.arguments);
    if (!arguments.ok()) return AnswerStatus(exchange, arguments.status());
    return CallTool(exchange, {*name, "", "", *std::move(arguments), std::string(view.meta), true});
  }
  auto arguments = ParseFacadeArguments(view.arguments);
  if (!arguments.ok()) return AnswerStatus(exchange, arguments.status());
  switch (*tool) {
    case FacadeTool::kSearch:
      return Search(exchange, *arguments);
    case FacadeTool::kDescribe:
      return Describe(exchange, *arguments);
    case FacadeTool::kListInstances:
      return ListInstances(exchange, *arguments);
    case FacadeTool::kLoadSkill:
      return LoadSkill(exchange, *arguments);
    case FacadeTool::kJobsGetStatus:
    case FacadeTool::kJobsWait:
    case FacadeTool::kJobsCancel:
      return Job(exchange, *tool, *arguments);
    case FacadeTool::kCall:
      break;
  }
  if (arguments->slug.empty()) {
    return AnswerStatus(
        exchange, absl::InvalidArgumentError("call_tool needs tool_slug; search_tools finds it"));
  }
  // The client's own `_meta` wins over the `meta` that dcc-mcp's clients put into the arguments.
  std::string meta = view.meta.empty() ? arguments->meta : std::string(view.meta);
  CallTool(exchange,
           {std::move(arguments->slug), std::move(arguments->app), std::move(arguments->instance),
            std::move(arguments->arguments), std::move(meta), false});
}

void Facade::CallTool(RequestExchange& exchange, Wanted wanted) {
  if (const auto slug = SplitSlug(wanted.name)) {
    v1::InvokeRequest request = ToolCall(slug->tool, wanted.arguments, wanted.meta);
    request.mutable_target()->set_instance(std::string(slug->instance));
    return exchange.Invoke(std::move(request), std::string(slug->instance), wanted.name);
  }
  if (!wanted.instance.empty()) {
    v1::InvokeRequest request = ToolCall(wanted.name, wanted.arguments, wanted.meta);
    request.mutable_target()->set_instance(wanted.instance);
    return exchange.Invoke(std::move(request), wanted.instance, "");
  }
  auto call = [&exchange, arguments = wanted.arguments,
               meta = wanted.meta](const v1::ToolHit& hit) {
    v1::InvokeRequest request = ToolCall(hit.tool(), arguments, meta);
    request.mutable_target()->set_seat_id(hit.seat_id());
    exchange.Invoke(std::move(request), hit.seat_name(), hit.slug());
  };
  Resolve(exchange, std::move(wanted), std::move(call));
}

void Facade::Search(RequestExchange& exchange, const FacadeArguments& arguments) {
  v1::SearchToolsRequest request;
  request.set_query(arguments.query);
  request.set_app(arguments.app);
  if (!arguments.instance.empty()) request.mutable_target()->set_instance(arguments.instance);
  request.set_limit(arguments.limit);
  request.set_offset(arguments.offset);
  request.set_loaded_only(arguments.loaded_only);
  core_.client.SearchTools(
      std::move(request),
      exchange.Guard([this, &exchange](const absl::StatusOr<v1::SearchToolsResponse>& found) {
        if (!found.ok()) return AnswerStatus(exchange, found.status());
        AnswerDocument(exchange, RenderHits(*found));
      }));
}

void Facade::Describe(RequestExchange& exchange, const FacadeArguments& arguments) {
  if (arguments.slug.empty()) {
    return AnswerStatus(exchange, absl::InvalidArgumentError(
                                      "describe_tool needs tool_slug; search_tools finds it"));
  }
  if (SplitSlug(arguments.slug)) return DescribeSlug(exchange, arguments.slug);
  Resolve(exchange, {arguments.slug, arguments.app, arguments.instance, "", "", false},
          [this, &exchange](const v1::ToolHit& hit) { DescribeSlug(exchange, hit.slug()); });
}

void Facade::DescribeSlug(RequestExchange& exchange, std::string slug) {
  v1::DescribeToolRequest request;
  request.set_slug(std::move(slug));
  core_.client.DescribeTool(
      std::move(request),
      exchange.Guard([this, &exchange](const absl::StatusOr<v1::DescribeToolResponse>& tool) {
        if (!tool.ok()) return AnswerStatus(exchange, tool.status());
        AnswerDocument(exchange, RenderTool(*tool));
      }));
}

void Facade::ListInstances(RequestExchange& exchange, const FacadeArguments& arguments) {
  v1::ListInstancesRequest request;
  request.set_app(arguments.app);
  request.set_query(arguments.query);
  if (!arguments.instance.empty()) request.mutable_target()->set_instance(arguments.instance);
  request.set_include_stale(arguments.include_stale);
  request.set_include_dead(arguments.include_dead);
  request.set_limit(arguments.limit == 0 ? kInstancesShown : arguments.limit);
  request.set_offset(arguments.offset);
  core_.client.ListInstances(
      std::move(request),
      exchange.Guard([this, &exchange](const absl::StatusOr<v1::ListInstancesResponse>& rows) {
        if (!rows.ok()) return AnswerStatus(exchange, rows.status());
        AnswerDocument(exchange, RenderInstances(*rows));
      }));
}

void Facade::LoadSkill(RequestExchange& exchange, const FacadeArguments& arguments) {
  if (arguments.skill.empty()) {
    return AnswerStatus(
        exchange, absl::InvalidArgumentError("load_skill needs skill_name; search hits name it"));
  }
  v1::LoadSkillRequest request;
  request.set_skill(arguments.skill);
  request.set_app(arguments.app);
  if (!arguments.instance.empty()) request.mutable_target()->set_instance(arguments.instance);
  request.set_session_id(exchange.spec().session_id);
  // Unlike the other questions this one goes to the application.
  exchange.Expect(core_.config.hard_wait);
  core_.client.LoadSkill(
      std::move(request), exchange.Guard([this, &exchange, skill = arguments.skill](
                                             const absl::StatusOr<v1::LoadSkillResponse>& loaded) {
        if (!loaded.ok()) return AnswerStatus(exchange, loaded.status());
        AnswerDocument(exchange, RenderLoadedSkill(skill, *loaded), FailedToLoad(*loaded));
      }));
}

void Facade::Resolve(RequestExchange& exchange, Wanted wanted, OnTool then) {
  ResolveWith(exchange, std::move(wanted), /*with_app_prefix=*/false, std::move(then));
}

void Facade::ResolveWith(RequestExchange& exchange, Wanted wanted, bool with_app_prefix,
                         OnTool then) {
  const size_t separator = wanted.name.find(kAppSeparator);
  v1::SearchToolsRequest request;
  request.set_query(wanted.name);
  request.set_app(wanted.app);
  if (!wanted.instance.empty()) request.mutable_target()->set_instance(wanted.instance);
  if (with_app_prefix) {
    request.set_app(wanted.name.substr(0, separator));
    request.set_query(wanted.name.substr(separator + kAppSeparator.size()));
  }
  request.set_limit(kCandidatesMax);
  const std::string tool = request.query();
  auto choose =
      [this, &exchange, wanted = std::move(wanted), with_app_prefix, separator, tool,
       then = std::move(then)](const absl::StatusOr<v1::SearchToolsResponse>& found) mutable {
        if (!found.ok()) return AnswerStatus(exchange, found.status());
        std::vector<v1::ToolHit> exact;
        for (const v1::ToolHit& hit : found->hits()) {
          if (hit.tool() == tool) exact.push_back(hit);
        }
        if (exact.size() == 1) return then(exact.front());
        if (exact.size() > 1) {
          return exchange.Answer(core::MakeResult(
              exchange.spec().raw_id, core::MakeToolError(AmbiguousTool(wanted.name, exact))));
        }
        const bool may_have_prefix = separator != std::string::npos && separator > 0;
        if (!with_app_prefix && may_have_prefix) {
          return ResolveWith(exchange, std::move(wanted), true, std::move(then));
        }
        if (!wanted.direct) {
          return AnswerStatus(exchange, core::MakeError(absl::StatusCode::kNotFound,
                                                        fmt::format("no tool is called '{}'; "
                                                                    "search_tools finds tools",
                                                                    wanted.name)));
        }
        exchange.Answer(core::MakeErrorResponse(
            exchange.spec().raw_id, core::kInvalidParams,
            fmt::format("unknown tool '{}'; the tools are: {}", wanted.name, FacadeToolNames())));
      };
  core_.client.SearchTools(std::move(request), exchange.Guard(std::move(choose)));
}

void Facade::AnswerDocument(RequestExchange& exchange, std::string_view document, bool is_error) {
  exchange.Answer(core::MakeResult(exchange.spec().raw_id,
                                   DocumentResult(document, exchange.spec().revision, is_error)));
}

void Facade::AnswerStatus(RequestExchange& exchange, const absl::Status& status) {
  if (status.code() == absl::StatusCode::kInvalidArgument) {
    return exchange.Answer(InvalidArgumentsText(exchange.asked(), core::Message(status)));
  }
  if (IsCallersMistake(status)) {
    return AnswerDocument(exchange, RenderFailure(status), /*is_error=*/true);
  }
  exchange.AnswerFailure(status, /*started=*/false);
}

}  // namespace callboard::bridge
