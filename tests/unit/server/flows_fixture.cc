// Implementation of the scripted agents and callers.
#include "tests/unit/server/flows_fixture.h"

#include <utility>

#include "core/runtime/digest.h"
#include "core/runtime/lifetime.h"

namespace callboard::server {

struct FakeAgent::End final : AgentLink {
  explicit End(FakeAgent* owner) : agent(owner) {}
  ~End() override { Close(absl::OkStatus()); }
  void Open(Handler* to) override { handler = to; }
  void Write(v1::ServerFrame message) override {
    if (agent == nullptr) return;
    agent->loop_.Post(lifetime.Wrap([this, frame = std::move(message)]() mutable {
      if (agent != nullptr) agent->OnFrame(std::move(frame));
      handler->OnWritten();
    }));
  }
  void Close(absl::Status) override {
    lifetime.Renew();
    if (agent == nullptr) return;
    agent->closed = true;
    agent->end_ = nullptr;
    agent = nullptr;
  }

  FakeAgent* agent;
  Handler* handler = nullptr;
  core::Lifetime lifetime;
};

FakeAgent::~FakeAgent() {
  if (end_ != nullptr) end_->agent = nullptr;
}

std::unique_ptr<AgentLink> FakeAgent::MakeLink() {
  auto end = std::make_unique<End>(this);
  end_ = end.get();
  return end;
}

v1::Hello FakeAgent::Hello() const {
  v1::Hello hello;
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  hello.set_agent_id("agent-1");
  hello.set_boot_id(boot_);
  hello.set_link_epoch(epoch_);
  hello.set_journal_id(journal_);
  for (const std::string& feature : features) hello.add_features(feature);
  hello.mutable_software()->set_host("ws-17");
  hello.mutable_software()->set_pid(4711);
  hello.mutable_limits()->set_window(64 << 10);
  return hello;
}

v1::SeatState FakeAgent::Seat(uint64_t incarnation, std::string digest) {
  v1::SeatState seat;
  seat.set_seat_id(kSeat);
  seat.set_incarnation(incarnation);
  seat.set_name("maya-a");
  seat.set_app("maya");
  seat.set_scene("shot_010.ma");
  seat.set_catalogue_digest(std::move(digest));
  seat.mutable_health()->set_process(v1::HEALTHY);
  return seat;
}

void FakeAgent::Open(std::vector<v1::CallState> calls, uint64_t incarnation) {
  std::vector<v1::AgentItem> opening(2);
  *opening[0].mutable_hello() = Hello();
  *opening[1].mutable_seat_state() = Seat(incarnation);
  for (v1::CallState& call : calls) *opening.emplace_back().mutable_call_state() = std::move(call);
  opening.emplace_back().mutable_inventory_done();
  Say(std::move(opening));
}

void FakeAgent::Say(v1::AgentItem item) {
  std::vector<v1::AgentItem> one;
  one.push_back(std::move(item));
  Say(std::move(one));
}

void FakeAgent::Say(std::vector<v1::AgentItem> said) {
  v1::AgentFrame frame;
  for (v1::AgentItem& item : said) *frame.add_items() = std::move(item);
  SayFrame(std::move(frame));
}

void FakeAgent::SayFrame(v1::AgentFrame frame) {
  if (end_ == nullptr) return;
  if (report_received) told_received_ = received_;
  frame.set_received(told_received_);
  loop_.Post(end_->lifetime.Wrap([end = end_, frame = std::move(frame)]() mutable {
    end->handler->OnMessage(std::move(frame));
  }));
}

void FakeAgent::Cut() {
  if (end_ == nullptr) return;
  End* end = std::exchange(end_, nullptr);
  end->agent = nullptr;
  loop_.Post(end->lifetime.Wrap(
      [end] { end->handler->OnClosed(absl::UnavailableError("the network is gone")); }));
}

void FakeAgent::OnFrame(v1::ServerFrame frame) {
  largest_frame = std::max(largest_frame, frame.ByteSizeLong());
  received_ += frame.ByteSizeLong();
  for (v1::ServerItem& item : *frame.mutable_items()) {
    if (item.has_ping() && answer_pings) {
      v1::AgentItem pong;
      pong.mutable_pong()->set_token(item.ping().token());
      Say(std::move(pong));
    }
    items.push_back(std::move(item));
  }
}

std::optional<v1::ServerItem> FakeAgent::Take(v1::ServerItem::ItemCase kind) {
  for (auto it = items.begin(); it != items.end(); ++it) {
    if (it->item_case() != kind) continue;
    v1::ServerItem found = std::move(*it);
    items.erase(it);
    return found;
  }
  return std::nullopt;
}

std::vector<v1::ServerItem> FakeAgent::TakeAll(v1::ServerItem::ItemCase kind) {
  std::vector<v1::ServerItem> found;
  while (auto item = Take(kind)) found.push_back(*std::move(item));
  return found;
}

v1::Dispatch FakeAgent::TakeDispatch() {
  auto item = Take(v1::ServerItem::kDispatch);
  EXPECT_TRUE(item) << "no dispatch has come";
  return item ? item->dispatch() : v1::Dispatch();
}

v1::AgentItem FakeAgent::Event(const v1::Dispatch& call, uint64_t n) {
  v1::AgentItem item;
  item.mutable_call_event()->set_call_id(call.call_id());
  item.mutable_call_event()->set_attempt(call.attempt());
  item.mutable_call_event()->set_n(n);
  return item;
}

void FakeAgent::TellState(uint64_t incarnation, std::string digest) {
  v1::AgentItem item;
  *item.mutable_seat_state() = Seat(incarnation, std::move(digest));
  Say(std::move(item));
}

void FakeAgent::Queued(const v1::Dispatch& call, uint64_t n, uint32_t ahead) {
  v1::AgentItem item = Event(call, n);
  item.mutable_call_event()->mutable_queued()->set_ahead(ahead);
  Say(std::move(item));
}

void FakeAgent::Started(const v1::Dispatch& call, uint64_t n, uint64_t incarnation) {
  v1::AgentItem item = Event(call, n);
  item.mutable_call_event()->mutable_started()->set_incarnation(incarnation);
  Say(std::move(item));
}

v1::Dispatch FakeAgent::UnknownCall() {
  v1::Dispatch unknown;
  unknown.set_call_id("0123456789abcdef");
  unknown.set_attempt(1);
  return unknown;
}

void FakeAgent::Ask(const v1::Dispatch& call, uint64_t n, const std::string& method,
                    const std::string& params) {
  v1::AgentItem ask = Event(call, n);
  ask.mutable_call_event()->mutable_ask()->set_method(method);
  ask.mutable_call_event()->mutable_ask()->mutable_params()->set_inline_(params);
  Say(std::move(ask));
}

void FakeAgent::Notice(const std::string& method, const std::string& params) {
  v1::AgentItem item;
  item.mutable_notice()->set_seat_id(kSeat);
  item.mutable_notice()->set_method(method);
  item.mutable_notice()->mutable_params()->set_inline_(params);
  Say(std::move(item));
}

void FakeAgent::Progress(const v1::Dispatch& call, uint64_t n, const std::string& params) {
  v1::AgentItem item = Event(call, n);
  item.mutable_call_event()->mutable_progress()->set_inline_(params);
  Say(std::move(item));
}

void FakeAgent::Result(const v1::Dispatch& call, uint64_t n, const std::string& body) {
  v1::AgentItem item = Event(call, n);
  v1::Outcome& outcome = *item.mutable_call_event()->mutable_outcome();
  outcome.set_class_(v1::RESULT);
  outcome.set_certainty(v1::FINISHED);
  outcome.mutable_body()->set_inline_(body);
  Say(std::move(item));
}

void FakeAgent::Finish(const v1::Dispatch& call, uint64_t n, v1::OutcomeClass outcome_class,
                       v1::Reason reason, v1::Certainty certainty) {
  v1::AgentItem item = Event(call, n);
  v1::Outcome& outcome = *item.mutable_call_event()->mutable_outcome();
  outcome.set_class_(outcome_class);
  outcome.set_reason(reason);
  outcome.set_certainty(certainty);
  Say(std::move(item));
}

void FakeAgent::BigResult(const v1::Dispatch& call, uint64_t n, uint64_t size) {
  v1::AgentItem item = Event(call, n);
  v1::Outcome& outcome = *item.mutable_call_event()->mutable_outcome();
  outcome.set_class_(v1::RESULT);
  outcome.set_certainty(v1::FINISHED);
  outcome.mutable_body()->set_size(size);
  Say(std::move(item));
}

void FakeAgent::Chunk(const v1::Dispatch& call, uint64_t n, uint64_t offset,
                      const std::string& bytes) {
  v1::AgentItem item;
  v1::Chunk& chunk = *item.mutable_chunk();
  chunk.set_call_id(call.call_id());
  chunk.set_attempt(call.attempt());
  chunk.set_n(n);
  chunk.set_offset(offset);
  chunk.set_bytes(bytes);
  Say(std::move(item));
}

v1::CallState FakeAgent::State(const v1::Dispatch& call, v1::CallState::Phase phase,
                               uint64_t last_n) {
  v1::CallState state;
  state.set_call_id(call.call_id());
  state.set_attempt(call.attempt());
  state.mutable_seat()->set_seat_id(kSeat);
  state.set_phase(phase);
  state.set_last_n(last_n);
  return state;
}

// ---- the fixture --------------------------------------------------------------------------------

std::unique_ptr<FakeAgent> FlowsTest::Link(std::string boot, uint64_t epoch, std::string journal,
                                           std::vector<v1::CallState> calls, uint64_t incarnation) {
  auto agent = std::make_unique<FakeAgent>(loop, std::move(boot), epoch, std::move(journal));
  plane->AttachAgent(agent->MakeLink(), {"ipv4:127.0.0.1:1", "", ""});
  agent->Open(std::move(calls), incarnation);
  loop.RunReady();
  return agent;
}

std::string FlowsTest::OpenSession(std::string surface, std::string capabilities) {
  v1::OpenSessionRequest request;
  request.set_principal("anna");
  request.set_revision("2025-11-25");
  request.set_surface(std::move(surface));
  request.set_capabilities(std::move(capabilities));
  std::string id;
  plane->OpenSession(request, [&](absl::StatusOr<v1::Session> session) {
    ASSERT_TRUE(session.ok()) << session.status();
    id = session->session_id();
  });
  loop.RunReady();
  return id;
}

absl::Status FlowsTest::CloseSession(const std::string& session) {
  v1::SessionRef ref;
  ref.set_session_id(session);
  absl::Status status = absl::UnavailableError("no reply");
  plane->CloseSession(ref, [&](const absl::StatusOr<v1::CloseSessionResponse>& closed) {
    status = closed.status();
  });
  loop.RunReady();
  return status;
}

v1::InvokeRequest FlowsTest::Request(const std::string& session, const std::string& id,
                                     std::string method, std::string params) {
  v1::InvokeRequest request = Call(session, id);
  request.set_method(std::move(method));
  request.set_params(std::move(params));
  return request;
}

v1::InvokeRequest FlowsTest::Call(const std::string& session, const std::string& id,
                                  const std::string& tool) {
  v1::InvokeRequest request;
  request.set_session_id(session);
  request.set_client_request_id(id);
  request.mutable_target()->set_seat_id(kSeat);
  request.set_method("tools/call");
  request.set_params(R"({"name":")" + tool + R"(","arguments":{}})");
  request.set_progress_token(R"("tok")");
  request.set_open_stream_after_ms(250);
  return request;
}

std::unique_ptr<Caller> FlowsTest::Invoke(v1::InvokeRequest request, bool pull) {
  auto caller = std::make_unique<Caller>(plane->Invoke(std::move(request)), pull);
  loop.RunReady();
  return caller;
}

std::unique_ptr<Caller> FlowsTest::Streamed(const std::string& session, const std::string& id) {
  auto request = Call(session, id);
  request.set_open_stream_after_ms(0);
  return Invoke(std::move(request));
}

std::unique_ptr<Listener> FlowsTest::Listen(const std::string& session, uint64_t stream,
                                            std::optional<uint64_t> after_n) {
  v1::ListenRequest request;
  request.set_session_id(session);
  request.set_stream(stream);
  if (after_n) {
    request.mutable_after()->set_stream(stream);
    request.mutable_after()->set_term(plane->term());
    request.mutable_after()->set_n(*after_n);
  }
  auto listener = std::make_unique<Listener>(plane->Listen(std::move(request)));
  loop.RunReady();
  return listener;
}

v1::SendRequest FlowsTest::CancelOf(const std::string& session, const std::string& id) {
  v1::SendRequest request;
  request.set_session_id(session);
  request.mutable_cancel()->set_client_request_id(id);
  return request;
}

bool FlowsTest::CancelRequest(const std::string& session, const std::string& id) {
  return Send(CancelOf(session, id));
}

bool FlowsTest::Send(v1::SendRequest request) {
  std::optional<bool> found;
  plane->Send(std::move(request), [&](absl::StatusOr<v1::SendResponse> response) {
    found = response.ok() && response->found();
  });
  loop.RunReady();
  EXPECT_TRUE(found.has_value());
  return found.value_or(false);
}

absl::StatusOr<v1::Call> FlowsTest::GetCall(v1::CallRef ref) {
  absl::StatusOr<v1::Call> call = absl::UnknownError("no reply");
  plane->GetCall(std::move(ref), [&](absl::StatusOr<v1::Call> found) { call = std::move(found); });
  loop.RunReady();
  return call;
}

std::unique_ptr<Listener> FlowsTest::ListenAfter(const std::string& session,
                                                 const v1::EventId& after) {
  v1::ListenRequest request;
  request.set_session_id(session);
  request.set_stream(after.stream());
  *request.mutable_after() = after;
  auto listener = std::make_unique<Listener>(plane->Listen(std::move(request)));
  loop.RunReady();
  return listener;
}

void FlowsTest::RestartInOrder() {
  bool done = false;
  plane->Drain(absl::Milliseconds(1), [&] { done = true; });
  loop.RunFor(absl::Milliseconds(10));
  EXPECT_TRUE(done);
  Restart();
}

std::string FlowsTest::GiveList(FakeAgent& agent, const std::string& version,
                                const std::string& more) {
  std::string list =
      R"({"tools":[{"name":"bake","description":")" + version +
      R"(","inputSchema":{"type":"object","properties":{"frames":)"
      R"({"type":"integer"}}}},{"name":"look","annotations":{"readOnlyHint":true},)"
      R"("inputSchema":{"type":"object"}},{"name":"load_skill","inputSchema":{"type":"object"}})" +
      more + "]}";
  const std::string digest = core::Sha256Hex(list);
  agent.TellState(1, digest);
  loop.RunReady();
  auto want = agent.Take(v1::ServerItem::kCatalogueWant);
  EXPECT_EQ(want ? want->catalogue_want().digest() : "no list was wanted", digest);
  v1::AgentItem item;
  item.mutable_catalogue()->set_seat_id(kSeat);
  item.mutable_catalogue()->set_digest(digest);
  item.mutable_catalogue()->mutable_body()->set_inline_(std::move(list));
  agent.Say(std::move(item));
  loop.RunReady();
  return digest;
}

}  // namespace callboard::server
