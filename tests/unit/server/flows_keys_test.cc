// Idempotency keys: one call for each, whatever is cut or killed between.
#include "gmock/gmock.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

using testing::HasSubstr;

class KeysTest : public FlowsTest {
 protected:
  v1::InvokeRequest Keyed(const std::string& session, const std::string& id,
                          const std::string& arguments = R"({"frames":1,"name":"a"})") {
    auto request = Call(session, id);
    request.set_params(R"({"name":"bake","arguments":)" + arguments + "}");
    request.set_idempotency_key("key-1");
    return request;
  }
};

TEST_F(KeysTest, TheSameArgumentsHaveTheSameOutcomeAndRunOnce) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Keyed(session, "1"));
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunReady();
  // Members in another order, and another session of the same principal.
  auto second = Invoke(Keyed(OpenSession(), "2", R"({ "name": "\u0061", "frames": 1 })"));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
  EXPECT_EQ(second->outcome().body().inline_(), R"({"ok":1})");
  EXPECT_EQ(second->outcome().client_request_id(), "2");
  EXPECT_EQ(second->outcome().call_id(), first->outcome().call_id());
}

TEST_F(KeysTest, OtherArgumentsConflict) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Keyed(session, "1"));
  auto second = Invoke(Keyed(session, "2", R"({"frames":2,"name":"a"})"));
  EXPECT_EQ(second->outcome().class_(), v1::REJECTED);
  EXPECT_EQ(second->outcome().reason(), v1::IDEMPOTENCY_CONFLICT);
  EXPECT_EQ(second->outcome().certainty(), v1::NOT_STARTED);
  EXPECT_THAT(second->outcome().message(), HasSubstr("other arguments"));
}

TEST_F(KeysTest, ARunningCallIsAttachedTo) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Keyed(session, "1"));
  auto second = Invoke(Keyed(session, "2"));
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
  loop.RunReady();
  ASSERT_TRUE(second->accepted());  // it may be long until the end
  EXPECT_EQ(second->accepted()->call_id(), call.call_id());
  EXPECT_FALSE(second->accepted()->has_id());
  first->Drop();
  auto third = Invoke(Keyed(session, "3"));
  agent->Progress(call, 1, R"({"progress":1})");
  agent->Result(call, 2);
  loop.RunReady();
  EXPECT_EQ(second->outcome().body().inline_(), R"({"ok":1})");
  EXPECT_TRUE(absl::IsOutOfRange(*second->end));
  EXPECT_EQ(third->outcome().client_request_id(), "3");
  EXPECT_EQ(third->params().size(), 1u);  // it has taken the first caller's place
}

TEST_F(KeysTest, WhoeverTakesTheCallersPlaceIsToldHowLongTheCallMayTake) {
  auto agent = Link();
  int rounds = 0;
  const auto attach = [&](bool stream, uint64_t after_ms) {
    const std::string session = OpenSession();
    auto request = Keyed(session, "1");
    request.set_idempotency_key("key-" + std::to_string(++rounds));
    auto first = Invoke(request);
    const v1::Dispatch call = agent->TakeDispatch();
    agent->Started(call);
    loop.RunFor(absl::Milliseconds(100));
    first->Drop();
    loop.RunFor(absl::Seconds(1));
    request.set_client_request_id("2");
    request.set_never_open_stream(!stream);
    request.set_open_stream_after_ms(after_ms);
    auto second = Invoke(std::move(request));
    EXPECT_EQ(second->accepted().has_value(), after_ms == 0 && stream);
    loop.RunFor(absl::Seconds(2));
    const auto accepted = second->accepted();
    agent->Result(call, 2);
    loop.RunReady();
    EXPECT_EQ(second->outcome().body().inline_(), R"({"ok":1})");
    EXPECT_EQ(second->outcome().call_id(), call.call_id());
    return accepted;
  };
  const uint64_t all_ms = static_cast<uint64_t>(
      absl::ToInt64Milliseconds(config.budgets.queue + config.budgets.heavy_call));
  const auto told = attach(/*stream=*/false, 1000);
  ASSERT_TRUE(told);
  EXPECT_FALSE(told->has_id());
  EXPECT_GT(told->hard_ms(), all_ms);
  const auto streamed = attach(/*stream=*/true, 1000);
  ASSERT_TRUE(streamed);
  EXPECT_TRUE(streamed->has_id());
  EXPECT_GT(streamed->hard_ms(), all_ms);
  EXPECT_TRUE(attach(/*stream=*/true, 0)->has_id()) << "at once";
  EXPECT_FALSE(attach(/*stream=*/false, 0)) << "whoever wants no acceptance has none";
}

TEST_F(KeysTest, WhoeverWaitsBesideTheCallerIsToldHowLongTheCallMayTake) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Keyed(session, "1"));
  auto second = Invoke(Keyed(session, "2"));
  ASSERT_TRUE(second->accepted());
  EXPECT_GT(second->accepted()->hard_ms(),
            static_cast<uint64_t>(absl::ToInt64Milliseconds(config.budgets.queue)));
}

TEST_F(KeysTest, KeysSurviveARestartAtEveryPoint) {
  auto agent = Link();
  const std::string session = OpenSession();
  disk.delay = absl::Milliseconds(10);
  auto first = Invoke(Keyed(session, "1"));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));  // the store does not know it yet
  loop.RunFor(absl::Milliseconds(10));
  const v1::Dispatch call = agent->TakeDispatch();
  disk.delay = absl::ZeroDuration();
  Restart();
  auto back = Link("boot-1", 2, "journal-1", {FakeAgent::State(call, v1::CallState::RUNNING, 1)});
  auto second = Invoke(Keyed(session, "2"));
  EXPECT_FALSE(back->Take(v1::ServerItem::kDispatch));
  back->Started(call);
  back->Result(call, 2);
  loop.RunFor(absl::Milliseconds(150));
  EXPECT_EQ(second->outcome().body().inline_(), R"({"ok":1})");
  Restart();
  auto again = Link("boot-1", 3);
  auto third = Invoke(Keyed(session, "3"));
  EXPECT_FALSE(again->Take(v1::ServerItem::kDispatch));
  EXPECT_EQ(third->outcome().body().inline_(), R"({"ok":1})");
}

TEST_F(KeysTest, AnUnknownOutcomeNamesTheReceipt) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Keyed(session, "1"));
  const v1::Dispatch call = agent->TakeDispatch();
  agent->Started(call);
  agent->Finish(call, 2, v1::LOST, v1::DCC_EXITED, v1::UNKNOWN);
  loop.RunReady();
  auto second = Invoke(Keyed(session, "2"));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
  EXPECT_EQ(second->outcome().certainty(), v1::UNKNOWN);
  EXPECT_THAT(second->outcome().message(), HasSubstr("ask for its receipt by call id"));
}

TEST_F(KeysTest, WhatDidNotStartMayBeTriedAgain) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Keyed(session, "1"));
  agent->Finish(agent->TakeDispatch(), 1, v1::REJECTED, v1::QUEUE_FULL, v1::NOT_STARTED);
  loop.RunReady();
  auto second = Invoke(Keyed(session, "2"));
  EXPECT_TRUE(agent->Take(v1::ServerItem::kDispatch));
}

TEST_F(KeysTest, AFailingStoreRefusesThem) {
  auto agent = Link();
  const std::string session = OpenSession();
  disk.failing = true;
  store->OnDiskChanged();
  auto refused = Invoke(Keyed(session, "1"));
  EXPECT_EQ(refused->outcome().reason(), v1::STORE_UNAVAILABLE);
}

TEST_F(KeysTest, ALargeResultIsKeptForWhoeverComesWithItsKey) {
  auto agent = Link();
  const std::string session = OpenSession();
  auto first = Invoke(Keyed(session, "1"));
  const v1::Dispatch call = agent->TakeDispatch();
  first->Drop();
  const std::string piece(64 << 10, 'p');
  agent->BigResult(call, 1, 2 * piece.size());
  agent->Chunk(call, 1, 0, piece);
  loop.RunFor(absl::Seconds(5));
  EXPECT_FALSE(agent->Take(v1::ServerItem::kSettle));
  auto second = Invoke(Keyed(session, "2"));
  EXPECT_TRUE(second->outcomes().empty());
  agent->Chunk(call, 1, piece.size(), piece);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(second->outcome().body().size(), 2 * piece.size());
  EXPECT_EQ(second->outcome().client_request_id(), "2");
  EXPECT_EQ(second->body().size(), 2 * piece.size());
  EXPECT_TRUE(agent->Take(v1::ServerItem::kSettle));
  auto third = Invoke(Keyed(session, "3"));
  EXPECT_EQ(third->body(), piece + piece);
}

TEST_F(KeysTest, EachRoundOfARequestThatIsAskedForInputIsACallOfItsOwn) {
  auto agent = Link();
  auto request = Keyed("", "1");
  request.mutable_target()->set_seat_id(kSeat);
  request.mutable_client()->set_revision("2026-07-28");
  auto first = Invoke(request);
  agent->Result(agent->TakeDispatch(), 1, R"({"resultType":"input_required","requestState":"s"})");
  loop.RunReady();
  request.set_params(R"({"name":"bake","arguments":{"frames":1,"name":"a"},"requestState":"s"})");
  auto second = Invoke(request);
  agent->Result(agent->TakeDispatch(), 1, R"({"resultType":"complete"})");
  loop.RunReady();
  EXPECT_EQ(second->outcome().body().inline_(), R"({"resultType":"complete"})");
  auto third = Invoke(request);
  EXPECT_FALSE(agent->Take(v1::ServerItem::kDispatch));
  loop.RunReady();
  EXPECT_EQ(third->outcome().body().inline_(), R"({"resultType":"complete"})");
}

}  // namespace
}  // namespace callboard::server
