// Large results that are kept with the receipt: fetched, durable before they are settled, given
// back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr size_t kPiece = 64 << 10;

class BodiesTest : public FlowsTest {
 protected:
  static v1::CallRef Ref(const std::string& call_id) {
    v1::CallRef ref;
    ref.set_call_id(call_id);
    return ref;
  }
  static v1::CallRef WithOutcome(const v1::Dispatch& call) {
    v1::CallRef ref = Ref(call.call_id());
    ref.set_with_outcome(true);
    return ref;
  }
  static std::string Body(size_t pieces) {
    std::string body;
    for (size_t i = 0; i < pieces; ++i) body.append(kPiece, static_cast<char>('a' + i));
    return body;
  }
  // A call whose caller has left.
  v1::Dispatch Left(FakeAgent& agent, const std::string& session) {
    auto caller = Invoke(Call(session));
    const v1::Dispatch call = agent.TakeDispatch();
    agent.Started(call);
    loop.RunReady();
    caller->Drop();
    loop.RunReady();
    return call;
  }
  // The agent sends what of a body there is from `offset` on, in pieces.
  void SendBody(FakeAgent& agent, const v1::Dispatch& call, uint64_t n, const std::string& body,
                size_t offset = 0) {
    for (; offset < body.size(); offset += kPiece) {
      agent.Chunk(call, n, offset, body.substr(offset, kPiece));
      loop.RunReady();
    }
  }
  // The same, which has ended with `body`, of which the agent has sent so much.
  v1::Dispatch LeftWith(FakeAgent& agent, const std::string& body,
                        size_t sent = std::string::npos) {
    v1::Dispatch call = Left(agent, OpenSession());
    agent.BigResult(call, 2, body.size());
    SendBody(agent, call, 2, body.substr(0, sent));
    return call;
  }
  std::unique_ptr<Caller> Fetch(const v1::Dispatch& call) {
    auto fetch = std::make_unique<Caller>(plane->FetchOutcome(Ref(call.call_id())));
    loop.RunReady();
    return fetch;
  }
  static bool Settled(FakeAgent& agent, const v1::Dispatch& call) {
    for (const v1::ServerItem& item : agent.items) {
      for (const std::string& id : item.settle().call_id()) {
        if (id == call.call_id()) return true;
      }
    }
    return false;
  }
};

TEST_F(BodiesTest, AreFetchedWhenNobodyReadsThemAndGivenToWhoeverAsks) {
  auto agent = Link();
  const std::string body = Body(3);
  const v1::Dispatch call = LeftWith(*agent, body);
  loop.RunFor(absl::Milliseconds(200));
  EXPECT_TRUE(Settled(*agent, call));
  const auto known = GetCall(WithOutcome(call));
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(known->phase(), v1::CALL_SUCCEEDED);
  EXPECT_EQ(known->outcome().body().size(), body.size());
  for (int i = 0; i < 2; ++i) {
    auto fetch = Fetch(call);
    EXPECT_EQ(fetch->outcome().class_(), v1::RESULT);
    EXPECT_EQ(fetch->body(), body);
    EXPECT_TRUE(fetch->events.back().chunk().last());
    EXPECT_TRUE(absl::IsOutOfRange(*fetch->end));
  }
}

TEST_F(BodiesTest, ComeWindowByWindowAsTheDiskTakesThem) {
  auto agent = Link();
  const v1::Dispatch call = Left(*agent, OpenSession());
  disk.delay = absl::Milliseconds(100);
  const std::string body = Body(2);
  agent->BigResult(call, 2, body.size());
  agent->Chunk(call, 2, 0, body.substr(0, kPiece));
  loop.RunFor(absl::Milliseconds(50));
  uint64_t acked = 0;
  const auto look = [&] {
    for (const v1::ServerItem& item : agent->TakeAll(v1::ServerItem::kAck)) {
      for (const v1::AckEntry& entry : item.ack().entries()) {
        if (entry.n() == 1) acked = std::max(acked, entry.offset());
      }
    }
  };
  look();
  EXPECT_EQ(acked, 0u);
  loop.RunFor(absl::Milliseconds(100));
  look();
  EXPECT_EQ(acked, kPiece);
}

TEST_F(BodiesTest, AreNotSettledBeforeTheyAreWhole) {
  auto agent = Link();
  const std::string body = Body(2);
  const v1::Dispatch call = LeftWith(*agent, body, kPiece);
  loop.RunFor(absl::Seconds(1));
  EXPECT_FALSE(Settled(*agent, call));
  EXPECT_EQ(plane->gauges().bodies_coming, 1u);
  SendBody(*agent, call, 2, body, kPiece);
  loop.RunFor(absl::Seconds(1));
  EXPECT_TRUE(Settled(*agent, call));
  EXPECT_EQ(plane->gauges().bodies_coming, 0u);
}

TEST_F(BodiesTest, SurviveAKillOnceTheyAreWhole) {
  auto agent = Link();
  const std::string body = Body(3);
  const v1::Dispatch call = LeftWith(*agent, body);
  loop.RunFor(absl::Milliseconds(200));
  Restart();
  EXPECT_EQ(Fetch(call)->body(), body);
  EXPECT_EQ(plane->gauges().bodies_coming, 0u);
}

TEST_F(BodiesTest, AreAskedOfTheAgentAgainAfterAKillHalfWay) {
  auto agent = Link();
  const std::string body = Body(3);
  const v1::Dispatch call = LeftWith(*agent, body, kPiece);
  loop.RunFor(absl::Milliseconds(200));
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::FINISHED, 2)});
  const auto verdict = back->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CONTINUE);
  EXPECT_EQ(verdict->verdict().have_n(), 1u);
  EXPECT_EQ(verdict->verdict().have_offset(), 0u);
  auto fetch = Fetch(call);
  EXPECT_THAT(fetch->events, IsEmpty());
  back->BigResult(call, 2, body.size());
  SendBody(*back, call, 2, body);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(fetch->body(), body);
  EXPECT_TRUE(Settled(*back, call));
}

TEST_F(BodiesTest, GoOnWhereTheyWereAfterACut) {
  auto agent = Link();
  const std::string body = Body(3);
  const v1::Dispatch call = LeftWith(*agent, body, kPiece);
  loop.RunFor(absl::Milliseconds(200));
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::FINISHED, 2)});
  const auto verdict = back->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().have_offset(), kPiece);
  back->BigResult(call, 2, body.size());
  SendBody(*back, call, 2, body, kPiece);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(Fetch(call)->body(), body);
}

TEST_F(BodiesTest, ThatTheAgentHasLostAreSaidToBeGone) {
  auto agent = Link();
  const v1::Dispatch call = Left(*agent, OpenSession());
  agent->BigResult(call, 2, 3 * kPiece);
  loop.RunFor(absl::Milliseconds(200));
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-2", 1);
  loop.RunFor(absl::Seconds(1));
  auto fetch = Fetch(call);
  EXPECT_EQ(fetch->outcome().class_(), v1::LOST);
  EXPECT_EQ(fetch->outcome().reason(), v1::BODY_LOST);
  EXPECT_EQ(fetch->outcome().message(),
            "the call has ended, but its result is not kept: its agent came back without it");
  EXPECT_EQ(GetCall(WithOutcome(call))->phase(), v1::CALL_SUCCEEDED);
  Restart();
  EXPECT_THAT(Fetch(call)->outcome().message(), HasSubstr("came back without it"));
}

TEST_F(BodiesTest, StayAtTheAgentWhileTheDiskFails) {
  auto agent = Link();
  const v1::Dispatch call = Left(*agent, OpenSession());
  const std::string body = Body(2);
  disk.failing = true;
  store->OnDiskChanged();
  agent->BigResult(call, 2, body.size());
  SendBody(*agent, call, 2, body);
  loop.RunFor(absl::Seconds(2));
  auto early = Fetch(call);
  loop.RunFor(absl::Seconds(11));
  EXPECT_FALSE(Settled(*agent, call));
  ASSERT_TRUE(early->end);
  EXPECT_TRUE(absl::IsUnavailable(*early->end)) << *early->end;
  EXPECT_THAT(std::string(early->end->message()), HasSubstr("the disk is full); ask again"));
  agent->TakeAll(v1::ServerItem::kVerdict);
  disk.failing = false;
  store->OnDiskChanged();
  loop.RunFor(absl::Seconds(8));
  const auto verdict = agent->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().decision(), v1::Verdict::CONTINUE);
  EXPECT_EQ(verdict->verdict().have_offset(), 0u);
  agent->BigResult(call, 2, body.size());
  SendBody(*agent, call, 2, body);
  loop.RunFor(absl::Seconds(1));
  EXPECT_TRUE(Settled(*agent, call));
  EXPECT_EQ(Fetch(call)->body(), body);
}

TEST_F(BodiesTest, OfALateResultAreKeptToo) {
  auto agent = Link();
  auto request = Call(OpenSession());
  request.set_run_ms(1'000);
  auto caller = Invoke(std::move(request));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  loop.RunFor(absl::Seconds(10));
  EXPECT_EQ(caller->outcome().class_(), v1::EXPIRED);
  const std::string body = Body(3);
  agent->BigResult(call, 2, body.size());
  SendBody(*agent, call, 2, body);
  loop.RunFor(absl::Seconds(1));
  auto fetch = Fetch(call);
  EXPECT_EQ(fetch->outcome().class_(), v1::RESULT);
  EXPECT_TRUE(fetch->outcome().late());
  EXPECT_EQ(fetch->body(), body);
  EXPECT_TRUE(Settled(*agent, call));
}

TEST_F(BodiesTest, AreKeptBesideAReaderThatHasThem) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  const std::string body = Body(3);
  agent->BigResult(call, 1, body.size());
  SendBody(*agent, call, 1, body);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(caller->body(), body);
  EXPECT_EQ(Fetch(call)->body(), body);
}

TEST_F(BodiesTest, AreAskedForWhenTheirReaderLeavesHalfWay) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto caller = Streamed(session);
  const v1::Dispatch call = agent->TakeDispatch();
  const std::string body = Body(3);
  agent->BigResult(call, 1, body.size());
  agent->Chunk(call, 1, 0, body.substr(0, kPiece));
  loop.RunReady();
  caller->Drop();
  loop.RunReady();
  const auto verdict = agent->Take(v1::ServerItem::kVerdict);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->verdict().have_offset(), kPiece);
  agent->BigResult(call, 1, body.size());
  SendBody(*agent, call, 1, body, kPiece);
  EXPECT_EQ(Fetch(call)->body(), body);
  // And whoever comes back to the stream has it from its beginning.
  auto listener = Listen(session, 1, 0);
  const auto again = agent->TakeAll(v1::ServerItem::kVerdict);
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].verdict().have_offset(), 0u);
  agent->BigResult(call, 1, body.size());
  SendBody(*agent, call, 1, body);
  EXPECT_EQ(listener->body(), body);
}

TEST_F(BodiesTest, TheOldestMakeRoomAndOneThatNeverFitsSaysSo) {
  config.limits.kept_bodies_bytes_max = 4 * kPiece;
  Restart();
  auto agent = Link();
  const std::string session = OpenSession();
  std::vector<v1::Dispatch> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(Left(*agent, session));
    const std::string body = Body(i < 2 ? 3 : 5);
    agent->BigResult(calls.back(), 2, body.size());
    SendBody(*agent, calls.back(), 2, body);
    loop.RunFor(absl::Seconds(1));
  }
  EXPECT_THAT(Fetch(calls[0])->outcome().message(), HasSubstr("had to make room for newer ones"));
  EXPECT_EQ(Fetch(calls[1])->body(), Body(3));
  const v1::CallOutcome never = Fetch(calls[2])->outcome();
  EXPECT_EQ(never.reason(), v1::BODY_LOST);
  EXPECT_THAT(never.message(), HasSubstr("it has 327680 bytes, and for all results that are kept "
                                         "limits.kept_bodies_bytes_max leaves 262144"));
  EXPECT_TRUE(Settled(*agent, calls[2]));
  EXPECT_THAT(disk.bodies, SizeIs(1));
}

TEST_F(BodiesTest, WhoseFileIsGoneAreSaidToBeGone) {
  auto agent = Link();
  const std::string body = Body(2);
  const v1::Dispatch call = LeftWith(*agent, body);
  loop.RunFor(absl::Seconds(1));
  disk.bodies.clear();
  const v1::CallOutcome outcome = Fetch(call)->outcome();
  EXPECT_EQ(outcome.reason(), v1::BODY_LOST);
  EXPECT_THAT(outcome.message(), HasSubstr("no such file"));
}

TEST_F(BodiesTest, GoWithTheirReceiptAndWhatNobodyKnowsGoesAtTheStart) {
  config.budgets.receipt = absl::Seconds(30);
  Restart();
  auto agent = Link();
  const std::string body = Body(2);
  const v1::Dispatch call = LeftWith(*agent, body);
  loop.RunFor(absl::Seconds(1));
  EXPECT_THAT(disk.bodies, SizeIs(1));
  loop.RunFor(absl::Seconds(31));
  EXPECT_THAT(disk.bodies, IsEmpty());
  disk.bodies[*CallId::From(std::string(16, 'x'))] = "orphan";
  Restart();
  EXPECT_THAT(disk.bodies, IsEmpty());
}

TEST_F(BodiesTest, WaitForTheEndOfTheCall) {
  auto agent = Link();
  const v1::Dispatch call = Left(*agent, OpenSession());
  auto fetch = Fetch(call);
  ASSERT_THAT(fetch->events, SizeIs(1));
  EXPECT_EQ(fetch->accepted()->call_id(), call.call_id());
  agent->Result(call, 2);
  loop.RunReady();
  EXPECT_EQ(fetch->outcome().body().inline_(), R"({"ok":1})");
  EXPECT_TRUE(absl::IsOutOfRange(*fetch->end));
}

TEST_F(BodiesTest, MoreThanAFewAtATimeTakeTurns) {
  auto agent = Link();
  const std::string session = OpenSession();
  constexpr size_t kCalls = 20;
  std::vector<v1::Dispatch> calls;
  for (size_t i = 0; i < kCalls; ++i) {
    auto caller = Invoke(Call(session, std::to_string(i)));
    calls.push_back(agent->TakeDispatch());
    caller->Drop();
  }
  const std::string body = Body(2);
  for (const v1::Dispatch& call : calls) {
    agent->BigResult(call, 1, body.size());
    agent->Chunk(call, 1, 0, body.substr(0, kPiece));
  }
  loop.RunReady();
  // Of those that have had no turn nothing is acknowledged: their agent waits.
  for (const v1::Dispatch& call : calls) SendBody(*agent, call, 1, body, kPiece);
  loop.RunFor(absl::Seconds(5));
  size_t asked = 0;
  for (const v1::ServerItem& item : agent->TakeAll(v1::ServerItem::kVerdict)) {
    ++asked;
    for (const v1::Dispatch& call : calls) {
      if (call.call_id() != item.verdict().call_id()) continue;
      EXPECT_EQ(item.verdict().have_offset(), 0u);
      agent->BigResult(call, 1, body.size());
      SendBody(*agent, call, 1, body);
    }
  }
  EXPECT_GE(asked, kCalls - 16);
  loop.RunFor(absl::Seconds(1));
  for (const v1::Dispatch& call : calls) EXPECT_EQ(Fetch(call)->body(), body);
}

}  // namespace
}  // namespace callboard::server
