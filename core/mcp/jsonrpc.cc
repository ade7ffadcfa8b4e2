// Implementation of the JSON-RPC envelope: parsing and writing.
#include "core/mcp/jsonrpc.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

constexpr size_t kShownBytesMax = 100;

absl::Status NotAMessage(std::string_view what) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   fmt::format("not a JSON-RPC 2.0 message: {}", what));
}

// Raw members of the envelope; an empty view is an absent member.
struct Envelope {
  std::string_view jsonrpc;
  std::string_view id;
  std::string_view method;
  std::string_view params;
  std::string_view result;
  std::string_view error;
  std::string_view twice;  // name of the first member that occurs a second time

  void Take(const JsonMember& member) {
    const auto take = [&](std::string_view name, std::string_view* slot) {
      if (!member.Is(name)) return false;
      if (!slot->empty() && twice.empty()) twice = name;
      *slot = member.value;
      return true;
    };
    take("jsonrpc", &jsonrpc) || take("id", &id) || take("method", &method) ||
        take("params", &params) || take("result", &result) || take("error", &error);
  }
};

bool IsRequestId(std::string_view raw) {
  return IsString(raw) || (IsNumber(raw) && raw.find_first_of(".eE") == std::string_view::npos);
}

absl::Status CheckMembers(const Envelope& envelope) {
  if (!envelope.twice.empty()) {
    return NotAMessage(fmt::format("member \"{}\" occurs twice", envelope.twice));
  }
  if (envelope.jsonrpc != "\"2.0\"" && DecodeString(envelope.jsonrpc) != "2.0") {
    return NotAMessage("it needs \"jsonrpc\":\"2.0\"");
  }
  if (!envelope.id.empty() && !IsRequestId(envelope.id)) {
    return NotAMessage(fmt::format("its id must be a string or an integer, not {}",
                                   envelope.id.substr(0, kShownBytesMax)));
  }
  return absl::OkStatus();
}

absl::StatusOr<JsonRpcMessage> Classify(const Envelope& envelope) {
  CALLBOARD_RETURN_IF_ERROR(CheckMembers(envelope));
  JsonRpcMessage message = {.kind = JsonRpcMessage::Kind::kRequest,
                            .id = envelope.id,
                            .params = envelope.params,
                            .result = envelope.result,
                            .error = envelope.error};
  const bool has_result = !envelope.result.empty();
  const bool has_error = !envelope.error.empty();
  if (has_result && has_error) return NotAMessage("it has both a result and an error");
  if (!envelope.method.empty()) {
    if (has_result || has_error) return NotAMessage("it has both a method and an outcome");
    auto method = DecodeString(envelope.method);
    if (!method) return NotAMessage("its method must be a string");
    if (!envelope.params.empty() && !IsObject(envelope.params) && !IsArray(envelope.params)) {
      return NotAMessage("its params must be an object or an array");
    }
    message.method = *std::move(method);
    if (envelope.id.empty()) message.kind = JsonRpcMessage::Kind::kNotification;
    return message;
  }
  if (has_error) {
    if (!IsObject(envelope.error)) return NotAMessage("its error must be an object");
    message.kind = JsonRpcMessage::Kind::kError;
    return message;
  }
  if (!has_result) return NotAMessage("it has no method, no result and no error");
  if (envelope.id.empty()) return NotAMessage("it has a result but no id");
  message.kind = JsonRpcMessage::Kind::kResult;
  return message;
}

std::string Join(std::initializer_list<std::string_view> parts) {
  size_t size = 0;
  for (std::string_view part : parts) size += part.size();
  std::string text;
  text.reserve(size);
  for (std::string_view part : parts) text.append(part);
  return text;
}

}  // namespace

absl::StatusOr<JsonRpcMessage> ParseJsonRpc(std::string_view text, bool validate) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    CALLBOARD_RETURN_IF_ERROR(ValidateJson(text));
    return NotAMessage("it must be one object; batches are not supported");
  }
  Envelope envelope;
  CALLBOARD_RETURN_IF_ERROR(ForEachMember(
      text,
      [&](JsonMember member) {
        envelope.Take(member);
        return true;
      },
      validate ? JsonCheck::kFull : JsonCheck::kStructure));
  return Classify(envelope);
}

std::string MakeRequest(std::string_view raw_id, std::string_view method,
                        std::string_view raw_params) {
  return Join({R"({"jsonrpc":"2.0","id":)", raw_id, R"(,"method":)", QuoteJson(method),
               raw_params.empty() ? "" : R"(,"params":)", raw_params, "}"});
}

std::string MakeNotification(std::string_view method, std::string_view raw_params) {
  return Join({R"({"jsonrpc":"2.0","method":)", QuoteJson(method),
               raw_params.empty() ? "" : R"(,"params":)", raw_params, "}"});
}

std::string MakeResult(std::string_view raw_id, std::string_view raw_result) {
  return Join({R"({"jsonrpc":"2.0","id":)", raw_id, R"(,"result":)", raw_result, "}"});
}

std::string MakeErrorResponse(std::string_view raw_id, int code, std::string_view message,
                              std::string_view raw_data) {
  return MakeRawErrorResponse(raw_id, MakeErrorObject(code, message, raw_data));
}

std::string MakeRawErrorResponse(std::string_view raw_id, std::string_view raw_error) {
  return Join({R"({"jsonrpc":"2.0","id":)", raw_id.empty() ? "null" : raw_id, R"(,"error":)",
               raw_error, "}"});
}

std::string MakeErrorObject(int code, std::string_view message, std::string_view raw_data) {
  JsonObject error;
  error.Int("code", code).String("message", message);
  if (!raw_data.empty()) error.Raw("data", raw_data);
  return error.Take();
}

std::string MakeToolError(std::string_view message) {
  return fmt::format(R"({{"content":[{{"type":"text","text":{}}}],"isError":true}})",
                     QuoteJson(message));
}

}  // namespace callboard::core
