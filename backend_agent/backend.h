// Port of one MCP server as a carrier of JSON-RPC messages: HTTP, HTTP+SSE, stdio.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "backend_agent/payload.h"
#include "core/telemetry/trace_context.h"

namespace callboard::agent {

// What was found out about a backend by asking it, its transport and its era, is believed for so
// long unless it shows itself to be another before.
inline constexpr absl::Duration kFindingsBelieved = absl::Hours(24);

// What is known about the end of a backend's process or endpoint.
struct BackendExit {
  bool process_ended = false;  // false: only the endpoint went away
  int exit_status = -1;        // valid if >= 0
  int exit_signal = 0;         // valid if > 0
  std::string detail;          // a sentence: "blender (pid 4711) was killed by SIGKILL"
};

// What transports with headers repeat of a request of revision 2026-07-28.
struct ModernHeaders {
  std::string method;
  std::string named;  // may be empty
  // Mcp-Param-* without that prefix, and values as they are sent.
  std::vector<std::pair<std::string, std::string>> params;
};

// One message under way to the backend. Destroying it before its end gives the exchange up (HTTP:
// closes its connection; stdio: nothing to give up).
class BackendExchange {
 public:
  virtual ~BackendExchange() = default;
};

// A carrier. It knows no ids and no methods beyond what its transport demands; McpSession gives
// meaning to the messages. Loop thread only. No event comes from inside a call of this port.
class Backend {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    // The process runs or the endpoint answers: messages can be sent.
    virtual void OnUp() = 0;
    // Gone. Every exchange under way has failed (OnExchangeEnd comes first for each). OnUp may
    // follow.
    virtual void OnDown(BackendExit exit) = 0;
    // One JSON-RPC message from the backend, in order of arrival. `exchange`: the one whose reply
    // carried it; 0 where the transport does not tell (stdio, a listen stream).
    virtual void OnMessage(Payload message, uint64_t exchange) = 0;
    // The exchange `id` is over: for HTTP the reply is complete (OK) or broken; for stdio the
    // backend went away, or OK once a message that expects no reply is written. `reached`: the
    // backend may have seen the message. After an OK end without a response among the messages, the
    // backend broke the protocol. Codes with a meaning of their own: NotFound (the backend does not
    // know our MCP session: the message was not acted upon, initialize and send it again),
    // ResourceExhausted (the reply is over the size limit; the message names both), Internal (an
    // answer that is no MCP reply, its HTTP status in the message), Unimplemented (initialize was
    // refused as by a server of another transport).
    virtual void OnExchangeEnd(uint64_t id, absl::Status status, bool reached) = 0;
    // The listen stream was cut and is there again: what the backend said meanwhile may be lost.
    virtual void OnRejoined() = 0;
    // The backend does not know our MCP session any more, as its listen stream tells: initialize
    // again.
    virtual void OnSessionForgotten() = 0;
  };

  virtual ~Backend() = default;

  // Begins; OnUp or OnDown follow. A stdio child is spawned and spawned again with backoff after a
  // crash; an HTTP endpoint is probed until it answers.
  virtual void Start(Events* events) = 0;

  // Sends one message. `id` names the exchange in OnExchangeEnd and, for a request, is its JSON-RPC
  // id; the result may be null if there is nothing to give up; `expects_reply` is false for
  // notifications and responses. `text` is one line of JSON. `trace` goes into the headers of
  // transports that have some.
  virtual std::unique_ptr<BackendExchange> Send(uint64_t id, std::string text, bool expects_reply,
                                                const core::TraceContext& trace) = 0;

  // A request of revision 2026-07-28, which belongs to no session; else as Send.
  virtual std::unique_ptr<BackendExchange> SendModern(uint64_t id, std::string text,
                                                      ModernHeaders /*headers*/,
                                                      const core::TraceContext& trace) {
    return Send(id, std::move(text), true, trace);
  }
  // Whether such requests have headers: arguments are then repeated in them.
  virtual bool has_headers() const { return false; }
  // Whether the backend may be asked if it speaks that revision, too.
  virtual bool may_be_modern() const { return false; }

  // The revision agreed in initialize, for transports that carry it (HTTP header). Empty:
  // initialize is about to be sent, what is known of a former MCP session is to be forgotten.
  virtual void SetRevision(std::string_view revision) = 0;

  // Is the endpoint alive, apart from the main thread? Answers within 3 s. stdio: the process
  // lives.
  virtual void Probe(absl::AnyInvocable<void(bool alive)> callback) = 0;

  // Orderly end, within 3 s: ends the MCP session or the child process, then calls `done` (maybe
  // inline). No event follows. Destroying a backend without it is what a kill is to a process.
  virtual void Stop(absl::AnyInvocable<void()> done) { done(); }

  // Does the exchange of a request end even if the backend never answers it? True for HTTP. On
  // stdio silence has no sign, and a backend that obeys notifications/cancelled is rightly silent.
  virtual bool ends_unanswered_exchanges() const = 0;

  // Another MCP session with the same server, beside this one and not started; nullptr where there
  // is only the one (stdio, or a server that gave no session id). It tells of its endpoint, not of
  // the process' end.
  virtual std::unique_ptr<Backend> OpenAnother() { return nullptr; }
  // Whether OpenAnother() may give one, once the server is known.
  virtual bool may_open_another() const { return false; }

  // "http://127.0.0.1:9401/mcp" or the command line, for people.
  virtual std::string description() const = 0;
  // Process id if known, else 0.
  virtual int64_t pid() const = 0;
};

}  // namespace callboard::agent
