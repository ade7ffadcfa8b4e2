// What the store keeps of a call that is over: one record, for its stream and for later questions.
#include <gmock/gmock.h>

#include "callboard/v1/store.pb.h"
#include "server/flows/store_key.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class EndedTest : public FlowsTest {
 protected:
  // A call with a stream that ends with `result`, and whose reader goes then.
  std::string Ended(FakeAgent& agent, const std::string& session, const std::string& id,
                    const std::string& result = R"({"ok":1})") {
    auto caller = Streamed(session, id);
    const v1::Dispatch call = agent.TakeDispatch();
    agent.Started(call);
    agent.Result(call, 2, result);
    loop.RunFor(absl::Seconds(1));
    EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
    return call.call_id();
  }
  v1::CallRef Ref(const std::string& call_id) {
    v1::CallRef ref;
    ref.set_call_id(call_id);
    ref.set_with_outcome(true);
    return ref;
  }
  // The whole of a stream of `session`, as somebody who comes back has it.
  std::unique_ptr<Listener> Replay(const std::string& session, uint64_t stream) {
    v1::EventId before;
    before.set_stream(stream);
    before.set_term(first_term);
    return ListenAfter(session, before);
  }
  std::vector<std::string> KeysOf(const std::string& call_id) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : disk.records) {
      const auto parsed = StoreKey::Parse(key);
      if (parsed->call && parsed->call->str() == call_id) keys.push_back(key);
    }
    return keys;
  }

  uint64_t first_term = plane->term();
};

TEST_F(EndedTest, ItsOneRecordIsTheEndOfItsStreamAndTheOutcomeOfItsReceipt) {
  auto agent = Link();
  const std::string session = OpenSession();
  const std::string call = Ended(*agent, session, "1");
  EXPECT_THAT(KeysOf(call), testing::ElementsAre(StoreKey::OfCall(*CallId::From(call))));
  for (int restarts = 0; restarts < 2; ++restarts) {
    Restart();
    auto listener = Replay(session, 1);
    EXPECT_EQ(listener->outcome().body().inline_(), R"({"ok":1})");
    EXPECT_EQ(listener->outcome().id().term(), first_term);
    EXPECT_EQ(listener->events.back().end().reason(), "finished");
    EXPECT_EQ(GetCall(Ref(call))->outcome().body().inline_(), R"({"ok":1})");
    EXPECT_FALSE(GetCall(Ref(call))->outcome().has_id()) << "an id is of a stream";
    EXPECT_EQ(GetCall(Ref(call))->phase(), v1::CALL_SUCCEEDED);
  }
}

TEST_F(EndedTest, TheReceiptHoldsItsRecordWhenTheStreamHasGone) {
  auto agent = Link();
  const std::string session = OpenSession();
  const std::string call = Ended(*agent, session, "1");
  EXPECT_TRUE(CloseSession(session).ok());
  loop.RunFor(absl::Seconds(1));
  Restart();
  EXPECT_EQ(GetCall(Ref(call))->outcome().body().inline_(), R"({"ok":1})");
  loop.RunFor(absl::Hours(25));
  EXPECT_THAT(KeysOf(call), IsEmpty());
}

TEST_F(EndedTest, TheStreamHoldsItsRecordWhenTheReceiptHasGone) {
  config.limits.receipts_max = 1;
  Restart();
  first_term = plane->term();
  auto agent = Link();
  const std::string session = OpenSession();
  const std::string first = Ended(*agent, session, "1", R"({"first":1})");
  Ended(*agent, session, "2");
  EXPECT_TRUE(absl::IsNotFound(GetCall(Ref(first)).status()));
  EXPECT_THAT(KeysOf(first), SizeIs(1));
  for (int restarts = 0; restarts < 2; ++restarts) {
    EXPECT_EQ(Replay(session, 1)->outcome().body().inline_(), R"({"first":1})");
    Restart();
  }
  EXPECT_TRUE(CloseSession(session).ok());
  loop.RunFor(absl::Seconds(1));
  EXPECT_THAT(KeysOf(first), IsEmpty());
}

TEST_F(EndedTest, AnOutcomeThatTheBoundHasCostIsStillTheEndOfItsStream) {
  config.limits.receipt_outcomes_bytes_max = 1'000;
  Restart();
  first_term = plane->term();
  auto agent = Link();
  const std::string session = OpenSession();
  const std::string first = Ended(*agent, session, "1", R"({"first":1})");
  Ended(*agent, session, "2", '"' + std::string(980, 'x') + '"');
  EXPECT_FALSE(GetCall(Ref(first))->has_outcome());
  EXPECT_EQ(GetCall(Ref(first))->phase(), v1::CALL_SUCCEEDED);
  EXPECT_EQ(Replay(session, 1)->outcome().body().inline_(), R"({"first":1})");
  Restart();
  EXPECT_EQ(Replay(session, 1)->outcome().body().inline_(), R"({"first":1})");
}

TEST_F(EndedTest, ALateResultIsKeptBesideWhatTheStreamTells) {
  auto agent = Link();
  const std::string session = OpenSession();
  v1::InvokeRequest request = Call(session);
  request.set_open_stream_after_ms(0);
  request.set_run_ms(1'000);
  auto caller = Invoke(request);
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  loop.RunFor(absl::Seconds(3));
  EXPECT_EQ(caller->outcome().class_(), v1::EXPIRED);
  agent->Result(call, 2, R"({"late":"result"})");
  loop.RunFor(absl::Milliseconds(200));
  for (int restarts = 0; restarts < 2; ++restarts) {
    Restart();
    EXPECT_EQ(Replay(session, 1)->outcome().class_(), v1::EXPIRED);
    EXPECT_TRUE(GetCall(Ref(call.call_id()))->outcome().late());
    EXPECT_EQ(GetCall(Ref(call.call_id()))->outcome().body().inline_(), R"({"late":"result"})");
  }
  loop.RunFor(absl::Hours(25));
  EXPECT_THAT(KeysOf(call.call_id()), IsEmpty());
}

TEST_F(EndedTest, ACallWithAKeyIsKnownAfterAKillBetweenItsEndAndItsReceipt) {
  auto agent = Link();
  const std::string session = OpenSession();
  v1::InvokeRequest request = Call(session);
  request.set_idempotency_key("once");
  auto caller = Invoke(request);
  loop.RunReady();
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Result(call, 2);
  loop.RunReady();
  EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::FINISHED, 2)});
  request.set_client_request_id("2");
  auto again = Invoke(request);
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_EQ(again->outcome().body().inline_(), R"({"ok":1})");
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch)) << "it has run";
}

}  // namespace
}  // namespace callboard::server
