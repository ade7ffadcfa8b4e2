// Implementation of McpSession.
#include "backend_agent/mcp_session.h"

#include <charconv>
#include <utility>
#include <vector>

#include "core/mcp/envelope.h"
#include "core/mcp/json.h"
#include "core/mcp/versions.h"
#include "core/runtime/planted_bug.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

constexpr std::string_view kDiscover = "server/discover";
const std::string_view kModernRevision = core::RevisionName(core::McpRevision::k2026_07_28);

std::string ClientInfoOf(const ClientDescription& client) {
  if (core::IsObject(client.client_info)) return client.client_info;
  return core::JsonObject()
      .String("name", "callboard-agent")
      .String("version", CALLBOARD_VERSION)
      .Take();
}

// Whether an array of versions has one that `fits`.
template <class Fits>
bool Lists(std::optional<std::string_view> versions, Fits fits) {
  bool listed = false;
  if (!versions) return false;
  (void)core::ForEachElement(*versions, [&](std::string_view version) {
    listed = fits(core::DecodeString(version).value_or(""));
    return !listed;
  });
  return listed;
}

bool ListsModern(std::optional<std::string_view> versions) {
  return Lists(versions, [](const std::string& version) { return version == kModernRevision; });
}

bool ListsEarlier(std::optional<std::string_view> versions) {
  return Lists(versions, [](const std::string& version) {
    const auto revision = core::ParseRevision(version);
    return revision && *revision <= core::kNewestLegacyRevision;
  });
}

// As a DiscoverResult has them, of a server that speaks that revision; else empty.
std::string ModernCapabilities(const McpReply& reply) {
  if (reply.kind != McpReply::Kind::kResult) return {};
  const std::string_view result = reply.body.view();
  const auto capabilities = core::FindMember(result, "capabilities");
  if (!ListsModern(core::FindMember(result, "supportedVersions"))) return {};
  return capabilities && core::IsObject(*capabilities) ? std::string(*capabilities) : std::string();
}

// What nobody here reads of a result of initialize or server/discover, byte for byte.
std::string RestOfDescription(std::string_view result) {
  constexpr std::string_view kRead[] = {"protocolVersion",   "capabilities", "serverInfo",
                                        "instructions",      "resultType",   "ttlMs",
                                        "supportedVersions", "cacheScope"};
  constexpr std::string_view kOfMcp = "io.modelcontextprotocol/";
  constexpr size_t kBytesMax = 16 << 10;
  std::string rest = "{";
  const auto add = [](std::string& text, const core::JsonMember& member, std::string_view value) {
    if (text.size() > 1) text.push_back(',');
    text.append("\"").append(member.key).append("\":").append(value);
  };
  (void)core::ForEachMember(result, [&](const core::JsonMember& member) {
    const bool read = std::any_of(std::begin(kRead), std::end(kRead),
                                  [&](std::string_view key) { return member.Is(key); });
    if (read) return true;
    if (!member.Is("_meta") || !core::IsObject(member.value)) {
      add(rest, member, member.value);
      return true;
    }
    std::string meta = "{";
    (void)core::ForEachMember(member.value, [&](const core::JsonMember& entry) {
      if (!entry.key.starts_with(kOfMcp)) add(meta, entry, entry.value);
      return true;
    });
    if (meta.size() > 1) add(rest, member, meta.append("}"));
    return true;
  });
  if (rest.size() == 1 || rest.size() >= kBytesMax) return {};
  return rest.append("}");
}

// What was no MCP answer is one, too.
bool TellsEra(const McpReply& reply) {
  return reply.kind != McpReply::Kind::kFailed || absl::IsInternal(reply.status);
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Our own token, as a number or (from backends that make text of it) as a string of digits.
std::optional<uint64_t> ParseToken(std::string_view raw) {
  if (core::IsString(raw) && raw.size() >= 2) raw = raw.substr(1, raw.size() - 2);
  return ParseNumber(raw);
}

// What transports with headers repeat of a request's params.
std::string NamedIn(std::string_view method, std::string_view params) {
  const std::string_view member = core::MemberOfMcpName(method);
  return member.empty() ? std::string() : core::FindString(params, member).value_or("");
}

std::string RemoveProgressToken(std::string_view params) {
  auto meta = core::FindMember(params, "_meta");
  if (!meta || !core::FindMember(*meta, "progressToken")) return std::string(params);
  return core::SetMember(params, "_meta", core::RemoveMember(*meta, "progressToken"));
}

// A client that put a trace into `_meta` itself means that one.
std::string AddTrace(std::string_view params, const core::TraceContext& trace) {
  std::string meta(core::FindMember(params, "_meta").value_or("{}"));
  if (core::IsTraceparent(core::FindString(meta, "traceparent").value_or(""))) {
    return std::string(params);
  }
  const auto add = [&meta](std::string_view name, const std::string& value) {
    if (!value.empty()) meta = core::SetMember(meta, name, core::QuoteJson(value));
  };
  add("traceparent", trace.traceparent);
  add("tracestate", trace.tracestate);
  add("baggage", trace.baggage);
  return core::SetMember(params, "_meta", meta);
}

}  // namespace

McpSession::McpSession(core::EventLoop& loop, core::Random& random,
                       std::unique_ptr<Backend> backend, Events* events, SessionLimits limits,
                       ClientDescription client)
    : loop_(loop),
      backend_(std::move(backend)),
      events_(events),
      limits_(limits),
      client_(std::move(client)),
      backoff_(limits.retry_first, limits.retry_max, random) {}

McpSession::~McpSession() = default;

uint64_t McpSession::Request(std::string method, Payload params, bool wants_progress,
                             ReplyCallback callback, core::TraceContext trace,
                             std::optional<ModernContext> modern) {
  return Add({.method = std::move(method),
              .params = std::move(params),
              .wants_progress = wants_progress,
              .trace = std::move(trace),
              .modern = std::move(modern),
              .callback = std::move(callback)});
}

uint64_t McpSession::Notify(std::string method, Payload params, ReplyCallback callback) {
  return Add({.method = std::move(method),
              .params = std::move(params),
              .notification = true,
              .callback = std::move(callback)});
}

uint64_t McpSession::Add(Pending pending) {
  const uint64_t id = next_id_++;
  Pending& kept = pending_.emplace(id, std::move(pending)).first->second;
  if (state_ == State::kReady) {
    SendPending(id, kept);
  } else if (state_ == State::kDown) {
    loop_.Post(lifetime_.Wrap([this, id] {
      auto node = pending_.extract(id);
      if (node.empty() || node.mapped().sent) return;
      if (state_ == State::kDown) {
        node.mapped().callback({.status = absl::UnavailableError("the backend is not there")});
      } else {
        pending_.insert(std::move(node));
      }
    }));
  }
  return id;
}

std::string McpSession::Compose(uint64_t id, const Pending& pending) const {
  std::string_view params = pending.params.view();
  std::string enveloped;
  if (pending.modern) {
    const ClientDescription& client = pending.modern->client;
    const std::string info = ClientInfoOf(client);
    enveloped = core::AddEnvelope(
        params, kModernRevision,
        {.capabilities = client.capabilities, .client_info = info, .log_level = client.log_level});
    params = enveloped;
  }
  std::string traced;
  if (!pending.trace.empty()) {
    traced = AddTrace(params, pending.trace);
    params = traced;
  }
  if (pending.notification) return core::MakeNotification(pending.method, params);
  const std::string raw_id = fmt::format("{}", id);
  if (pending.wants_progress) {
    return core::MakeRequest(raw_id, pending.method,
                             core::SetPath(params, {"_meta", "progressToken"}, raw_id));
  }
  if (params.find("progressToken") != std::string_view::npos) {
    return core::MakeRequest(raw_id, pending.method, RemoveProgressToken(params));
  }
  return core::MakeRequest(raw_id, pending.method, params);
}

void McpSession::SendPending(uint64_t id, Pending& pending) {
  pending.sent = true;
  pending.epoch = epoch_;
  if (modern_only_ && !pending.notification && !pending.modern) pending.modern.emplace();
  std::string text = Compose(id, pending);
  pending.exchange =
      pending.modern
          ? backend_->SendModern(id, std::move(text),
                                 {.method = pending.method,
                                  .named = NamedIn(pending.method, pending.params.view()),
                                  .params = pending.modern->param_headers},
                                 pending.trace)
          : backend_->Send(id, std::move(text), !pending.notification, pending.trace);
}

void McpSession::SendAside(std::string text) {
  const uint64_t id = next_id_++;
  Retire(id, backend_->Send(id, std::move(text), false, {}));
}

void McpSession::Retire(uint64_t id, std::unique_ptr<BackendExchange> exchange) {
  if (exchange == nullptr) return;
  finishing_.emplace(id, std::move(exchange));
  if (finishing_.size() > limits_.finishing_max) finishing_.erase(finishing_.begin());
}

bool McpSession::CancelRequest(uint64_t request, std::string_view reason) {
  auto at = pending_.find(request);
  if (at == pending_.end()) return true;
  if (!at->second.sent) {
    pending_.erase(at);
    return false;
  }
  if (at->second.modern && backend_->ends_unanswered_exchanges()) {
    // Who hangs up has cancelled; whether the backend stops at it nobody says.
    at->second.exchange.reset();
    loop_.Post(lifetime_.Wrap([this, request] {
      auto node = pending_.extract(request);
      if (node.empty()) return;
      node.mapped().callback({.status = absl::AbortedError("cancelled"), .reached = true});
    }));
    return true;
  }
  if (state_ != State::kDown && !at->second.notification) {
    const std::string raw_id = fmt::format("{}", request);
    SendAside(core::MakeNotification(
        "notifications/cancelled",
        core::JsonObject().Raw("requestId", raw_id).String("reason", reason).Take()));
  }
  return true;
}

void McpSession::StartUp() {
  state_ = State::kInitializing;
  timer_ = loop_.After(limits_.initialize_timeout, [this] {
    OnDown({.detail = fmt::format("{} does not answer", backend_->description())});
  });
  backend_->Start(this);
}

// ---- the session's life -----------------------------------------------------------------------

void McpSession::OnUp() {
  state_ = State::kInitializing;
  auto alive = lifetime_.Watch();
  events_->OnBackendUp();
  if (alive.expired() || state_ != State::kInitializing) return;
  Initialize();
}

void McpSession::OnDown(BackendExit exit) {
  state_ = State::kDown;
  timer_.Cancel();
  initialize_id_ = 0;
  initialized_id_ = 0;
  modern_capabilities_.clear();
  modern_only_ = false;
  // Behind a pipe the process is the backend.
  if (exit.process_ended || !backend_->has_headers()) ForgetEra();
  discover_timer_.Cancel();
  finishing_.clear();
  auto alive = lifetime_.Watch();
  auto orphans = std::exchange(pending_, {});
  for (auto& [id, pending] : orphans) {
    pending.exchange.reset();
    if (pending.callback == nullptr) continue;
    pending.callback(
        {.status = absl::UnavailableError("the backend has gone"), .reached = pending.sent});
    if (alive.expired()) return;
  }
  events_->OnBackendDown(std::move(exit));
}

void McpSession::Respond(std::string_view raw_id, bool is_error, std::string_view text) {
  if (state_ == State::kDown) return;
  if (core::Planted(core::PlantedBug::kAnswerTwice)) SendAside(core::MakeResult(raw_id, text));
  SendAside(is_error ? core::MakeRawErrorResponse(raw_id, text) : core::MakeResult(raw_id, text));
}

void McpSession::Initialize() {
  state_ = State::kInitializing;
  ++epoch_;
  backend_->SetRevision("");
  modern_only_ = false;
  initialized_id_ = 0;
  era_recalled_ = era_told_ =
      asks_era_ && backend_->may_be_modern() && loop_.Now() - found_era_.at < kFindingsBelieved;
  if (era_recalled_) {
    modern_capabilities_ = found_era_.modern_capabilities;
  } else if (asks_era_ && backend_->may_be_modern() && backend_->has_headers()) {
    return DiscoverFirst(/*again=*/false);
  }
  OpenSession();
}

void McpSession::DiscoverInPlaceOfInitialize(ReplyCallback on_reply) {
  initialize_id_ = next_id_++;
  Pending& pending = pending_
                         .emplace(initialize_id_, Pending{.method = std::string(kDiscover),
                                                          .modern = ModernContext(),
                                                          .sent_again = true,
                                                          .callback = std::move(on_reply)})
                         .first->second;
  SendPending(initialize_id_, pending);
}

void McpSession::DiscoverFirst(bool again) {
  DiscoverInPlaceOfInitialize(
      [this, again](const McpReply& reply) { OnDiscoveredFirst(reply, again); });
  timer_ = loop_.After(limits_.discover_first_timeout, [this] {
    Forget(initialize_id_);
    OpenSession();
  });
}

void McpSession::OnDiscoveredFirst(const McpReply& reply, bool again) {
  initialize_id_ = 0;
  if (state_ != State::kInitializing) return;
  const bool refused = reply.kind == McpReply::Kind::kError &&
                       core::FindInteger(reply.body.view(), "code") == core::kUnsupportedVersion;
  if (refused && !again && ListsModern(core::FindPath(reply.body.view(), {"data", "supported"}))) {
    return DiscoverFirst(/*again=*/true);
  }
  era_told_ = TellsEra(reply);
  modern_capabilities_ = ModernCapabilities(reply);
  const bool alone =
      modern() && !ListsEarlier(core::FindMember(reply.body.view(), "supportedVersions"));
  if (alone) return BeginAlone(reply, "");
  if (era_told_) found_era_ = {loop_.Now(), modern_capabilities_, {}};
  OpenSession();
}

void McpSession::OpenSession() {
  const std::string params =
      core::JsonObject()
          .String("protocolVersion", core::RevisionName(core::kNewestLegacyRevision))
          .Raw("capabilities", core::IsObject(client_.capabilities) ? client_.capabilities : "{}")
          .Raw("clientInfo", ClientInfoOf(client_))
          .Take();
  initialize_id_ = next_id_++;
  Pending& pending =
      pending_
          .emplace(
              initialize_id_,
              Pending{.method = "initialize",
                      .params = Payload(params),
                      .sent_again = true,
                      .callback = [this](McpReply reply) { OnInitializeReply(std::move(reply)); }})
          .first->second;
  SendPending(initialize_id_, pending);
  timer_ = loop_.After(limits_.initialize_timeout, [this] {
    Forget(initialize_id_);
    RetryInitialize(fmt::format("initialize was not answered within {} s",
                                absl::ToInt64Seconds(limits_.initialize_timeout)));
  });
}

void McpSession::RetryInitialize(std::string why) {
  initialize_id_ = 0;
  timer_ = loop_.After(backoff_.Next(), [this] { Initialize(); });
  events_->OnInitializeFailed(std::move(why));
}

void McpSession::OnSessionForgotten() {
  if (state_ == State::kReady) Initialize();
}

void McpSession::OnInitializeReply(McpReply reply) {
  initialize_id_ = 0;
  if (state_ != State::kInitializing) return;
  if (reply.kind != McpReply::Kind::kResult) {
    const bool refused = reply.kind == McpReply::Kind::kError;
    std::string why = fmt::format("initialize failed: {}",
                                  refused ? reply.body.view() : core::Message(reply.status));
    if (refused && asks_era_ && backend_->may_be_modern()) return DiscoverAlone(std::move(why));
    return RetryInitialize(std::move(why));
  }
  backoff_.Reset();
  server_ = {};
  // What is missing or malformed here stays empty; the tools may work all the same.
  (void)core::ForEachMember(reply.body.view(), [&](core::JsonMember member) {
    if (member.Is("protocolVersion")) {
      server_.revision = core::DecodeString(member.value).value_or("");
    } else if (member.Is("capabilities")) {
      server_.capabilities = std::string(member.value);
    } else if (member.Is("serverInfo")) {
      server_.server_info = std::string(member.value);
    } else if (member.Is("instructions")) {
      server_.instructions = core::DecodeString(member.value).value_or("");
    }
    return true;
  });
  if (era_recalled_ && server_.server_info != found_era_.server_info) {
    // Another server than the one that was asked: this one is asked after its session is open.
    ForgetEra();
    era_told_ = false;
    modern_capabilities_.clear();
  }
  server_.rest = RestOfDescription(reply.body.view());
  found_era_.server_info = server_.server_info;
  backend_->SetRevision(server_.revision);
  // Strict servers refuse requests that overtake this notification on another connection.
  initialized_id_ = next_id_++;
  Retire(initialized_id_,
         backend_->Send(initialized_id_, core::MakeNotification("notifications/initialized", ""),
                        false, {}));
  timer_ = loop_.After(limits_.initialized_wait, [this] { BecomeReady(); });
}

void McpSession::BecomeReady() {
  timer_.Cancel();
  initialized_id_ = 0;
  state_ = State::kReady;
  for (auto& [id, pending] : pending_) {
    if (!pending.sent) SendPending(id, pending);
  }
  const bool ask = asks_era_ && !modern_only_ && !era_told_ && backend_->may_be_modern();
  if (ask) Discover();
  const bool known = !ask && modern();
  const auto alive = lifetime_.Watch();
  events_->OnSessionReady();
  if (known && !alive.expired()) events_->OnEraKnown();
}

void McpSession::DiscoverAlone(std::string why) {
  DiscoverInPlaceOfInitialize(
      [this, why = std::move(why)](const McpReply& reply) { BeginAlone(reply, why); });
}

void McpSession::BeginAlone(const McpReply& reply, std::string why) {
  initialize_id_ = 0;
  if (state_ != State::kInitializing) return;
  modern_capabilities_ = ModernCapabilities(reply);
  if (modern_capabilities_.empty()) return RetryInitialize(std::move(why));
  ForgetEra();
  backoff_.Reset();
  modern_only_ = true;
  const std::string_view result = reply.body.view();
  server_ = {.revision = std::string(kModernRevision),
             .capabilities = modern_capabilities_,
             .server_info =
                 std::string(core::FindPath(result, {"_meta", core::kMetaServerInfo}).value_or("")),
             .instructions = core::FindString(result, "instructions").value_or(""),
             .rest = RestOfDescription(result)};
  backend_->SetRevision(kModernRevision);
  BecomeReady();
}

// After initialize: there are servers that end at anything else before it.
void McpSession::Discover() {
  pending_.erase(discover_id_);
  discover_id_ = Request(
      std::string(kDiscover), Payload(), false,
      [this](const McpReply& reply) { OnDiscovered(reply); }, {}, ModernContext());
  discover_timer_ = loop_.After(limits_.discover_timeout, [this] {
    Forget(discover_id_);
    SetEra("", /*told=*/true);
  });
}

void McpSession::OnDiscovered(const McpReply& reply) {
  discover_timer_.Cancel();
  SetEra(ModernCapabilities(reply), TellsEra(reply));
}

void McpSession::SetEra(std::string capabilities, bool told) {
  const bool was_modern = modern();
  modern_capabilities_ = std::move(capabilities);
  if (told) found_era_ = {loop_.Now(), modern_capabilities_, server_.server_info};
  if (was_modern || modern()) events_->OnEraKnown();
}

void McpSession::OnOtherEra() {
  ForgetEra();
  if (asks_era_ && state_ == State::kReady && !modern_only_) Discover();
}

// ---- messages ---------------------------------------------------------------------------------

void McpSession::OnMessage(Payload message, uint64_t exchange) {
  std::string_view text = message.view();
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '[') {
    // A batch of the 2025-03-26 revision.
    std::vector<std::string_view> elements;
    if (!core::ForEachElement(text, [&](std::string_view element) {
           elements.push_back(element);
           return true;
         }).ok()) {
      ++ignored_messages_;
      return;
    }
    auto alive = lifetime_.Watch();
    for (std::string_view element : elements) {
      TakeMessage(message, element, exchange);
      if (alive.expired()) return;
    }
    return;
  }
  TakeMessage(message, text, exchange);
}

void McpSession::TakeMessage(const Payload& whole, std::string_view text, uint64_t exchange) {
  auto message = core::ParseJsonRpc(text, false);
  if (!message.ok()) {
    ++ignored_messages_;
    return;
  }
  switch (message->kind) {
    case core::JsonRpcMessage::Kind::kResult:
    case core::JsonRpcMessage::Kind::kError:
      TakeResponse(whole, *message);
      return;
    case core::JsonRpcMessage::Kind::kNotification:
      TakeNotification(*message, exchange);
      return;
    case core::JsonRpcMessage::Kind::kRequest:
      TakeRequest(*message, exchange);
      return;
  }
}

void McpSession::TakeResponse(const Payload& whole, const core::JsonRpcMessage& message) {
  const auto id = ParseNumber(message.id);
  auto node = id ? pending_.extract(*id) : decltype(pending_.extract(0)){};
  if (node.empty() || node.mapped().notification || !node.mapped().sent) {
    ++ignored_messages_;
    if (!node.empty()) pending_.insert(std::move(node));
    return;
  }
  Retire(*id, std::move(node.mapped().exchange));
  McpReply reply;
  const bool is_result = message.kind == core::JsonRpcMessage::Kind::kResult;
  reply.kind = is_result ? McpReply::Kind::kResult : McpReply::Kind::kError;
  reply.body = whole.Part(is_result ? message.result : message.error);
  reply.reached = true;
  const bool other_era =
      !is_result && node.mapped().modern && node.mapped().method != kDiscover &&
      core::FindInteger(reply.body.view(), "code") == core::kUnsupportedVersion &&
      !ListsModern(core::FindPath(reply.body.view(), {"data", "supported"}));
  if (other_era) OnOtherEra();
  node.mapped().callback(std::move(reply));
}

void McpSession::TakeNotification(const core::JsonRpcMessage& message, uint64_t exchange) {
  if (message.method == "notifications/progress") {
    auto raw = core::FindMember(message.params, "progressToken");
    auto token = raw ? ParseToken(*raw) : std::nullopt;
    auto at = token ? pending_.find(*token) : pending_.end();
    // After the response, or without a token of ours: nobody waits for it.
    if (at == pending_.end() || !at->second.wants_progress) return;
    events_->OnProgress(*token, core::RemoveMember(message.params, "progressToken"));
    return;
  }
  if (message.method.size() > limits_.method_bytes_max) {
    ++ignored_messages_;
    return;
  }
  events_->OnServerNotification(RequestOf(exchange), message.method, std::string(message.params));
}

void McpSession::TakeRequest(const core::JsonRpcMessage& message, uint64_t exchange) {
  if (state_ == State::kDown) return;
  if (message.method == "ping") {
    SendAside(core::MakeResult(message.id, "{}"));
    return;
  }
  if (message.method.size() > limits_.method_bytes_max) {
    SendAside(
        core::MakeErrorResponse(message.id, core::kInvalidRequest,
                                fmt::format("the method's name has {} bytes; at most {} are taken",
                                            message.method.size(), limits_.method_bytes_max)));
    return;
  }
  events_->OnServerRequest(RequestOf(exchange), std::string(message.id), message.method,
                           std::string(message.params));
}

void McpSession::OnExchangeEnd(uint64_t id, absl::Status status, bool reached) {
  finishing_.erase(id);
  if (id == initialized_id_ && id != 0) {
    if (status.code() == absl::StatusCode::kNotFound) {
      RetryInitialize("the session was forgotten at once after initialize");
    } else {
      BecomeReady();
    }
    return;
  }
  auto at = pending_.find(id);
  if (at == pending_.end()) return;
  Pending& pending = at->second;
  if (status.code() == absl::StatusCode::kNotFound && !pending.sent_again) {
    pending.sent_again = true;
    pending.sent = false;
    pending.exchange.reset();
    if (state_ == State::kReady && pending.epoch == epoch_) {
      Initialize();
    } else if (state_ == State::kReady) {
      SendPending(id, pending);
    }
    return;
  }
  auto node = pending_.extract(at);
  // What no server of that revision would answer.
  if (node.mapped().modern && absl::IsInternal(status) && node.mapped().method != kDiscover) {
    OnOtherEra();
  }
  McpReply reply;
  reply.reached = reached;
  if (status.ok() && pending.notification) {
    reply.kind = McpReply::Kind::kResult;
  } else if (status.ok()) {
    reply.status = absl::InternalError("the backend ended its reply without a response");
    reply.reached = true;
  } else {
    reply.status = std::move(status);
  }
  node.mapped().callback(std::move(reply));
}

}  // namespace callboard::agent
