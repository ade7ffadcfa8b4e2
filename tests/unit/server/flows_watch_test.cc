// Tests of callers without a session: what they listen to, which logs they hear, what their hanging
// up means.
#include "gmock/gmock.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

constexpr char kTools[] = "notifications/tools/list_changed";
constexpr char kPrompts[] = "notifications/prompts/list_changed";
constexpr char kUpdated[] = "notifications/resources/updated";

class Sessionless : public FlowsTest {
 protected:
  v1::ListenRequest Wish(bool tools, bool prompts, std::vector<std::string> uris = {}) {
    v1::ListenRequest request;
    request.mutable_target()->set_seat_id(kSeat);
    request.mutable_wish()->set_tools_list_changed(tools);
    request.mutable_wish()->set_prompts_list_changed(prompts);
    for (std::string& uri : uris) request.mutable_wish()->add_resource_uris(std::move(uri));
    return request;
  }
  std::unique_ptr<Listener> Watch(v1::ListenRequest request, bool pull = true) {
    auto listener = std::make_unique<Listener>(plane->Listen(std::move(request)), pull);
    loop.RunReady();
    return listener;
  }
  static std::vector<std::string> Methods(const Listener& listener) {
    std::vector<std::string> methods;
    for (const v1::ListenEvent& event : listener.events) {
      if (event.has_stream_event()) methods.push_back(event.stream_event().method());
    }
    return methods;
  }
  int UrisWished(FakeAgent& agent) {
    const auto all = agent.TakeAll(v1::ServerItem::kInterest);
    return all.empty() ? -1 : all.back().interest().resource_uris_size();
  }
  void Notice(FakeAgent& agent, const std::string& method, const std::string& params = "") {
    agent.Notice(method, params);
    loop.RunReady();
  }
  v1::InvokeRequest ModernCall(std::string level = "") {
    v1::InvokeRequest request = Call("");
    request.mutable_target()->set_seat_id(kSeat);
    request.mutable_client()->set_revision("2026-07-28");
    request.mutable_client()->set_capabilities(R"({"sampling":{}})");
    request.set_log_level(std::move(level));
    request.set_on_detach(v1::InvokeRequest::CANCEL);
    return request;
  }
};

TEST_F(Sessionless, ListenersAreToldWhatTheyWishAndNothingElse) {
  auto agent = Link();
  auto listener = Watch(Wish(false, true, {"scene://"}));
  ASSERT_GE(listener->events.size(), 2u);
  EXPECT_TRUE(listener->events[0].has_replaying());
  EXPECT_TRUE(listener->events[1].has_live());
  EXPECT_EQ(UrisWished(*agent), 1);
  Notice(*agent, kTools);
  Notice(*agent, kPrompts);
  Notice(*agent, kUpdated, R"({"uri":"scene://"})");
  Notice(*agent, kUpdated, R"({"uri":"other://"})");
  Notice(*agent, "notifications/message", R"({"level":"error","data":1})");
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(Methods(*listener), (std::vector<std::string>{kUpdated, kPrompts}));
  EXPECT_EQ(listener->params()[0], R"({"uri":"scene://"})");
  EXPECT_FALSE(listener->events.back().stream_event().has_id());
}

TEST_F(Sessionless, ResourcesAreWishedForAsLongAsSomebodyListens) {
  auto agent = Link();
  auto first = Watch(Wish(false, false, {"scene://"}));
  auto second = Watch(Wish(false, false, {"scene://", "b://"}));
  EXPECT_EQ(UrisWished(*agent), 2);
  second.reset();
  loop.RunReady();
  EXPECT_EQ(UrisWished(*agent), 1);
  agent->Cut();
  loop.RunReady();
  auto back = Link("boot-1", 2);
  EXPECT_EQ(UrisWished(*back), 1) << "renewed on a new link";
  first.reset();
  loop.RunReady();
  EXPECT_EQ(UrisWished(*back), 0);
}

TEST_F(Sessionless, WhatWaitsForASlowListenerStandsForAllOfItsKind) {
  auto agent = Link();
  auto listener = Watch(Wish(false, true, {"scene://"}), /*pull=*/false);
  for (int i = 0; i < 5; ++i) {
    Notice(*agent, kPrompts);
    Notice(*agent, kUpdated, R"({"uri":"scene://"})");
    loop.RunFor(absl::Seconds(1));
  }
  listener->pulling = true;
  listener->Pull();
  loop.RunReady();
  EXPECT_EQ(Methods(*listener), (std::vector<std::string>{kPrompts, kUpdated}));
}

TEST_F(Sessionless, ChangedToolsAreToldByTheirDigestAndByTheBackendsWord) {
  auto agent = Link();
  GiveList(*agent, "1");
  auto listener = Watch(Wish(true, false));
  Notice(*agent, kTools);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(Methods(*listener).size(), 1u) << "the backend says so, whatever its digest";
  GiveList(*agent, "2");
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(Methods(*listener).size(), 2u);
}

TEST_F(Sessionless, WhoComesBackIsToldOfEverythingOnce) {
  auto agent = Link();
  v1::ListenRequest again = Wish(true, true, {"scene://"});
  again.mutable_after();
  auto listener = Watch(std::move(again));
  EXPECT_EQ(Methods(*listener), (std::vector<std::string>{kPrompts, kUpdated, kTools}));
}

TEST_F(Sessionless, ListeningEndsWithTheControlPlane) {
  auto agent = Link();
  auto killed = Watch(Wish(true, false));
  Restart();
  loop.RunReady();
  ASSERT_TRUE(killed->end);
  EXPECT_EQ(killed->end->code(), absl::StatusCode::kUnavailable);
  v1::ListenRequest nobodys = Wish(true, false);
  nobodys.clear_target();
  nobodys.mutable_target()->set_instance("nobody");
  auto unknown = Watch(std::move(nobodys));
  loop.RunReady();
  ASSERT_TRUE(unknown->end);
  EXPECT_EQ(unknown->end->code(), absl::StatusCode::kNotFound) << unknown->end->message();
  auto again = Link("boot-2", 1, "journal-1");
  auto drained = Watch(Wish(true, false));
  plane->Drain(absl::Seconds(1), [] {});
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(drained->events.back().end().reason(), "drain");
}

TEST_F(Sessionless, CallsSayWhoAsksAndEndWithTheirCaller) {
  auto agent = Link();
  auto caller = Invoke(ModernCall("warning"));
  const v1::Dispatch dispatch = agent->TakeDispatch();
  EXPECT_EQ(dispatch.client().revision(), "2026-07-28");
  EXPECT_EQ(dispatch.client().capabilities(), R"({"sampling":{}})");
  EXPECT_EQ(dispatch.client().log_level(), "warning");
  EXPECT_THAT(dispatch.backend_session(), testing::StartsWith("like-"));
  agent->Started(dispatch);
  caller->Drop();
  loop.RunReady();
  const auto cancel = agent->Take(v1::ServerItem::kCancel);
  ASSERT_TRUE(cancel);
  EXPECT_EQ(cancel->cancel().call_id(), dispatch.call_id());
}

TEST_F(Sessionless, CallsHearOfLogsFromTheLevelTheyName) {
  auto agent = Link();
  const auto heard = [&](std::string level) {
    auto caller = Invoke(ModernCall(std::move(level)));
    const v1::Dispatch dispatch = agent->TakeDispatch();
    agent->Started(dispatch);
    for (uint64_t n = 2; n < 4; ++n) {
      v1::AgentItem item = FakeAgent::Event(dispatch, n);
      item.mutable_call_event()->mutable_log()->set_inline_(
          n == 2 ? R"({"level":"info","data":1})" : R"({"level":"error","data":2})");
      agent->Say(std::move(item));
    }
    agent->Result(dispatch, 4);
    loop.RunReady();
    EXPECT_EQ(caller->outcome().class_(), v1::RESULT);
    return caller->params();
  };
  EXPECT_TRUE(heard("").empty());
  EXPECT_EQ(heard("warning"), std::vector<std::string>{R"({"level":"error","data":2})"});
  EXPECT_EQ(heard("debug").size(), 2u);
}

TEST_F(Sessionless, ArgumentsMustAgreeWithTheirHeaders) {
  auto agent = Link();
  GiveList(*agent, "1",
           R"(,{"name":"paint","inputSchema":{"type":"object","properties":{"region":)"
           R"({"type":"string","x-mcp-header":"Region"}}}})");
  v1::InvokeRequest request = ModernCall();
  request.set_params(R"({"name":"paint","arguments":{"region":"eu"}})");
  auto refused = Invoke(request);
  EXPECT_EQ(refused->outcome().reason(), v1::PARAM_HEADER_MISMATCH);
  EXPECT_EQ(refused->outcome().certainty(), v1::NOT_STARTED);
  EXPECT_EQ(refused->outcome().message(), "Mcp-Param-Region is missing; the argument is there");
  v1::ParamHeader& header = *request.add_param_headers();
  header.set_name("region");
  header.set_value("eu");
  v1::ParamHeader& other = *request.add_param_headers();
  other.set_name("farm");
  other.set_value("a");
  auto taken = Invoke(request);
  const v1::Dispatch dispatch = agent->TakeDispatch();
  EXPECT_EQ(dispatch.params().inline_(), request.params());
  ASSERT_EQ(dispatch.param_headers_size(), 2);
  EXPECT_EQ(dispatch.param_headers(1).name(), "farm");
}

TEST_F(Sessionless, ListenersAreToldOfTheirTasksAndSessionsOfNone) {
  auto agent = Link();
  const std::string session = OpenSession("seat:" + kSeat);
  auto own = Listen(session, 0);
  v1::ListenRequest request = Wish(false, false);
  request.mutable_wish()->add_task_ids("t1");
  auto listener = Watch(request);
  const auto interests = agent->TakeAll(v1::ServerItem::kInterest);
  ASSERT_FALSE(interests.empty());
  ASSERT_EQ(interests.back().interest().task_ids_size(), 1);
  EXPECT_EQ(interests.back().interest().task_ids(0), "t1");
  Notice(*agent, "notifications/tasks", R"({"taskId":"t2","status":"working"})");
  Notice(*agent, "notifications/tasks", R"({"taskId":"t1","status":"working"})");
  EXPECT_EQ(listener->params(), std::vector<std::string>{R"({"taskId":"t1","status":"working"})"});
  EXPECT_TRUE(own->params().empty());
}

}  // namespace
}  // namespace callboard::server
