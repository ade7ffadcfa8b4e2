// JSON-RPC of one MCP revision <-> the control API. Pure: text in, messages out, and back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "callboard/v1/control.pb.h"
#include "core/mcp/jsonrpc.h"
#include "core/mcp/versions.h"

namespace callboard::bridge {

// ---- from the client ----

// The revision a session gets: the client's if we serve it, else our newest one with sessions.
core::McpRevision NegotiateRevision(std::string_view initialize_params);
// The same on HTTP+SSE, whose own revision is the oldest: it is what a client gets that asks for
// none we know.
core::McpRevision NegotiateOverSse(std::string_view initialize_params);
// Whether we serve sessions of that revision (value of a MCP-Protocol-Version header).
bool IsServedRevision(std::string_view name);
// Those revisions, the oldest first.
inline constexpr std::array<core::McpRevision, 3> kServedRevisions = {
    core::McpRevision::k2025_03_26, core::McpRevision::k2025_06_18, core::McpRevision::k2025_11_25};
// The same for error messages.
std::string ServedRevisions();

// The parts of `params` the bridge looks at, raw; empty views are absent members.
struct ParamsView {
  std::string_view meta;
  std::string_view name;
  std::string_view arguments;
  std::string_view cursor;
};
ParamsView SliceParams(std::string_view params);

// Fills what `_meta` says about a call: progress token, run time, idempotency key, trace.
void ApplyMeta(std::string_view meta, v1::InvokeRequest* request);

// {"name":..,"arguments":..[,"_meta":..]} without touching a byte of the raw parts.
std::string ToolCallParams(std::string_view name, std::string_view raw_arguments,
                           std::string_view raw_meta);

// ---- event ids and asks ----

// "stream.term.n", and back; nullopt if it is not of that form.
std::string FormatEventId(const v1::EventId& id);
std::optional<v1::EventId> ParseEventId(std::string_view text);

// Requests that we send carry the id "ask-<ask_id>"; this is the way back from a response's id.
std::optional<std::string> AskIdOf(std::string_view raw_id);

// The control plane's message for a notification or a response of a session's client; nullopt: it
// needs none.
std::optional<v1::SendRequest> ToSend(const std::string& session_id,
                                      const core::JsonRpcMessage& message);

std::string NotificationText(const v1::StreamEvent& event);
std::string AskText(const v1::AskEvent& event);

// ---- to the client ----

// What is known about a request whose outcome is rendered.
struct Asked {
  std::string_view raw_id;
  core::McpRevision revision;
  bool is_tool_call;
  std::string_view instance;  // for error data; may be empty
};

// A response in up to three parts: `head`, then `body_size` bytes of chunks, then `tail`. With
// body_size 0 all is in `head`.
struct ResponseText {
  std::string head;
  uint64_t body_size = 0;
  std::string tail;
};

ResponseText RenderOutcome(const Asked& asked, const v1::CallOutcome& outcome);
// Whether the client itself took the request back: MCP forbids a response then.
bool WasCancelledByClient(const v1::CallOutcome& outcome);

// An answer whose text says what is wrong with the arguments of a tool: as the revision wants it.
std::string InvalidArgumentsText(const Asked& asked, std::string_view message);

}  // namespace callboard::bridge
