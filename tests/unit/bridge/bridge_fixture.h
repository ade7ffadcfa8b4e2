// A bridge in virtual time between a scripted control plane and recording HTTP responders.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bridge/bridge.h"
#include "bridge/control_plane_client.h"
#include "core/runtime/random.h"
#include "tests/support/virtual_loop.h"

namespace callboard::tests {

// What the test pushes is what Next() gives, inline or when it comes.
template <class T>
class SourceScript {
 public:
  using Callback = absl::AnyInvocable<void(absl::StatusOr<T>)>;

  void Push(absl::StatusOr<T> event) {
    if (waiting) {
      auto callback = std::exchange(waiting, nullptr);
      callback(std::move(event));
    } else {
      events.push_back(std::move(event));
    }
  }

  std::deque<absl::StatusOr<T>> events;
  Callback waiting;
  int asked = 0;
  bool destroyed = false;
};

template <class T>
class ScriptedSource final : public core::EventSource<T> {
 public:
  explicit ScriptedSource(std::shared_ptr<SourceScript<T>> script) : script_(std::move(script)) {}
  ~ScriptedSource() override {
    script_->destroyed = true;
    script_->waiting = nullptr;
  }
  void Next(absl::AnyInvocable<void(absl::StatusOr<T>)> callback) override {
    ++script_->asked;
    if (script_->events.empty()) {
      script_->waiting = std::move(callback);
      return;
    }
    auto event = std::move(script_->events.front());
    script_->events.pop_front();
    callback(std::move(event));
  }

 private:
  std::shared_ptr<SourceScript<T>> script_;
};

struct InvokeCall {
  v1::InvokeRequest request;
  std::shared_ptr<SourceScript<v1::InvokeEvent>> script;
};
struct ListenCall {
  v1::ListenRequest request;
  std::shared_ptr<SourceScript<v1::ListenEvent>> script;
};

// Answers at once with what is set, unless `silent`. Records what it is asked.
class FakeControlPlane final : public bridge::ControlPlaneClient {
 public:
  void OpenSession(v1::OpenSessionRequest request, bridge::Reply<v1::Session> reply) override {
    opened.push_back(request);
    if (silent) return Hold(std::move(reply));
    if (!open_error.ok()) return reply(open_error);
    v1::Session session;
    session.set_session_id("s" + std::to_string(opened.size()));
    session.set_term(7);
    session.set_revision(request.revision());
    session.set_surface(request.surface());
    if (knows_tools) session.set_tools(request.tools());
    sessions.push_back(session);
    reply(session);
  }
  void GetSession(v1::SessionRef request, bridge::Reply<v1::Session> reply) override {
    ++gets;
    if (silent) return Hold(std::move(reply));
    for (const v1::Session& session : sessions) {
      if (session.session_id() == request.session_id()) return reply(session);
    }
    reply(absl::NotFoundError("no such session"));
  }
  void CloseSession(v1::SessionRef request,
                    bridge::Reply<v1::CloseSessionResponse> reply) override {
    const size_t before = sessions.size();
    std::erase_if(sessions, [&](const v1::Session& session) {
      return session.session_id() == request.session_id();
    });
    if (sessions.size() == before) return reply(absl::NotFoundError("no such session"));
    reply(v1::CloseSessionResponse());
  }
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> Invoke(v1::InvokeRequest request) override {
    auto script = std::make_shared<SourceScript<v1::InvokeEvent>>();
    for (auto& event : next_events) script->Push(std::move(event));
    next_events.clear();
    invokes.push_back({std::move(request), script});
    return std::make_unique<ScriptedSource<v1::InvokeEvent>>(script);
  }
  std::unique_ptr<core::EventSource<v1::ListenEvent>> Listen(v1::ListenRequest request) override {
    auto script = std::make_shared<SourceScript<v1::ListenEvent>>();
    listens.push_back({std::move(request), script});
    return std::make_unique<ScriptedSource<v1::ListenEvent>>(script);
  }
  void Send(v1::SendRequest request, bridge::Reply<v1::SendResponse> reply) override {
    sent.push_back(std::move(request));
    if (!send_error.ok()) return reply(send_error);
    if (hold_sends) return held_sends.push_back(std::move(reply));
    reply(v1::SendResponse());
  }
  void GetCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    call_refs.push_back(request);
    if (!call_error.ok()) return reply(call_error);
    for (const v1::Call& call : calls) {
      if (call.call_id() == request.call_id()) return reply(call);
    }
    reply(absl::NotFoundError("no such call"));
  }
  void WaitCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    GetCall(std::move(request), std::move(reply));
  }
  void CancelCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    GetCall(std::move(request), std::move(reply));
  }
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> FetchOutcome(v1::CallRef request) override {
    fetches.push_back(std::move(request));
    auto script = std::make_shared<SourceScript<v1::InvokeEvent>>();
    for (const v1::InvokeEvent& event : fetched) script->Push(event);
    if (!fetch_end.ok()) script->Push(fetch_end);
    return std::make_unique<ScriptedSource<v1::InvokeEvent>>(script);
  }
  void SearchTools(v1::SearchToolsRequest request,
                   bridge::Reply<v1::SearchToolsResponse> reply) override {
    searches.push_back(request);
    if (silent) return Hold(std::move(reply));
    v1::SearchToolsResponse found;
    for (const v1::ToolHit& hit : tools) {
      if (request.app().empty() || request.app() == hit.app()) *found.add_hits() = hit;
    }
    found.set_total(static_cast<uint32_t>(found.hits_size()));
    reply(found);
  }
  void DescribeTool(v1::DescribeToolRequest request,
                    bridge::Reply<v1::DescribeToolResponse> reply) override {
    described.push_back(request.slug());
    for (const v1::ToolHit& hit : tools) {
      if (hit.slug() != request.slug()) continue;
      v1::DescribeToolResponse tool;
      *tool.mutable_hit() = hit;
      tool.set_definition(R"({"name":"t","inputSchema":{"$defs":{},"type":"object"}})");
      tool.set_idempotent(true);
      tool.set_marking_source("annotations");
      tool.set_run_ms(30000);
      return reply(tool);
    }
    reply(absl::NotFoundError("no tool '" + request.slug() + "'"));
  }
  void LoadSkill(v1::LoadSkillRequest request,
                 bridge::Reply<v1::LoadSkillResponse> reply) override {
    loads.push_back(request);
    if (!load_error.ok()) return reply(load_error);
    v1::LoadSkillResponse loaded;
    loaded.set_seat_name("maya-1");
    loaded.set_backend_result(load_result);
    for (const v1::ToolHit& hit : tools) *loaded.add_new_tools() = hit;
    reply(loaded);
  }
  void GetList(v1::GetListRequest request, bridge::Reply<v1::GetListResponse> reply) override {
    lists.push_back(request);
    if (!list_tools_error.ok()) return reply(list_tools_error);
    v1::GetListResponse list;
    list.set_left_out(left_out);
    list.set_digest("d1");
    if (request.known_digest() != "d1") list.set_list(tool_list);
    reply(list);
  }
  void ListInstances(v1::ListInstancesRequest request,
                     bridge::Reply<v1::ListInstancesResponse> reply) override {
    if (silent) return Hold(std::move(reply));
    if (!list_error.ok()) return reply(list_error);
    v1::ListInstancesResponse rows;
    const std::string& wanted = request.target().instance();
    for (const v1::InstanceRow& row : instances) {
      if (wanted.empty() || wanted == row.name() || row.seat_id().starts_with(wanted)) {
        *rows.add_instances() = row;
      }
    }
    rows.set_total(static_cast<uint32_t>(rows.instances_size()));
    rows.set_store_fault(store_fault);
    reply(rows);
  }

  bool silent = false;
  bool hold_sends = false;  // as a control plane whose store is slow
  std::vector<bridge::Reply<v1::SendResponse>> held_sends;
  absl::Status open_error, send_error, load_error, list_error, list_tools_error;
  bool knows_tools = true;  // else as a control plane of before there were selections
  uint32_t left_out = 0;
  int gets = 0;
  std::vector<v1::Session> sessions;
  std::vector<v1::OpenSessionRequest> opened;
  std::vector<InvokeCall> invokes;
  std::vector<ListenCall> listens;
  std::vector<v1::SendRequest> sent;
  std::vector<v1::Call> calls;
  std::vector<v1::CallRef> call_refs;
  absl::Status call_error;
  std::vector<v1::CallRef> fetches;
  std::vector<v1::InvokeEvent> fetched;  // what each of them gets, and then
  absl::Status fetch_end;
  std::vector<v1::SearchToolsRequest> searches;
  std::vector<std::string> described;
  std::vector<v1::LoadSkillRequest> loads;
  std::vector<v1::GetListRequest> lists;
  std::string load_result;
  std::vector<v1::ToolHit> tools;
  std::vector<v1::InstanceRow> instances;
  std::string store_fault;
  std::string tool_list = R"([{"name":"bake"}])";
  // Events the next Invoke finds waiting.
  std::vector<v1::InvokeEvent> next_events;

 private:
  template <class T>
  void Hold(bridge::Reply<T> reply) {
    held_.push_back(std::make_shared<bridge::Reply<T>>(std::move(reply)));
  }
  std::vector<std::shared_ptr<void>> held_;
};

// Records one answer. Writes are taken by the peer at once, or when the test says so.
class RecordedAnswer final : public net::HttpResponder {
 public:
  explicit RecordedAnswer(core::EventLoop& loop) : loop_(loop) {}

  void Respond(int answer_status, net::HeaderList answer_headers, std::string text) override {
    EXPECT_EQ(status, 0) << "answered twice";
    status = answer_status;
    headers = std::move(answer_headers);
    body = std::move(text);
    ended = true;
  }
  void StartStream(int answer_status, net::HeaderList answer_headers,
                   std::optional<uint64_t> length) override {
    EXPECT_EQ(status, 0) << "answered twice";
    status = answer_status;
    headers = std::move(answer_headers);
    content_length = length;
  }
  void Write(std::string piece, absl::AnyInvocable<void()> written) override {
    EXPECT_FALSE(ended) << "written after the end: " << piece;
    body += piece;
    if (stalled) {
      unsent += piece.size();
      if (written) waiting.push_back(std::move(written));
    } else if (written) {
      loop_.Post(std::move(written));
    }
  }
  void End(bool close) override {
    ended = true;
    closed = close;
  }
  void Abort() override { aborted = true; }
  size_t unsent_bytes() const override { return unsent; }
  net::PeerLoss peer_loss() const override { return loss; }
  void OnPeerGone(absl::AnyInvocable<void()> callback) override {
    on_peer_gone = std::move(callback);
  }

  // The peer takes all that waits.
  void TakeAll() {
    unsent = 0;
    auto taken = std::exchange(waiting, {});
    for (auto& written : taken) written();
  }
  std::string Header(std::string_view name) const {
    const net::HttpRequest lookup{.headers = headers};
    const std::string* const value = lookup.Header(name);
    return value == nullptr ? "" : *value;
  }

  int status = 0;
  net::HeaderList headers;
  std::optional<uint64_t> content_length;
  std::string body;
  bool ended = false;
  bool closed = false;
  bool aborted = false;
  bool stalled = false;
  size_t unsent = 0;
  net::PeerLoss loss = net::PeerLoss::kNone;
  std::vector<absl::AnyInvocable<void()>> waiting;
  absl::AnyInvocable<void()> on_peer_gone;

 private:
  core::EventLoop& loop_;
};

class BridgeTest : public testing::Test {
 protected:
  using Answer = std::shared_ptr<RecordedAnswer>;

  void Restart(bridge::BridgeConfig config) {
    bridge_ = std::make_unique<bridge::Bridge>(loop_, random_, plane_, std::move(config));
  }
  Answer Send(std::string method, std::string target, net::HeaderList headers,
              std::string body = "") {
    auto answer = std::make_shared<RecordedAnswer>(loop_);
    net::HttpRequest request{.method = std::move(method),
                             .target = std::move(target),
                             .headers = std::move(headers),
                             .body = std::move(body)};
    bridge_->Handle(std::move(request), answer);
    loop_.RunReady();
    return answer;
  }
  Answer Post(std::string body, net::HeaderList extra = {}, std::string target = "/mcp") {
    net::HeaderList headers = {{"Host", "localhost:9765"},
                               {"Content-Type", "application/json"},
                               {"Accept", "application/json, text/event-stream"}};
    headers.insert(headers.end(), extra.begin(), extra.end());
    return Send("POST", std::move(target), std::move(headers), std::move(body));
  }
  Answer Initialize(std::string revision = "2025-11-25", std::string target = "/mcp") {
    return Post(R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":")" +
                    revision + R"(","capabilities":{"roots":{}},"clientInfo":{"name":"c"}}})",
                {}, std::move(target));
  }
  // Opens a session and returns its id.
  std::string Open(std::string revision = "2025-11-25", std::string target = "/mcp") {
    const Answer answer = Initialize(std::move(revision), std::move(target));
    EXPECT_EQ(answer->status, 200) << answer->body;
    return answer->Header("mcp-session-id");
  }
  Answer PostIn(const std::string& session, std::string body, std::string target = "/mcp") {
    return Post(std::move(body), {{"Mcp-Session-Id", session}}, std::move(target));
  }
  Answer Get(const std::string& session, net::HeaderList extra = {}, std::string target = "/mcp") {
    net::HeaderList headers = {{"Host", "localhost"}, {"Accept", "text/event-stream"}};
    if (!session.empty()) headers.emplace_back("Mcp-Session-Id", session);
    headers.insert(headers.end(), extra.begin(), extra.end());
    return Send("GET", std::move(target), std::move(headers));
  }
  // tools/call of call_tool for `slug` on the facade.
  static std::string CallTool(std::string slug, std::string arguments = "{}",
                              std::string id = "1") {
    return R"({"jsonrpc":"2.0","id":)" + id +
           R"(,"method":"tools/call","params":{"name":"call_tool","arguments":{"tool_slug":")" +
           slug + R"(","arguments":)" + arguments + "}}}";
  }

  static v1::InvokeEvent Accepted(uint64_t stream) {
    v1::InvokeEvent event;
    event.mutable_accepted()->set_call_id("id");
    *event.mutable_accepted()->mutable_id() = Id(stream, 7, 1);
    return event;
  }
  static v1::EventId Id(uint64_t stream, uint64_t term, uint64_t n) {
    v1::EventId id;
    id.set_stream(stream);
    id.set_term(term);
    id.set_n(n);
    return id;
  }
  static v1::InvokeEvent Result(std::string body) {
    v1::InvokeEvent event;
    event.mutable_outcome()->set_class_(v1::RESULT);
    event.mutable_outcome()->mutable_body()->set_inline_(std::move(body));
    return event;
  }
  static v1::InvokeEvent Big(uint64_t size) {
    v1::InvokeEvent event;
    event.mutable_outcome()->set_class_(v1::RESULT);
    event.mutable_outcome()->mutable_body()->set_size(size);
    return event;
  }
  static v1::InvokeEvent Chunk(std::string bytes, bool last) {
    v1::InvokeEvent event;
    event.mutable_chunk()->set_bytes(std::move(bytes));
    event.mutable_chunk()->set_last(last);
    return event;
  }
  static v1::InvokeEvent Failed(v1::OutcomeClass outcome_class, v1::Reason reason,
                                v1::Certainty certainty = v1::NOT_STARTED) {
    v1::InvokeEvent event;
    v1::CallOutcome& outcome = *event.mutable_outcome();
    outcome.set_class_(outcome_class);
    outcome.set_reason(reason);
    outcome.set_certainty(certainty);
    outcome.set_call_id("\x01\xab");
    outcome.set_message("why");
    return event;
  }
  static v1::ToolHit Hit(std::string app, std::string tool, bool loaded = true) {
    v1::ToolHit hit;
    hit.set_slug(app + ".1f2e3d4c." + tool);
    hit.set_tool(std::move(tool));
    hit.set_app(std::move(app));
    hit.set_seat_id("1f2e3d4c000000000000000000000000");
    hit.set_seat_name("maya-1");
    hit.set_loaded(loaded);
    hit.set_skill("modeling");
    hit.set_summary("does it");
    return hit;
  }
  static v1::InstanceRow Row(std::string name, std::string seat_id) {
    v1::InstanceRow row;
    row.set_name(std::move(name));
    row.set_seat_id(std::move(seat_id));
    row.set_app("maya");
    row.set_status("available");
    row.set_capabilities(
        R"({"tools":{"x":1},"resources":{"subscribe":true},"tasks":{},"logging":{}})");
    row.set_server_info(R"({"name":"toy","version":"3"})");
    row.set_instructions("be kind");
    return row;
  }

  VirtualLoop loop_;
  core::SeededRandom random_{1};
  FakeControlPlane plane_;
  std::unique_ptr<bridge::Bridge> bridge_ =
      std::make_unique<bridge::Bridge>(loop_, random_, plane_, bridge::BridgeConfig{});
};

}  // namespace callboard::tests
