// A control plane in virtual time with scripted agents and callers at both ends.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/offload.h"
#include "core/runtime/random.h"
#include "gtest/gtest.h"
#include "server/flows/control_plane.h"
#include "tests/sim/sim_bodies.h"
#include "tests/sim/sim_store.h"
#include "tests/support/virtual_loop.h"

namespace callboard::server {

inline const std::string kSeat = "5ea7000000000000000000000000beef";

// The far end of a link: keeps what the control plane writes, says what the test wants.
class FakeAgent {
 public:
  FakeAgent(tests::VirtualLoop& loop, std::string boot = "boot-1", uint64_t epoch = 1,
            std::string journal = "journal-1")
      : loop_(loop), boot_(std::move(boot)), epoch_(epoch), journal_(std::move(journal)) {}
  ~FakeAgent();

  std::unique_ptr<AgentLink> MakeLink();
  v1::Hello Hello() const;
  static v1::SeatState Seat(uint64_t incarnation = 1, std::string digest = "");
  // Hello, one seat, the calls, InventoryDone.
  void Open(std::vector<v1::CallState> calls = {}, uint64_t incarnation = 1);
  void Say(v1::AgentItem item);
  void Say(std::vector<v1::AgentItem> items);
  void SayFrame(v1::AgentFrame frame);
  void Cut();

  // Items of one kind taken off so far are removed from what is kept.
  std::optional<v1::ServerItem> Take(v1::ServerItem::ItemCase kind);
  std::vector<v1::ServerItem> TakeAll(v1::ServerItem::ItemCase kind);
  // The next dispatch; fails the test if none has come.
  v1::Dispatch TakeDispatch();

  // An event of the call, to be filled.
  static v1::AgentItem Event(const v1::Dispatch& call, uint64_t n);
  void TellState(uint64_t incarnation, std::string digest = "");
  void Queued(const v1::Dispatch& call, uint64_t n, uint32_t ahead);
  void Started(const v1::Dispatch& call, uint64_t n = 1, uint64_t incarnation = 1);
  void Progress(const v1::Dispatch& call, uint64_t n, const std::string& params);
  void Ask(const v1::Dispatch& call, uint64_t n, const std::string& method = "elicitation/create",
           const std::string& params = "{}");
  void Notice(const std::string& method, const std::string& params);  // of its seat
  void Result(const v1::Dispatch& call, uint64_t n, const std::string& body = R"({"ok":1})");
  void Finish(const v1::Dispatch& call, uint64_t n, v1::OutcomeClass outcome, v1::Reason reason,
              v1::Certainty certainty);
  // The header of a large result, then a part of it.
  void BigResult(const v1::Dispatch& call, uint64_t n, uint64_t size);
  void Chunk(const v1::Dispatch& call, uint64_t n, uint64_t offset, const std::string& bytes);
  // One that the control plane has never sent.
  static v1::Dispatch UnknownCall();
  static v1::CallState State(const v1::Dispatch& call, v1::CallState::Phase phase,
                             uint64_t last_n = 0);

  std::vector<std::string> features;  // said in Hello
  bool answer_pings = true;
  bool report_received = true;
  bool closed = false;
  std::deque<v1::ServerItem> items;
  size_t largest_frame = 0;

 private:
  struct End;
  void OnFrame(v1::ServerFrame frame);

  tests::VirtualLoop& loop_;
  std::string boot_;
  uint64_t epoch_;
  std::string journal_;
  End* end_ = nullptr;
  uint64_t received_ = 0;
  uint64_t told_received_ = 0;
};

// Pulls a source and keeps what comes, until told to stop pulling.
template <class Event>
class Puller {
 public:
  explicit Puller(std::unique_ptr<core::EventSource<Event>> source, bool pull = true)
      : pulling(pull), source_(std::move(source)) {
    if (pull) Pull();
  }
  void Pull() {
    if (asked_ || source_ == nullptr) return;
    asked_ = true;
    source_->Next([this](absl::StatusOr<Event> event) {
      asked_ = false;
      if (!event.ok()) {
        end = event.status();
        return;
      }
      events.push_back(*std::move(event));
      if (pulling) Pull();
    });
  }
  void Drop() { source_.reset(); }

  // Of Invoke.
  std::optional<v1::Accepted> accepted() const {
    for (const Event& event : events) {
      if (event.has_accepted()) return event.accepted();
    }
    return std::nullopt;
  }
  // Of Invoke and Listen.
  std::vector<v1::CallOutcome> outcomes() const {
    std::vector<v1::CallOutcome> found;
    for (const Event& event : events) {
      if (event.has_outcome()) found.push_back(event.outcome());
    }
    return found;
  }
  v1::CallOutcome outcome() const {
    const auto found = outcomes();
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? v1::CallOutcome() : found.front();
  }
  std::string body() const {
    std::string body;
    for (const Event& event : events) {
      if (event.has_chunk()) body += event.chunk().bytes();
    }
    return body;
  }
  // params of the stream events, in order
  std::vector<std::string> params() const {
    std::vector<std::string> found;
    for (const Event& event : events) {
      if (event.has_stream_event()) found.push_back(event.stream_event().params());
    }
    return found;
  }

  std::vector<Event> events;
  std::optional<absl::Status> end;
  bool pulling;

 private:
  std::unique_ptr<core::EventSource<Event>> source_;
  bool asked_ = false;
};
using Caller = Puller<v1::InvokeEvent>;
using Listener = Puller<v1::ListenEvent>;

class FlowsTest : public testing::Test {
 protected:
  FlowsTest() : random(7), offload(loop) { Restart(); }

  // Kills the control plane and starts another on the same disk.
  void Restart() {
    plane.reset();
    store = std::make_unique<sim::SimStore>(loop, disk, "c1a57e7");
    config.control_plane_id = "plane-1";
    bodies = std::make_unique<sim::SimBodies>(loop, disk);
    plane = std::make_unique<ControlPlane>(loop, random, offload, *store, *bodies, config);
  }
  // Ends it in order, then as above.
  void RestartInOrder();
  std::unique_ptr<FakeAgent> Link(std::string boot = "boot-1", uint64_t epoch = 1,
                                  std::string journal = "journal-1",
                                  std::vector<v1::CallState> calls = {}, uint64_t incarnation = 1);
  std::string OpenSession(std::string surface = "facade", std::string capabilities = "{}");
  absl::Status CloseSession(const std::string& session);
  v1::InvokeRequest Call(const std::string& session, const std::string& id = "1",
                         const std::string& tool = "bake");
  // Of any method.
  v1::InvokeRequest Request(const std::string& session, const std::string& id, std::string method,
                            std::string params);
  std::unique_ptr<Caller> Invoke(v1::InvokeRequest request, bool pull = true);
  // A call whose stream is open from its beginning.
  std::unique_ptr<Caller> Streamed(const std::string& session, const std::string& id = "1");
  std::unique_ptr<Listener> Listen(const std::string& session, uint64_t stream,
                                   std::optional<uint64_t> after_n = std::nullopt);
  static v1::SendRequest CancelOf(const std::string& session, const std::string& id);
  // After an id as clients name it, of any term.
  std::unique_ptr<Listener> ListenAfter(const std::string& session, const v1::EventId& after);
  // What Send says of it once it has replied; fails the test if it does not reply.
  bool Send(v1::SendRequest request);
  absl::StatusOr<v1::Call> GetCall(v1::CallRef ref);
  bool CancelRequest(const std::string& session, const std::string& id);
  // Tells the list of the seat: a writing tool "bake" (described by `version`), a reading one
  // "look", "load_skill" and `more`. Returns its digest.
  std::string GiveList(FakeAgent& agent, const std::string& version, const std::string& more = "");

  tests::VirtualLoop loop;
  core::SeededRandom random;
  core::InlineOffload offload;
  sim::SimDisk disk;
  std::unique_ptr<sim::SimStore> store;
  std::unique_ptr<sim::SimBodies> bodies;
  ControlPlaneConfig config;
  std::unique_ptr<ControlPlane> plane;
};

}  // namespace callboard::server
