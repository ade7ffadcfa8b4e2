// A control plane played by hand, a seat without a DCC, and the agent between them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend_agent/agent.h"
#include "backend_agent/frame_builder.h"
#include "core/runtime/lifetime.h"
#include "tests/support/memory_journal_file.h"
#include "tests/support/memory_spool.h"
#include "tests/support/virtual_loop.h"

namespace callboard::tests {

// The other end of every link the agent dials at one address; what came over the newest link is in
// `items`.
class FakePlane final {
 public:
  explicit FakePlane(VirtualLoop& loop) : loop_(loop) {}

  std::unique_ptr<agent::ControlPlaneLink> Dial() {
    ++dials;
    dialled_at.push_back(loop_.Now());
    items.clear();
    frames = 0;
    taken_ = 0;
    auto link = std::make_unique<Link>(*this);
    link_ = link.get();
    if (refuses) loop_.Post([this] { Cut(); });
    return link;
  }

  bool connected() const { return link_ != nullptr; }
  void Send(v1::ServerItem item) {
    v1::ServerFrame frame;
    *frame.add_items() = std::move(item);
    SendFrame(std::move(frame));
  }
  void SendFrame(v1::ServerFrame frame) {
    if (link_ == nullptr) return;
    frame.set_received(confirm ? taken_ : 0);
    loop_.Post(link_->lifetime.Wrap([link = link_, frame = std::move(frame)]() mutable {
      link->handler->OnMessage(std::move(frame));
    }));
  }
  void Cut() {
    if (link_ == nullptr) return;
    loop_.Post(link_->lifetime.Wrap([this, link = link_] {
      if (link_ == link) link_ = nullptr;
      link->handler->OnClosed(absl::UnavailableError("cut"));
    }));
  }

  int dials = 0;
  std::vector<absl::Time> dialled_at;
  std::vector<v1::AgentItem> items;
  size_t frames = 0;
  size_t frame_bytes_max = 0;
  bool confirm = true;   // say at once what has been taken
  bool refuses = false;  // nobody listens

 private:
  struct Link final : agent::ControlPlaneLink {
    explicit Link(FakePlane& fake) : plane(fake) {}
    ~Link() override {
      if (plane.link_ == this) plane.link_ = nullptr;
    }
    void Open(Handler* link_handler) override { handler = link_handler; }
    void Write(v1::AgentFrame frame) override {
      EXPECT_FALSE(writing) << "two writes in flight";
      writing = true;
      loop().Post(lifetime.Wrap([this, frame = std::move(frame)]() mutable {
        writing = false;
        plane.Take(frame);
        handler->OnWritten();
      }));
    }
    void Close(absl::Status) override {
      lifetime.Renew();
      if (plane.link_ == this) plane.link_ = nullptr;
    }
    VirtualLoop& loop() { return plane.loop_; }

    FakePlane& plane;
    Handler* handler = nullptr;
    bool writing = false;
    core::Lifetime lifetime;
  };

  void Take(v1::AgentFrame& frame) {
    const size_t bytes = agent::PacingBytes(frame);
    taken_ += bytes;
    ++frames;
    frame_bytes_max = std::max(frame_bytes_max, bytes);
    for (v1::AgentItem& item : *frame.mutable_items()) items.push_back(std::move(item));
    if (confirm && frame.items_size() > 0) SendFrame({});
  }

  VirtualLoop& loop_;
  Link* link_ = nullptr;
  uint64_t taken_ = 0;
};

// The network: finds the plane at an address, and refuses the dial where there is none.
class FakeDialer final : public agent::LinkDialer {
 public:
  FakeDialer(VirtualLoop& loop, std::map<std::string, FakePlane*> by_address)
      : planes(std::move(by_address)), nowhere_(loop) {}
  std::unique_ptr<agent::ControlPlaneLink> Dial(const std::string& address) override {
    auto found = planes.find(address);
    if (found != planes.end()) return found->second->Dial();
    auto link = nowhere_.Dial();
    nowhere_.Cut();
    return link;
  }

  std::map<std::string, FakePlane*> planes;

 private:
  FakePlane nowhere_;
};

// What a seat was asked to do. The test plays the DCC through the agent's CallObserver.
class FakeSeat final : public agent::Seat {
 public:
  struct Asked {
    std::vector<agent::CallSpec> submitted;
    std::vector<std::string> cancelled;
    std::vector<std::string> answers;
    bool cordoned = false;
    v1::Interest interest;
    bool assumed_busy = false;
    v1::CancelAck::Effect cancel_effect = v1::CancelAck::DELIVERED;
    v1::SeatState state;
    agent::Payload catalogue;
  };

  FakeSeat(std::string seat_id, Asked& asked) : seat_id_(std::move(seat_id)), asked_(asked) {
    asked_.state.set_seat_id(seat_id_);
    asked_.state.set_incarnation(3);
  }
  const std::string& seat_id() const override { return seat_id_; }
  v1::SeatState State() const override { return asked_.state; }
  agent::Payload Catalogue() const override { return asked_.catalogue; }
  void Submit(agent::CallSpec spec) override { asked_.submitted.push_back(std::move(spec)); }
  v1::CancelAck::Effect Cancel(const std::string& call_id, v1::Cancel::Why) override {
    asked_.cancelled.push_back(call_id);
    return asked_.cancel_effect;
  }
  void Answer(uint64_t ask, bool is_error, agent::Payload text) override {
    asked_.answers.push_back(
        fmt::format("{} {} {}", ask, is_error ? "error" : "result", text.view()));
  }
  void SetInterest(const v1::Interest& interest) override { asked_.interest = interest; }
  void SetCordon(bool cordoned) override { asked_.cordoned = cordoned; }
  void AssumeBusy() override { asked_.assumed_busy = true; }

 private:
  std::string seat_id_;
  Asked& asked_;
};

inline std::string CallIdOf(char letter) { return std::string(16, letter); }

inline std::string Text(size_t size) {
  std::string text(size, 'x');
  for (size_t i = 0; i < size; i += 100) text[i] = static_cast<char>('a' + (i / 100) % 26);
  return text;
}

// Everything around one agent, which can be killed and started again.
class AgentTest : public testing::Test {
 protected:
  static constexpr char kSeat[] = "0123456789abcdef0123456789abcdef";

  AgentTest() {
    config.agent_id = "00112233445566778899aabbccddeeff";
    config.control_planes = {"plane-1:9766"};
    welcome.set_protocol(1);
    welcome.set_cluster_id("cluster");
    welcome.set_control_plane_id("plane-1");
    welcome.set_term(1);
    welcome.set_heartbeat_ms(5'000);
  }

  void StartAgent() {
    seat = {};
    agent = std::make_unique<agent::Agent>(loop, random, dialer, journal, spool, config);
    EXPECT_TRUE(agent->Recover().ok());
    agent->AddSeat(std::make_unique<FakeSeat>(kSeat, seat));
    agent->Start();
    loop.RunReady();
  }
  void SendWelcome() { SendWelcome(plane, welcome); }
  void SendWelcome(FakePlane& to, const v1::Welcome& said) {
    v1::ServerItem item;
    *item.mutable_welcome() = said;
    to.Send(std::move(item));
    loop.RunReady();
  }
  void StartLinked() {
    StartAgent();
    SendWelcome();
    plane.items.clear();
  }
  void Kill() {
    agent.reset();
    loop.RunReady();
  }
  // Cuts the link and waits for the next opening, which is left in plane.items.
  void CutAndRedial() {
    const int dials = plane.dials;
    plane.Cut();
    ASSERT_TRUE(loop.RunUntil([&] { return plane.dials > dials; }, absl::Seconds(30)));
    loop.RunReady();
  }

  v1::Dispatch MakeDispatch(char letter, std::string params = "{}") {
    v1::Dispatch dispatch;
    dispatch.set_call_id(CallIdOf(letter));
    dispatch.set_attempt(1);
    dispatch.set_owner_term(1);
    dispatch.set_seat_id(kSeat);
    dispatch.set_method("tools/call");
    dispatch.mutable_params()->set_inline_(std::move(params));
    dispatch.set_kind(v1::Dispatch::REQUEST);
    return dispatch;
  }
  void Send(v1::Dispatch dispatch) { Send(plane, std::move(dispatch)); }
  void Send(FakePlane& from, v1::Dispatch dispatch) {
    v1::ServerItem item;
    *item.mutable_dispatch() = std::move(dispatch);
    from.Send(std::move(item));
    loop.RunReady();
  }
  // Dispatches a call and lets it begin at the seat.
  std::string Begin(char letter) { return Begin(plane, MakeDispatch(letter)); }
  std::string Begin(FakePlane& from, const v1::Dispatch& dispatch) {
    Send(from, dispatch);
    std::string call_id = dispatch.call_id();
    EXPECT_TRUE(agent->call_observer().OnStarting(call_id, 3));
    loop.RunFor(absl::Milliseconds(2));  // Started may wait that long for an outcome
    return call_id;
  }
  void End(const std::string& call_id, agent::Payload body,
           v1::OutcomeClass outcome_class = v1::RESULT, v1::Certainty certainty = v1::FINISHED) {
    agent->call_observer().OnEnd(call_id, MakeEnd(std::move(body), outcome_class, certainty));
    loop.RunReady();
  }
  static agent::CallEnd MakeEnd(agent::Payload body, v1::OutcomeClass outcome_class = v1::RESULT,
                                v1::Certainty certainty = v1::FINISHED) {
    agent::CallEnd end;
    end.outcome_class = outcome_class;
    end.certainty = certainty;
    end.body = std::move(body);
    return end;
  }
  agent::Payload InSpool(const std::string& text) {
    agent::PayloadBuilder builder(spool, 1ull << 30);
    EXPECT_TRUE(builder.Append(text).ok());
    return builder.Take();
  }
  void SendVerdict(const std::string& call_id, v1::Verdict::Decision decision, uint64_t have_n = 0,
                   uint64_t have_offset = 0, uint64_t term = 1) {
    SendVerdict(plane, call_id, decision, have_n, have_offset, term);
  }
  void SendVerdict(FakePlane& from, const std::string& call_id, v1::Verdict::Decision decision,
                   uint64_t have_n, uint64_t have_offset, uint64_t term) {
    v1::ServerItem item;
    v1::Verdict* verdict = item.mutable_verdict();
    verdict->set_call_id(call_id);
    verdict->set_attempt(1);
    verdict->set_owner_term(term);
    verdict->set_decision(decision);
    verdict->set_have_n(have_n);
    verdict->set_have_offset(have_offset);
    from.Send(std::move(item));
    loop.RunReady();
  }
  void SendAck(const std::string& call_id, uint64_t n, uint64_t offset, uint32_t window = 0) {
    v1::ServerItem item;
    v1::AckEntry* entry = item.mutable_ack()->add_entries();
    entry->set_call_id(call_id);
    entry->set_attempt(1);
    entry->set_n(n);
    entry->set_offset(offset);
    entry->set_window(window);
    plane.Send(std::move(item));
    loop.RunReady();
  }
  void SendSettle(const std::string& call_id, uint64_t term = 1) {
    SendSettle(plane, call_id, term);
  }
  void SendSettle(FakePlane& from, const std::string& call_id, uint64_t term) {
    v1::ServerItem item;
    item.mutable_settle()->add_call_id(call_id);
    item.mutable_settle()->set_owner_term(term);
    from.Send(std::move(item));
    loop.RunReady();
  }
  void SendCancel(const std::string& call_id) { SendCancel(plane, call_id, 1); }
  void SendCancel(FakePlane& from, const std::string& call_id, uint64_t term) {
    v1::ServerItem item;
    item.mutable_cancel()->set_call_id(call_id);
    item.mutable_cancel()->set_owner_term(term);
    item.mutable_cancel()->set_reason(v1::Cancel::CLIENT);
    from.Send(std::move(item));
    loop.RunReady();
  }

  // What came over the present link.
  std::vector<v1::CallEvent> Events(const std::string& call_id) const {
    return Events(plane, call_id);
  }
  static std::vector<v1::CallEvent> Events(const FakePlane& at, const std::string& call_id) {
    std::vector<v1::CallEvent> events;
    for (const v1::AgentItem& item : at.items) {
      if (item.has_call_event() && item.call_event().call_id() == call_id) {
        events.push_back(item.call_event());
      }
    }
    return events;
  }
  std::vector<uint64_t> Numbers(const std::string& call_id) const {
    return Numbers(plane, call_id);
  }
  static std::vector<uint64_t> Numbers(const FakePlane& at, const std::string& call_id) {
    std::vector<uint64_t> numbers;
    for (const v1::CallEvent& event : Events(at, call_id)) numbers.push_back(event.n());
    return numbers;
  }
  // The outcomes of a call; a call without one fails the test and gives an empty outcome.
  v1::Outcome OutcomeOf(const std::string& call_id) const { return OutcomeOf(plane, call_id); }
  static v1::Outcome OutcomeOf(const FakePlane& at, const std::string& call_id) {
    for (const v1::CallEvent& event : Events(at, call_id)) {
      if (event.has_outcome()) return event.outcome();
    }
    ADD_FAILURE() << "no outcome of call " << call_id;
    return {};
  }
  // All chunks of a call, which must be contiguous from `offset`.
  std::string Chunks(const std::string& call_id, uint64_t offset = 0) const {
    std::string text;
    for (const v1::AgentItem& item : plane.items) {
      if (!item.has_chunk() || item.chunk().call_id() != call_id) continue;
      EXPECT_EQ(item.chunk().offset(), offset + text.size());
      EXPECT_LE(item.chunk().bytes().size(), 65'536u);
      text += item.chunk().bytes();
    }
    return text;
  }
  std::vector<v1::AgentItem> Items(v1::AgentItem::ItemCase kind) const {
    return Items(plane, kind);
  }
  static std::vector<v1::AgentItem> Items(const FakePlane& at, v1::AgentItem::ItemCase kind) {
    std::vector<v1::AgentItem> found;
    for (const v1::AgentItem& item : at.items) {
      if (item.item_case() == kind) found.push_back(item);
    }
    return found;
  }

  VirtualLoop loop;
  core::SeededRandom random{7};
  FakePlane plane{loop};
  FakeDialer dialer{loop, {{"plane-1:9766", &plane}}};
  MemoryJournalFile journal;
  MemorySpool spool;
  agent::AgentConfig config;
  v1::Welcome welcome;
  FakeSeat::Asked seat;
  std::unique_ptr<agent::Agent> agent;
};

}  // namespace callboard::tests
