// Implementation of the translator.
#include "bridge/translator.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "absl/strings/escaping.h"
#include "bridge/errors.h"
#include "core/runtime/strings.h"
#include "core/telemetry/trace_context.h"

namespace callboard::bridge {
namespace {

using core::McpRevision;

constexpr std::string_view kAskPrefix = "ask-";

std::string ResponseHead(std::string_view raw_id, std::string_view member) {
  return fmt::format(R"({{"jsonrpc":"2.0","id":{},"{}":)", raw_id, member);
}

ResponseText WithBody(std::string_view raw_id, std::string_view member, const v1::Body& body) {
  if (body.content_case() == v1::Body::kSize && body.size() > 0) {
    return {ResponseHead(raw_id, member), body.size(), "}"};
  }
  // An agent that sent nothing must not make us write broken JSON.
  const std::string_view text = body.inline_().empty() ? "{}" : std::string_view(body.inline_());
  std::string all = ResponseHead(raw_id, member);
  all.reserve(all.size() + text.size() + 1);
  all.append(text).push_back('}');
  return {std::move(all), 0, {}};
}

std::string OutcomeData(const Asked& asked, const v1::CallOutcome& outcome, const ReasonRow& row) {
  core::JsonObject data;
  data.String("reason", row.reason)
      .String("kind", row.kind)
      .String("certainty", CertaintyName(outcome.certainty()));
  if (!outcome.call_id().empty()) {
    data.String("call_id", absl::BytesToHexString(outcome.call_id()));
  }
  if (!asked.instance.empty()) data.String("instance", asked.instance);
  if (core::IsObject(outcome.diagnostics())) data.Raw("diagnostics", outcome.diagnostics());
  return data.Take();
}

std::string FailureText(const Asked& asked, const v1::CallOutcome& outcome) {
  const ReasonRow& row = DescribeReason(outcome.reason());
  const std::string_view message = !outcome.message().empty() ? std::string_view(outcome.message())
                                   : !outcome.facts().detail().empty()
                                       ? std::string_view(outcome.facts().detail())
                                       : row.message;
  if (outcome.reason() == v1::PARAMS_INVALID && asked.is_tool_call) {
    return InvalidArgumentsText(asked, message);
  }
  return core::MakeErrorResponse(asked.raw_id, row.code, message, OutcomeData(asked, outcome, row));
}

std::optional<uint64_t> TakeNumber(std::string_view* text, bool last) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(stop - text->data()));
  if (last) return text->empty() ? std::optional(value) : std::nullopt;
  if (!text->starts_with('.')) return std::nullopt;
  text->remove_prefix(1);
  return value;
}

std::string RawAskId(std::string_view ask_id) {
  return core::QuoteJson(fmt::format("{}{}", kAskPrefix, ask_id));
}

}  // namespace

McpRevision NegotiateRevision(std::string_view initialize_params) {
  const auto asked = core::FindString(initialize_params, "protocolVersion");
  if (!asked || !IsServedRevision(*asked)) return core::kNewestLegacyRevision;
  return core::ParseRevision(*asked).value_or(core::kNewestLegacyRevision);
}

McpRevision NegotiateOverSse(std::string_view initialize_params) {
  const auto asked = core::FindString(initialize_params, "protocolVersion");
  const auto revision = asked ? core::ParseRevision(*asked) : std::nullopt;
  return revision && *revision <= core::kNewestLegacyRevision ? *revision
                                                              : McpRevision::k2024_11_05;
}

bool IsServedRevision(std::string_view name) {
  const auto revision = core::ParseRevision(name);
  return revision && std::find(kServedRevisions.begin(), kServedRevisions.end(), *revision) !=
                         kServedRevisions.end();
}

std::string ServedRevisions() {
  std::string names;
  for (const McpRevision revision : kServedRevisions) {
    names.append(names.empty() ? "" : ", ").append(core::RevisionName(revision));
  }
  return names;
}

ParamsView SliceParams(std::string_view params) {
  ParamsView view;
  if (!core::IsObject(params)) return view;
  (void)core::ForEachMember(params, [&](const core::JsonMember& member) {
    if (member.Is("_meta")) view.meta = member.value;
    if (member.Is("name")) view.name = member.value;
    if (member.Is("arguments")) view.arguments = member.value;
    if (member.Is("cursor")) view.cursor = member.value;
    return true;
  });
  return view;
}

void ApplyMeta(std::string_view meta, v1::InvokeRequest* request) {
  if (!core::IsObject(meta)) return;
  (void)core::ForEachMember(meta, [&](const core::JsonMember& member) {
    if (member.Is("progressToken")) {
      if (core::IsString(member.value) || core::IsNumber(member.value)) {
        request->set_progress_token(std::string(member.value));
      }
    } else if (member.Is("callboard/idempotency-key")) {
      if (auto key = core::DecodeString(member.value)) {
        request->set_idempotency_key(*std::move(key));
      }
    } else if (member.Is("traceparent")) {
      const auto trace = core::DecodeString(member.value);
      if (trace && core::IsTraceparent(*trace)) request->set_traceparent(*trace);
    } else if (member.Is("dcc")) {
      const auto run_ms = core::FindInteger(member.value, "timeout_ms");
      if (run_ms && *run_ms > 0) request->set_run_ms(static_cast<uint64_t>(*run_ms));
    }
    return true;
  });
}

std::string ToolCallParams(std::string_view name, std::string_view raw_arguments,
                           std::string_view raw_meta) {
  std::string params;
  params.reserve(name.size() + raw_arguments.size() + raw_meta.size() + 40);
  params.append(R"({"name":)").append(core::QuoteJson(name));
  params.append(R"(,"arguments":)").append(raw_arguments);
  if (!raw_meta.empty()) params.append(R"(,"_meta":)").append(raw_meta);
  params.push_back('}');
  return params;
}

std::string FormatEventId(const v1::EventId& id) {
  return fmt::format("{}.{}.{}", id.stream(), id.term(), id.n());
}

std::optional<v1::EventId> ParseEventId(std::string_view text) {
  const auto stream = TakeNumber(&text, false);
  const auto term = stream ? TakeNumber(&text, false) : std::nullopt;
  const auto n = term ? TakeNumber(&text, true) : std::nullopt;
  if (!n) return std::nullopt;
  v1::EventId id;
  id.set_stream(*stream);
  id.set_term(*term);
  id.set_n(*n);
  return id;
}

std::optional<std::string> AskIdOf(std::string_view raw_id) {
  auto id = core::DecodeString(raw_id);
  if (!id || !id->starts_with(kAskPrefix) || id->size() == kAskPrefix.size()) return std::nullopt;
  return id->substr(kAskPrefix.size());
}

std::optional<v1::SendRequest> ToSend(const std::string& session_id,
                                      const core::JsonRpcMessage& message) {
  v1::SendRequest request;
  request.set_session_id(session_id);
  if (message.kind != core::JsonRpcMessage::Kind::kNotification) {
    auto ask_id = AskIdOf(message.id);
    if (!ask_id) return std::nullopt;
    v1::AskAnswer& answer = *request.mutable_answer();
    answer.set_ask_id(*std::move(ask_id));
    answer.set_result(std::string(message.result));
    answer.set_error(std::string(message.error));
    return request;
  }
  if (message.method == "notifications/initialized") return std::nullopt;
  if (message.method == "notifications/cancelled") {
    const auto id = core::FindMember(message.params, "requestId");
    if (!id) return std::nullopt;
    request.mutable_cancel()->set_client_request_id(std::string(*id));
    request.mutable_cancel()->set_reason(core::FindString(message.params, "reason").value_or(""));
    return request;
  }
  request.mutable_notify()->set_method(message.method);
  request.mutable_notify()->set_params(std::string(message.params));
  return request;
}

std::string NotificationText(const v1::StreamEvent& event) {
  if (event.method() == "notifications/cancelled") {
    const std::string ask_id = core::FindString(event.params(), "requestId").value_or("");
    return core::MakeNotification(event.method(),
                                  core::SetMember(event.params(), "requestId", RawAskId(ask_id)));
  }
  return core::MakeNotification(event.method(), event.params());
}

std::string AskText(const v1::AskEvent& event) {
  return core::MakeRequest(RawAskId(event.ask_id()), event.method(), event.params());
}

ResponseText RenderOutcome(const Asked& asked, const v1::CallOutcome& outcome) {
  if (outcome.class_() == v1::RESULT) return WithBody(asked.raw_id, "result", outcome.body());
  const bool has_body = outcome.body().content_case() != v1::Body::CONTENT_NOT_SET;
  if (outcome.class_() == v1::RPC_ERROR && has_body) {
    return WithBody(asked.raw_id, "error", outcome.body());
  }
  return {FailureText(asked, outcome), 0, {}};
}

bool WasCancelledByClient(const v1::CallOutcome& outcome) {
  return outcome.class_() == v1::CANCELLED && outcome.reason() == v1::CANCELLED_BY_CLIENT;
}

std::string InvalidArgumentsText(const Asked& asked, std::string_view message) {
  if (core::InvalidArgumentsAreResults(asked.revision)) {
    return core::MakeResult(asked.raw_id, core::MakeToolError(message));
  }
  return core::MakeErrorResponse(asked.raw_id, core::kInvalidParams, message);
}

}  // namespace callboard::bridge
