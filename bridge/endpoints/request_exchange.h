// One JSON-RPC request, of a session or of none: its call on the control plane and the one answer
// it gets.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "bridge/agent_status.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/body_countdown.h"
#include "bridge/event_pump.h"
#include "bridge/exchange.h"
#include "bridge/message_stream.h"
#include "bridge/spliced_text.h"
#include "bridge/sse_writer.h"
#include "bridge/status_events.h"
#include "bridge/translator.h"
#include "core/telemetry/trace_context.h"

namespace callboard::bridge {

// What a request of revision 2026-07-28 is asked with besides: it has no session.
struct ModernSpec {
  std::string method;
  std::string named;        // what its Mcp-Name says
  std::string server_info;  // raw JSON of who answers, where that is not the backend; or empty
  v1::ClientContext client;
  std::vector<v1::ParamHeader> param_headers;
  bool takes_tasks = false;  // its client has declared the tasks extension
  // Members of params beside name and arguments, raw, for the tool that a call of the facade means:
  // the answers to what it had asked.
  std::vector<std::pair<std::string, std::string>> answers;
};

// What a request is asked with and where its answer goes.
struct RequestSpec {
  HttpAnswer answer;
  std::string session_id;
  core::McpRevision revision;
  std::string raw_id;
  bool is_tool_call = false;
  bool accepts_events = true;
  // A call on the facade: one that takes long may be answered with a job (C13). One of a client
  // that takes tasks becomes a task, wherever it was made.
  bool on_facade = false;
  StatusWish status_wish = StatusWish::kNone;
  // Headers of the hop, mostly empty.
  core::TraceContext trace;
  std::string idempotency_key;
  std::optional<ModernSpec> modern;
  // Set where the session has one stream for all (HTTP+SSE): takes all that is told; nothing goes
  // to `answer`.
  std::unique_ptr<MessageStream> stream;
  // Set for an item of a batch: takes the response text; nothing goes to `answer`.
  absl::AnyInvocable<void(std::string)> collect;
};

// A response whose result the control plane keeps, because it is large.
struct LargeAnswer {
  std::string text;   // a whole JSON-RPC response
  std::string token;  // that stands for the result in it (SplicedText)
  v1::CallRef call;   // whose it is
  // Answers in its place: there is an outcome without a body, or it cannot be had.
  absl::AnyInvocable<void(absl::StatusOr<v1::CallOutcome>)> otherwise;
};

// Answers as plain JSON unless the control plane opens a stream first; bodies of size are written
// piece by piece, the next asked for when the former was taken. When the client hangs up the call
// goes on (KEEP) and its stream can be resumed by GET; so does a call that is answered with a job.
// When the control plane is lost after the
// stream was accepted, the stream is listened to as soon as it is back, after the last id that was
// written; else the answer says whether the call may have run. Without a session (modern) nothing
// is resumed: a client that hangs up has cancelled its call. When a stream that it shares is over
// the call goes on, and whoever is asked through it is answered with an error. Owned by Exchanges;
// loop thread.
class RequestExchange final : public Exchange {
 public:
  RequestExchange(BridgeCore& core, RequestSpec spec);

  const RequestSpec& spec() const { return spec_; }
  Asked asked() const { return {spec_.raw_id, spec_.revision, spec_.is_tool_call, instance_}; }

  // Makes the call; its outcome is the answer. `request` needs target, method, params and what
  // `_meta` said. `instance` is named in errors. With `slug`, a failure is explained if its cause
  // is a skill that is not loaded.
  void Invoke(v1::InvokeRequest request, std::string instance, std::string slug);
  // Answers without a call, or instead of it. `text` is a whole JSON-RPC response.
  void Answer(std::string text);
  // The same for a large result; the body is fetched and told piece by piece.
  void AnswerLarge(LargeAnswer answer);
  // Answers that the control plane could not be asked or failed: 503 if nothing was started and
  // trying again may help.
  void AnswerFailure(const absl::Status& status, bool started);

  // The control plane does not know the session.
  void AnswerSessionGone();

  // A callback that runs only while this request waits for its answer; for unary questions,
  // which have `wait` time from now.
  template <class Fn>
  auto Guard(Fn fn) {
    return lifetime_.Wrap(std::move(fn));
  }
  void Expect(absl::Duration wait) { Restart(wait); }

  void Drain(bool last) override;

 private:
  void OnHardTimer() override;
  void OnTick() override;
  void OnPeerGone() override;
  void CancelLeft();

  // Its client wants progress, and no further stream may be opened.
  void RefuseForProgress();
  void OnEvent(absl::StatusOr<v1::InvokeEvent> event);
  void OnListenEvent(absl::StatusOr<v1::ListenEvent> event);
  // Asks for the next event: the former is consumed.
  void AskNext();
  void Heard();
  void Reattach();
  void OpenStream(const v1::Accepted& accepted);
  // One message on the stream, then the next event.
  void Relay(const v1::EventId& id, const std::string& text);
  void OnAsk(const v1::AskEvent& ask);
  // The stream that it shares is over; the call goes on without anybody to tell.
  bool lost_stream() const { return spec_.stream != nullptr && !out_.open(); }
  void RefuseAsk(const std::string& ask_id, std::string_view why);
  bool becomes_task() const { return spec_.modern && spec_.modern->takes_tasks; }
  // Answers with a job or a task in place of the outcome, as soon as the call's id is known and
  // the control plane keeps the call.
  void BecomeJob();
  void OnKept(const absl::StatusOr<v1::Call>& call);
  void OnOutcome(v1::CallOutcome outcome);
  void Explain(v1::CallOutcome outcome);
  void Deliver(const v1::CallOutcome& outcome);
  void StartBody(ResponseText response, const v1::OutcomeFacts& facts);
  void OnChunk(v1::BodyChunk chunk);
  void FinishBody();
  void FetchLarge();
  void OnLarge(absl::StatusOr<v1::InvokeEvent> event);
  void BeginLarge(uint64_t size);
  void OnLargeChunk(const v1::BodyChunk& chunk);
  void TellPiece(std::string text, absl::AnyInvocable<void()> next);
  // A part of the answer has gone out already.
  bool half_told() const { return body_.running() || (large_ && large_->begun); }
  void OnBroken(const absl::Status& status);
  // After a reattachment the call is unknown.
  void AnswerCallGone();
  std::string Diagnostics() const;
  // What was sent so far cannot be completed: the client must see that.
  void Break();
  // x-agent-status, for those who asked.
  net::HeaderList StatusHeaders(std::string state) const;

  BridgeCore& core_;
  RequestSpec spec_;
  std::string instance_;
  std::string slug_;
  absl::Duration hard_wait_;
  absl::Time hard_at_ = absl::InfiniteFuture();  // all that the call may take, if that is known
  absl::Time started_;
  absl::Time heard_;  // the last event of the control plane
  // Of the last event of the call's stream that was written.
  std::optional<v1::EventId> position_;
  // The header x-agent-status of an answer that has no stream.
  std::string ended_state_;
  bool may_stream_ = false;
  // Without a session: the control plane keeps the call when we leave, so that it can become a job.
  bool kept_ = false;
  bool left_ = false;    // by its client, before the call's id was known
  std::string members_;  // to be added behind the first brace of the body
  std::string call_id_;
  std::set<std::string> shared_asks_;  // told on the shared stream, answered or not; bounded
  core::Timer job_timer_;
  bool job_due_ = false;
  std::string outcome_id_;
  std::string tail_;
  std::string collected_;
  BodyCountdown body_;
  struct Large {
    SplicedText text;
    v1::CallRef call;
    absl::AnyInvocable<void(absl::StatusOr<v1::CallOutcome>)> otherwise;
    bool begun = false;  // a part has gone out
  };
  std::optional<Large> large_;
  SseWriter sse_;  // its own stream
  StatusEvents states_;
  MessageStream& out_;  // that, or the one it shares
  StreamSlot slot_;
  std::optional<EventPump<v1::InvokeEvent>> events_;
  // Takes the place of events_ after a loss.
  std::optional<EventPump<v1::ListenEvent>> listened_;
};

}  // namespace callboard::bridge
