// Implementation of StdioFace: what the client says, and the end.
#include "apps/stdio/stdio_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/mcp/envelope.h"
#include "core/mcp/id_at_edges.h"
#include "core/mcp/json.h"
#include "core/mcp/versions.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::apps {
namespace {

using core::JsonRpcMessage;

constexpr std::string_view kOldest = "2024-11-05";

// Asking, listing and reading: these change nothing, and many servers know no key for them.
bool MayRunTwice(std::string_view method) {
  constexpr std::string_view kPrefixes[] = {"resources/", "prompts/", "completion/", "logging/"};
  return method == "tools/list" || std::ranges::any_of(kPrefixes, [&](std::string_view prefix) {
           return method.starts_with(prefix);
         });
}

}  // namespace

// The DELETE at the end: whatever becomes of it, `over` is called once.
class StdioFace::Goodbye final : private AnswerSink {
 public:
  Goodbye(FaceLink& link, absl::AnyInvocable<void()> over) : over_(std::move(over)) {
    exchange_ = link.transport().Delete(link.session(), this);
    timer_ = link.loop().After(link.config().delete_timeout, [this] { Over(); });
  }

 private:
  void OnHead(const AnswerHead&) override {}
  void OnEvent(AnswerEvent) override {}
  void OnEnd(AnswerEnd) override { Over(); }
  void Over() {
    if (auto over = std::exchange(over_, nullptr)) over();
  }

  absl::AnyInvocable<void()> over_;
  core::Timer timer_;
  std::unique_ptr<TransportExchange> exchange_;
};

StdioFace::StdioFace(core::EventLoop& loop, core::Random& random, McpTransport& transport,
                     LineOutput& output, const FaceConfig& config, std::string place,
                     absl::AnyInvocable<void()> done)
    : loop_(loop),
      random_(random),
      transport_(transport),
      output_(output),
      config_(config),
      place_(std::move(place)),
      done_(std::move(done)),
      reconnector_(loop, config_.reconnect, *this),
      notes_(*this,
             [this](std::string_view method) {
               if (method == "notifications/initialized") stream_.Open();
             }),
      stream_(*this) {}

StdioFace::~StdioFace() = default;

// ---- lines ------------------------------------------------------------------------------------

void StdioFace::OnLine(std::string line) {
  if (ending_) return;
  const size_t first = line.find_first_not_of(" \t\r");
  if (first != std::string::npos && line[first] == '[') return OnBatch(line);
  OnMessage(std::move(line));
}

// A batch of 2025-03-26: each response is a line of its own.
void StdioFace::OnBatch(const std::string& line) {
  if (const absl::Status status = core::ValidateJson(line); !status.ok()) {
    return SayError({}, core::kParseError, core::Message(status), "parse_error");
  }
  if (session_.revision != core::RevisionName(core::McpRevision::k2025_03_26)) {
    return SayError({}, core::kInvalidRequest, "send one message a line: there are no batches",
                    "no_batches");
  }
  (void)core::ForEachElement(line, [this](std::string_view element) {
    OnMessage(std::string(element));
    return true;
  });
}

void StdioFace::OnTooLongLine(const LineSplitter::TooLong& line) {
  if (ending_) return;
  SayError(core::FindIdAtEdges(line.head, line.tail), core::kInvalidRequest,
           fmt::format("a message of {} bytes is too long; it was not sent", line.bytes),
           "message_too_large");
}

void StdioFace::OnMessage(std::string text) {
  const auto message = core::ParseJsonRpc(text, /*validate=*/true);
  if (!message.ok()) {
    const bool json = message.status().code() == absl::StatusCode::kFailedPrecondition;
    // Whoever waits for that id must not wait for ever.
    const auto id = json ? core::FindMember(text, "id") : std::nullopt;
    const bool usable = id && (core::IsString(*id) || core::IsNumber(*id));
    return SayError(usable ? *id : std::string_view(),
                    json ? core::kInvalidRequest : core::kParseError,
                    core::Message(message.status()), json ? "invalid_request" : "parse_error");
  }
  switch (message->kind) {
    case JsonRpcMessage::Kind::kRequest:
      return OnRequest(*message, std::move(text));
    case JsonRpcMessage::Kind::kNotification:
      return OnNotification(*message, std::move(text));
    case JsonRpcMessage::Kind::kResult:
    case JsonRpcMessage::Kind::kError:
      return OnClientAnswer(*message, std::move(text));
  }
}

// ---- requests ---------------------------------------------------------------------------------

void StdioFace::OnRequest(const JsonRpcMessage& message, std::string text) {
  // Here is somebody, whatever has become of the server.
  if (message.method == "ping") return Say(core::MakeResult(message.id, "{}"));
  if (message.method == "server/discover" || core::FindModernClaim(message.params)) {
    // Streams without ids cannot be resumed: a client of both eras falls back to initialize.
    return SayError(message.id, core::kMethodNotFound,
                    "MCP 2026-07-28 is not spoken on stdio: send initialize", "not_served");
  }
  if (FindRequest(message.id) != requests_.end() || message.id == initialize_id_) {
    return SayError(message.id, core::kInvalidRequest, "a request with that id is not answered yet",
                    "id_in_use");
  }
  if (message.method == "initialize") return OnInitialize(message, std::move(text));
  if (initialize_params_.empty()) {
    return SayError(message.id, core::kInvalidRequest, "send initialize first", "not_initialized");
  }
  if (requests_.size() >= config_.requests_max ||
      request_bytes_ + text.size() > config_.request_bytes_max) {
    return SayError(message.id, core::kServerError,
                    fmt::format("{} requests with {} bytes are not answered yet: too many",
                                requests_.size(), request_bytes_),
                    "too_many");
  }
  Add(Describe(message, std::move(text)));
}

void StdioFace::OnInitialize(const JsonRpcMessage& message, std::string text) {
  if (reconnector_.state() != LinkState::kIdle) {
    return SayError(message.id, core::kInvalidRequest, "the session is initialized already",
                    "initialized");
  }
  initialize_id_ = message.id;
  initialize_params_ = message.params.empty() ? "{}" : std::string(message.params);
  // On stdio both are the same but for what later ones may add.
  speaks_2024_ = core::FindString(initialize_params_, "protocolVersion") == kOldest;
  if (speaks_2024_) {
    initialize_params_ =
        core::SetMember(initialize_params_, "protocolVersion",
                        core::QuoteJson(core::RevisionName(core::McpRevision::k2025_03_26)));
    text = core::SetMember(text, "params", initialize_params_);
  }
  initialize_text_ = std::move(text);
  capabilities_.clear();
  log_level_params_.clear();
  subscribed_.clear();
  repeatable_.clear();
  notes_.Clear();
  reconnector_.Open();
}

ClientRequest::Asked StdioFace::Describe(const JsonRpcMessage& message, std::string text) {
  ClientRequest::Asked asked;
  asked.id = message.id;
  asked.method = message.method;
  asked.repeatable = MayRunTwice(message.method);
  if (message.method == "tools/call") {
    asked.repeatable = repeatable_.contains(core::FindString(message.params, "name").value_or(""));
  }
  if (!MayRunTwice(message.method)) asked.key = random_.Hex(16);
  if (const auto dcc = core::FindPath(message.params, {"_meta", "dcc"})) {
    const int64_t wish_ms = core::FindInteger(*dcc, "timeout_ms").value_or(0);
    asked.wish = std::clamp(absl::Milliseconds(wish_ms), absl::ZeroDuration(), config_.request_max);
  }
  asked.text = std::move(text);
  return asked;
}

StdioFace::Requests::iterator StdioFace::FindRequest(std::string_view raw_id) {
  return std::ranges::find_if(
      requests_, [&](const auto& entry) { return entry.second->asked().id == raw_id; });
}

void StdioFace::Add(ClientRequest::Asked asked) {
  request_bytes_ += asked.text.size();
  auto request = std::make_unique<ClientRequest>(*this, std::move(asked));
  ClientRequest& added = *request;
  requests_.emplace(++last_request_, std::move(request));
  if (connected()) return added.Send();
  if (reconnector_.state() == LinkState::kIdle) return reconnector_.Open();
  added.Await();
}

void StdioFace::Remove(Requests::iterator request) {
  request_bytes_ -= request->second->asked().text.size();
  requests_.erase(request);
  EndIfDone();
}

// ---- what needs no answer ---------------------------------------------------------------------

void StdioFace::OnNotification(const JsonRpcMessage& message, std::string text) {
  if (message.method == "notifications/cancelled") return OnCancel(message, std::move(text));
  const bool initialized = message.method == "notifications/initialized";
  notes_.Add(std::move(text), message.method, /*of_session=*/initialized);
}

// A cancelled request gets no answer, so it is over here.
void StdioFace::OnCancel(const JsonRpcMessage& message, std::string text) {
  const auto id = core::FindMember(message.params, "requestId");
  const auto request = id ? FindRequest(*id) : requests_.end();
  if (request == requests_.end()) return;
  const bool told = request->second->may_have_run();
  Remove(request);
  if (told && !ending_) notes_.Add(std::move(text), message.method, /*of_session=*/true);
}

void StdioFace::OnClientAnswer(const JsonRpcMessage& message, std::string text) {
  if (asks_.erase(std::string(message.id)) == 0) {
    return core::LogDebug("answer_dropped", {{"id", message.id}});
  }
  notes_.Add(std::move(text), {}, /*of_session=*/true);
}

// ---- to the client ----------------------------------------------------------------------------

void StdioFace::Say(std::string text) {
  output_.Write(std::move(text));
  if (paused_ || output_.unsent_bytes() <= config_.output_bytes_max) return;
  paused_ = true;
  transport_.PauseRelayed(true);
}

void StdioFace::SayError(std::string_view raw_id, int code, std::string_view message,
                         std::string_view reason) {
  Say(core::MakeErrorResponse(raw_id, code, message,
                              core::JsonObject().String("reason", reason).Take()));
}

void StdioFace::OnOutputRead() {
  if (!paused_ || output_.unsent_bytes() > config_.output_bytes_max / 2) return;
  paused_ = false;
  transport_.PauseRelayed(false);
}

// ---- the end ----------------------------------------------------------------------------------

void StdioFace::OnInputEnd() {
  if (ending_) return;
  ending_ = true;
  end_timer_ = loop_.After(config_.end_grace, [this] { Farewell(); });
  EndIfDone();
}

void StdioFace::Stop() {
  ending_ = true;
  Farewell();
}

// Later: a request may be what brings the end about.
void StdioFace::EndIfDone() {
  if (!ending_ || !requests_.empty() || !initialize_id_.empty() || !notes_.empty()) return;
  loop_.Post(lifetime_.Wrap([this] { Farewell(); }));
}

void StdioFace::Farewell() {
  if (std::exchange(parting_, true)) return;
  const bool open = connected();
  const Reconnector::Counts& counts = reconnector_.counts();
  core::LogInfo("stdio_ends", {{"session", session_.session},
                               {"open_requests", requests_.size()},
                               {"resumed", counts.resumed},
                               {"re_registered", counts.re_registered},
                               {"failed", counts.failed}});
  end_timer_.Cancel();
  reconnector_.Stop();
  stream_.Close();
  notes_.Clear();
  requests_.clear();
  request_bytes_ = 0;
  auto over = lifetime_.Wrap([this] {
    auto done = std::exchange(done_, nullptr);
    done();
  });
  if (!open || session_.session.empty()) return loop_.Post(std::move(over));
  goodbye_ = std::make_unique<Goodbye>(
      *this, [this, over = std::move(over)]() mutable { loop_.Post(std::move(over)); });
}

}  // namespace callboard::apps
