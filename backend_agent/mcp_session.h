// MCP client over a Backend: initialize, wire ids, progress tokens, and who gets which message.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backend_agent/backend.h"
#include "backend_agent/payload.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/backoff.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/random.h"

namespace callboard::agent {

struct SessionLimits {
  absl::Duration initialize_timeout = absl::Seconds(30);
  // Between attempts to initialize.
  absl::Duration retry_first = absl::Milliseconds(500);
  absl::Duration retry_max = absl::Seconds(10);
  // For the backend to take notifications/initialized before requests are sent.
  absl::Duration initialized_wait = absl::Seconds(1);
  // For the answer to server/discover; a backend that gives none speaks earlier revisions only.
  absl::Duration discover_timeout = absl::Seconds(10);
  // The same where it is asked before initialize, which waits for it.
  absl::Duration discover_first_timeout = absl::Seconds(3);
  // Exchanges that have had their response and not yet their end; the oldest is given up beyond.
  size_t finishing_max = 64;
  // Of the name of a method that the server sends, bytes: it goes whole into one item of the link.
  // A request beyond is answered with an error, a notification is ignored and counted.
  size_t method_bytes_max = 1'024;
};

// How one request to the backend ended.
struct McpReply {
  enum class Kind { kResult, kError, kFailed };
  Kind kind = Kind::kFailed;
  Payload body;          // the raw result, or the raw error object
  absl::Status status;   // kFailed: with the codes of Backend::Events::OnExchangeEnd
  bool reached = false;  // kFailed: the backend may have seen the request
};

// What the backend said of itself in initialize; raw JSON where JSON.
struct ServerDescription {
  std::string revision;
  std::string capabilities;
  std::string server_info;
  std::string instructions;  // decoded text
  std::string rest;          // an object of what else it says; empty: nothing, or too much
};

// What initialize says of the client, or the envelope of a modern request; raw JSON. Empty: the
// agent itself, with no capabilities.
struct ClientDescription {
  std::string capabilities;
  std::string client_info;
  std::string log_level;  // of an envelope; empty: none
};

// What makes a request one of revision 2026-07-28.
struct ModernContext {
  ClientDescription client;
  // Arguments that are repeated in headers, see ModernHeaders.
  std::vector<std::pair<std::string, std::string>> param_headers;
};

// Owns the backend; owned by a McpSeat or by its ClientSessions. Loop thread only. Requests before
// the session is ready wait (bounded by the callers); while the backend is away they fail at once.
// Replies come in order of arrival, exactly one per request unless Forget() was called, never from
// inside Request().
class McpSession final : private Backend::Events {
 public:
  // May destroy the session.
  class Events {
   public:
    virtual ~Events() = default;
    // A process is there; nothing has been sent to it.
    virtual void OnBackendUp() = 0;
    // initialize is done, also again after the backend had forgotten the session.
    virtual void OnSessionReady() = 0;
    // modern() has changed, after AskEra().
    virtual void OnEraKnown() {}
    // initialize has failed, and why; it is tried again.
    virtual void OnInitializeFailed(std::string why) = 0;
    // What the backend said by itself may have been lost for a while.
    virtual void OnBackendRejoined() = 0;
    // All requests have had their failed replies.
    virtual void OnBackendDown(BackendExit exit) = 0;
    // Params of notifications/progress for a request under way, without the token.
    virtual void OnProgress(uint64_t request, std::string raw_params) = 0;
    // `request`: the one under way whose reply carried the message; 0 if that is not known.
    virtual void OnServerNotification(uint64_t request, std::string method,
                                      std::string raw_params) = 0;
    // To be answered by Respond() with the same raw id.
    virtual void OnServerRequest(uint64_t request, std::string raw_id, std::string method,
                                 std::string raw_params) = 0;
  };
  using ReplyCallback = absl::AnyInvocable<void(McpReply)>;

  McpSession(core::EventLoop& loop, core::Random& random, std::unique_ptr<Backend> backend,
             Events* events, SessionLimits limits, ClientDescription client = {});
  ~McpSession() override;

  void Start() { backend_->Start(this); }
  // Of a backend that is there: requests wait for it, for initialize_timeout at most.
  void StartUp();

  // From now on the backend is asked whether it speaks revision 2026-07-28, too: before initialize
  // where requests have headers, and else after it, as there are servers behind pipes that end at
  // anything else before it. What it says is believed for kFindingsBelieved, through sessions that
  // it forgets and absences of its endpoint, unless it answers as a backend of the other era, says
  // another serverInfo, or its process has ended.
  void AskEra() { asks_era_ = true; }
  // Another process may be there.
  void ForgetEra() { found_era_ = {}; }
  // It does: requests may go in that revision, beside the session.
  bool modern() const { return !modern_capabilities_.empty(); }
  // It refuses initialize and speaks that revision alone: every request goes in it.
  bool modern_only() const { return modern_only_; }
  // As server/discover told; raw JSON.
  const std::string& modern_capabilities() const { return modern_capabilities_; }

  // The reply's number is the wire id. `params` is a raw object or empty. `trace` goes with it in
  // `_meta`, unless the params have a sound one of their own, and in the transport's headers. With
  // `modern` it is a request of revision 2026-07-28.
  uint64_t Request(std::string method, Payload params, bool wants_progress, ReplyCallback callback,
                   core::TraceContext trace = {},
                   std::optional<ModernContext> modern = std::nullopt);
  // The reply comes when the backend has taken it: kResult with an empty body.
  uint64_t Notify(std::string method, Payload params, ReplyCallback callback);
  // Tells the backend that the answer to `request` is not wanted. False: it had not been sent, and
  // will not be; it is forgotten.
  bool CancelRequest(uint64_t request, std::string_view reason);
  // Answers a request of the backend. `text` is a raw result, or a raw error object.
  void Respond(std::string_view raw_id, bool is_error, std::string_view text);
  // No reply will come; what is under way is given up.
  void Forget(uint64_t request) { pending_.erase(request); }

  bool idle() const { return pending_.empty(); }
  bool up() const { return state_ != State::kDown; }
  bool ready() const { return state_ == State::kReady; }
  const ServerDescription& server() const { return server_; }
  Backend& backend() { return *backend_; }
  const Backend& backend() const { return *backend_; }
  // Responses to nothing: a second answer, an unknown id; and messages that were no JSON-RPC.
  uint64_t ignored_messages() const { return ignored_messages_; }

 private:
  enum class State { kDown, kInitializing, kReady };

  struct Pending {
    std::string method;
    Payload params;
    bool notification = false;
    bool wants_progress = false;
    core::TraceContext trace;
    std::optional<ModernContext> modern;
    bool sent = false;
    bool sent_again = false;
    uint64_t epoch = 0;  // of the session it was sent in
    std::unique_ptr<BackendExchange> exchange;
    ReplyCallback callback;
  };

  // Backend::Events
  void OnUp() override;
  void OnDown(BackendExit exit) override;
  void OnMessage(Payload message, uint64_t exchange) override;
  void OnExchangeEnd(uint64_t id, absl::Status status, bool reached) override;
  void OnRejoined() override { events_->OnBackendRejoined(); }
  void OnSessionForgotten() override;

  uint64_t Add(Pending pending);
  void SendPending(uint64_t id, Pending& pending);
  std::string Compose(uint64_t id, const Pending& pending) const;
  void SendAside(std::string text);
  void Initialize();
  void OpenSession();
  // Before initialize, or instead of it.
  void DiscoverInPlaceOfInitialize(ReplyCallback on_reply);
  // `again`: in the version that the backend has named.
  void DiscoverFirst(bool again);
  void OnDiscoveredFirst(const McpReply& reply, bool again);
  void OnInitializeReply(McpReply reply);
  void RetryInitialize(std::string why);
  void BecomeReady();
  void Discover();
  void OnDiscovered(const McpReply& reply);
  // `told`: to be believed in later sessions, too.
  void SetEra(std::string capabilities, bool told);
  // A request of 2026-07-28 was answered as by a backend that does not have that revision: asks
  // anew.
  void OnOtherEra();
  // In place of initialize, which was refused.
  void DiscoverAlone(std::string why);
  void BeginAlone(const McpReply& reply, std::string why);
  void TakeMessage(const Payload& whole, std::string_view text, uint64_t exchange);
  void TakeResponse(const Payload& whole, const core::JsonRpcMessage& message);
  void TakeNotification(const core::JsonRpcMessage& message, uint64_t exchange);
  void TakeRequest(const core::JsonRpcMessage& message, uint64_t exchange);
  uint64_t RequestOf(uint64_t exchange) const { return pending_.contains(exchange) ? exchange : 0; }
  void Retire(uint64_t id, std::unique_ptr<BackendExchange> exchange);

  core::EventLoop& loop_;
  std::unique_ptr<Backend> backend_;
  Events* events_;
  SessionLimits limits_;
  const ClientDescription client_;
  core::Backoff backoff_;
  State state_ = State::kDown;
  uint64_t epoch_ = 0;
  uint64_t next_id_ = 1;
  uint64_t initialize_id_ = 0;
  uint64_t initialized_id_ = 0;
  ServerDescription server_;
  bool asks_era_ = false;
  // What the backend said, or by silence let know, of its era; of one that speaks 2026-07-28 alone
  // nothing is kept, as the question is what its sessions begin with.
  struct FoundEra {
    absl::Time at = absl::InfinitePast();
    std::string modern_capabilities;  // empty: earlier revisions only
    std::string server_info;          // of the initialize it belongs to, raw JSON
  };
  FoundEra found_era_;
  bool era_told_ = false;      // in this session, before initialize
  bool era_recalled_ = false;  // it was found in an earlier session
  std::string modern_capabilities_;
  bool modern_only_ = false;
  uint64_t discover_id_ = 0;
  core::Timer discover_timer_;
  std::map<uint64_t, Pending> pending_;
  // Exchanges whose response has come or that expect none.
  std::map<uint64_t, std::unique_ptr<BackendExchange>> finishing_;
  core::Timer timer_;
  uint64_t ignored_messages_ = 0;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
