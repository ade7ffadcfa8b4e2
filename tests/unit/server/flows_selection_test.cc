// Sessions that show selected tools of many seats: lists, calls by name, and what changes of seats
// mean to them.
#include <gmock/gmock.h>

#include "core/mcp/json.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kBake[] = "maya_5ea70000__bake";
constexpr char kLook[] = "maya_5ea70000__look";

class Selections : public FlowsTest {
 protected:
  absl::StatusOr<v1::Session> Open(const std::string& tools) {
    v1::OpenSessionRequest request;
    request.set_revision("2025-11-25");
    request.set_surface("tools");
    request.set_tools(tools);
    absl::StatusOr<v1::Session> opened = absl::UnavailableError("no reply");
    plane->OpenSession(request, [&](absl::StatusOr<v1::Session> session) { opened = session; });
    loop.RunReady();
    return opened;
  }
  std::string OpenTools(const std::string& tools) {
    const auto session = Open(tools);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? session->session_id() : "";
  }
  v1::GetListResponse List(const std::string& session, const std::string& known = "") {
    v1::GetListRequest request;
    request.set_session_id(session);
    request.set_kind("tools");
    request.set_known_digest(known);
    const auto list = plane->GetList(request);
    EXPECT_TRUE(list.ok()) << list.status();
    return list.ok() ? *list : v1::GetListResponse();
  }
  std::vector<std::string> Names(const std::string& session) {
    std::vector<std::string> names;
    (void)core::ForEachElement(List(session).list(), [&names](std::string_view tool) {
      names.push_back(core::FindString(tool, "name").value_or(""));
      return true;
    });
    return names;
  }
  v1::InvokeRequest CallByName(const std::string& session, const std::string& name,
                               const std::string& id = "1") {
    v1::InvokeRequest request = Call(session, id, name);
    request.clear_target();
    return request;
  }
  v1::CallOutcome Refused(const std::string& session, const std::string& name) {
    const v1::CallOutcome outcome = Invoke(CallByName(session, name))->outcome();
    EXPECT_EQ(outcome.class_(), v1::REJECTED);
    EXPECT_EQ(outcome.certainty(), v1::NOT_STARTED);
    return outcome;
  }
  static int ListChanges(const Listener& listener) {
    int changes = 0;
    for (const v1::ListenEvent& event : listener.events) {
      changes += event.stream_event().method() == "notifications/tools/list_changed" ? 1 : 0;
    }
    return changes;
  }
  void RemoveSeat(FakeAgent& agent) {
    v1::AgentItem gone;
    gone.mutable_seat_gone()->set_seat_id(kSeat);
    agent.Say(std::move(gone));
    loop.RunReady();
  }
};

TEST_F(Selections, ListedNameIsTheCallableNameAndReachesTheOriginalOne) {
  auto agent = Link();
  GiveList(*agent, "first");
  const std::string session = OpenTools("maya.*.bake,maya.*.look");
  EXPECT_THAT(Names(session), ElementsAre(kBake, kLook));
  auto caller = Invoke(CallByName(session, kBake));
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_EQ(call.seat_id(), kSeat);
  EXPECT_EQ(call.params().inline_(), R"({"name":"bake","arguments":{}})");
  agent->Result(call, 1, R"({"content":[],"x":1})");
  loop.RunReady();
  EXPECT_EQ(caller->outcome().body().inline_(), R"({"content":[],"x":1})");
  EXPECT_EQ(plane->ListCalls({}).calls(0).tool(), "bake");
}

TEST_F(Selections, SlugOfASelectedToolIsTakenToo) {
  auto agent = Link();
  GiveList(*agent, "first");
  const std::string session = OpenTools("maya.*.bake");
  auto caller = Invoke(CallByName(session, "maya.5ea70000.bake"));
  EXPECT_EQ(agent->TakeDispatch().params().inline_(), R"({"name":"bake","arguments":{}})");
  EXPECT_EQ(Refused(session, "maya.5ea70000.look").reason(), v1::TOOL_UNKNOWN)
      << "it is not selected";
}

TEST_F(Selections, ArgumentsAreCheckedAsEverywhere) {
  auto agent = Link();
  GiveList(*agent, "first");
  v1::InvokeRequest request = CallByName(OpenTools("maya"), kBake);
  request.set_params(std::string(R"({"name":")") + kBake + R"(","arguments":{"frames":"many"}})");
  EXPECT_EQ(Invoke(std::move(request))->outcome().reason(), v1::PARAMS_INVALID);
}

TEST_F(Selections, UnknownNamesAreRefusedWithTheSelectors) {
  auto agent = Link();
  GiveList(*agent, "first");
  const std::string session = OpenTools("maya.*.bake");
  const v1::CallOutcome outcome = Refused(session, kLook);
  EXPECT_EQ(outcome.reason(), v1::TOOL_UNKNOWN);
  EXPECT_THAT(outcome.message(), HasSubstr(kLook));
  EXPECT_THAT(outcome.message(), HasSubstr("maya.*.bake"));
  EXPECT_EQ(Refused(session, "bake").reason(), v1::TOOL_UNKNOWN) << "no name is guessed";
  v1::InvokeRequest other = Request(session, "9", "resources/list", "{}");
  other.clear_target();
  EXPECT_EQ(Invoke(std::move(other))->outcome().reason(), v1::PARAMS_INVALID);
}

TEST_F(Selections, ListComesByDigestAndItsTextIsTheSameAfterARestart) {
  auto agent = Link();
  GiveList(*agent, "first");
  const std::string session = OpenTools("maya.*.bake");
  const v1::GetListResponse first = List(session);
  EXPECT_TRUE(List(session, first.digest()).list().empty());
  agent.reset();
  Restart();
  EXPECT_EQ(List(session).list(), "[]") << "no seat is back yet";
  EXPECT_EQ(Refused(session, kBake).reason(), v1::TOOL_UNKNOWN);
  agent = Link("boot-2");
  GiveList(*agent, "first");
  EXPECT_EQ(List(session).digest(), first.digest());
  EXPECT_EQ(List(session).list(), first.list());
}

TEST_F(Selections, ChangesAreToldOnceInAQuarterOfASecondAndOnlyIfTheyAreSeen) {
  auto agent = Link();
  GiveList(*agent, "first");
  auto sees = Listen(OpenTools("maya.*.bake"), 0);
  auto other = Listen(OpenTools("maya.*.look"), 0);
  auto facade = Listen(OpenSession(), 0);
  GiveList(*agent, "second");
  GiveList(*agent, "third");
  loop.RunFor(absl::Milliseconds(240));
  EXPECT_EQ(ListChanges(*sees), 0);
  loop.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(ListChanges(*sees), 1);
  EXPECT_EQ(ListChanges(*other), 0) << "its tool is as it was";
  EXPECT_EQ(ListChanges(*facade), 0);
  agent->TellState(1, "");  // as a seat does that is busy
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(ListChanges(*sees), 1);
}

TEST_F(Selections, SeatWhoseNextListIsOnItsWayShowsTheFormerOne) {
  auto agent = Link();
  GiveList(*agent, "first");
  const std::string session = OpenTools("maya.*.bake");
  agent->TellState(1, "another digest");
  loop.RunFor(absl::Seconds(1));
  EXPECT_THAT(Names(session), ElementsAre(kBake));
}

TEST_F(Selections, SeatThatIsCutKeepsItsToolsUntilItIsStaleAndHasThemBackAfterwards) {
  auto agent = Link();
  GiveList(*agent, "first");
  const std::string session = OpenTools("maya.*.bake");
  auto hears = Listen(session, 0);
  agent->Cut();
  loop.RunFor(absl::Seconds(20));
  EXPECT_THAT(Names(session), ElementsAre(kBake));
  EXPECT_EQ(ListChanges(*hears), 0);
  loop.RunFor(absl::Seconds(20));
  EXPECT_THAT(Names(session), IsEmpty());
  EXPECT_EQ(ListChanges(*hears), 1);
  const v1::CallOutcome outcome = Refused(session, kBake);
  EXPECT_EQ(outcome.reason(), v1::SEAT_OFFLINE);
  EXPECT_THAT(outcome.message(), HasSubstr("'maya-a' is stale"));
  auto back = Link("boot-2");
  GiveList(*back, "first");
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(ListChanges(*hears), 2);
  EXPECT_THAT(Names(session), ElementsAre(kBake));
  auto caller = Invoke(CallByName(session, kBake, "2"));
  EXPECT_EQ(back->TakeDispatch().seat_id(), kSeat);
}

TEST_F(Selections, WhatHasGoneSaysWhatItWas) {
  auto agent = Link();
  GiveList(*agent, "first", R"(,{"name":"melt"})");
  const std::string session = OpenTools("maya.*.*");
  EXPECT_THAT(Names(session), SizeIs(4));
  GiveList(*agent, "first");
  const v1::CallOutcome tool = Refused(session, "maya_5ea70000__melt");
  EXPECT_EQ(tool.reason(), v1::TOOL_UNKNOWN);
  EXPECT_THAT(tool.message(), HasSubstr("'melt' is no longer offered by 'maya-a'"));
  RemoveSeat(*agent);
  const v1::CallOutcome seat = Refused(session, kBake);
  EXPECT_EQ(seat.reason(), v1::SEAT_OFFLINE);
  EXPECT_THAT(seat.message(), HasSubstr("is 'bake' of 'maya-a', which has gone"));
}

TEST_F(Selections, RestoredSessionsAreToldEvenIfTheyListenLater) {
  auto agent = Link();
  GiveList(*agent, "first");
  const std::string session = OpenTools("maya.*.bake");
  loop.RunFor(absl::Seconds(1));
  agent.reset();
  Restart();
  agent = Link("boot-2");
  GiveList(*agent, "first");
  loop.RunFor(absl::Seconds(1));
  v1::EventId beginning;
  beginning.set_term(1);
  auto hears = ListenAfter(session, beginning);
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(ListChanges(*hears), 1);
}

TEST_F(Selections, PinnedStandsForWhatIsConfiguredAndFollowsIt) {
  EXPECT_THAT(Open("pinned").status().message(), HasSubstr("tools.pinned"));
  config.pinned_tools = *core::ToolSelection::Parse("maya.*.bake");
  Restart();
  auto agent = Link();
  GiveList(*agent, "first");
  const std::string session = OpenTools("pinned");
  auto hears = Listen(session, 0);
  EXPECT_THAT(Names(session), ElementsAre(kBake));
  ASSERT_TRUE(
      plane->Reconfigure(config.budgets, config.limits, *core::ToolSelection::Parse("maya.*.look"))
          .ok());
  EXPECT_THAT(Names(session), ElementsAre(kLook));
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(ListChanges(*hears), 1);
}

TEST_F(Selections, BadSelectorsAndOneSelectionTooManyAreRefused) {
  EXPECT_EQ(Open("maya..x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open("").status().code(), absl::StatusCode::kInvalidArgument);
  config.limits.selections_max = 1;
  Restart();
  const std::string first = OpenTools("maya");
  EXPECT_TRUE(Open("maya.*").ok()) << "another spelling of the same";
  EXPECT_EQ(Open("usd").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Open("maya.*.*")->tools(), "maya.*.*");
  v1::GetListRequest request;
  request.set_kind("tools");
  request.set_session_id(OpenSession());
  EXPECT_EQ(plane->GetList(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.set_session_id("unknown");
  EXPECT_EQ(plane->GetList(request).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Selections, SelectionEndsWithItsLastSession) {
  config.limits.selections_max = 1;
  Restart();
  const std::string first = OpenTools("maya");
  const std::string second = OpenTools("maya");
  ASSERT_TRUE(CloseSession(first).ok());
  EXPECT_FALSE(Open("usd").ok());
  ASSERT_TRUE(CloseSession(second).ok());
  EXPECT_TRUE(Open("usd").ok());
}

// ---- without a session ----

class SessionlessSelections : public Selections {
 protected:
  absl::StatusOr<v1::GetListResponse> ListOf(const std::string& tools) {
    v1::GetListRequest request;
    request.set_tools(tools);
    request.set_kind("tools");
    return plane->GetList(request);
  }
  v1::InvokeRequest CallOf(const std::string& tools, const std::string& name) {
    v1::InvokeRequest request = CallByName("", name);
    request.set_tools(tools);
    request.mutable_client()->set_revision("2026-07-28");
    request.mutable_client()->set_capabilities(R"({"elicitation":{}})");
    return request;
  }
  std::unique_ptr<Listener> Watch(const std::string& tools) {
    v1::ListenRequest request;
    request.set_tools(tools);
    request.mutable_wish()->set_tools_list_changed(true);
    auto listener = std::make_unique<Listener>(plane->Listen(std::move(request)));
    loop.RunReady();
    return listener;
  }
};

TEST_F(SessionlessSelections, AreListedAndCalledByTheSameNames) {
  auto agent = Link();
  GiveList(*agent, "1");
  const auto list = ListOf("maya.*.bake");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(list->list(), HasSubstr(kBake));
  EXPECT_EQ(List(OpenTools("maya.*.bake")).list(), list->list());
  auto caller = Invoke(CallOf("maya.*.bake", kBake));
  const v1::Dispatch dispatch = agent->TakeDispatch();
  EXPECT_EQ(core::FindString(dispatch.params().inline_(), "name"), "bake");
  EXPECT_EQ(Invoke(CallOf("maya.*.bake", kLook))->outcome().reason(), v1::TOOL_UNKNOWN);
  EXPECT_EQ(Invoke(CallOf("maya..bake", kBake))->outcome().reason(), v1::PARAMS_INVALID);
  EXPECT_EQ(ListOf("pinned").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionlessSelections, CallsAreParkedAndResumedByTheirName) {
  auto agent = Link();
  GiveList(*agent, "1");
  auto caller = Invoke(CallOf("maya", kBake));
  const v1::Dispatch dispatch = agent->TakeDispatch();
  agent->Started(dispatch);
  agent->Ask(dispatch, 2);
  loop.RunReady();
  const std::string state =
      core::FindString(caller->outcome().body().inline_(), "requestState").value_or("");
  v1::InvokeRequest retry = CallOf("maya", kBake);
  retry.set_params(
      core::SetMember(core::SetMember(retry.params(), "requestState", core::QuoteJson(state)),
                      "inputResponses", R"({"ask-2":{"action":"accept"}})"));
  auto again = Invoke(retry);
  EXPECT_TRUE(agent->Take(v1::ServerItem::kAnswer));
  agent->Result(dispatch, 3);
  loop.RunReady();
  EXPECT_EQ(again->outcome().class_(), v1::RESULT);
}

TEST_F(SessionlessSelections, TellThoseWhoListen) {
  auto agent = Link();
  GiveList(*agent, "1");
  auto listener = Watch("maya");
  GiveList(*agent, "2");
  loop.RunFor(absl::Seconds(1));
  EXPECT_EQ(ListChanges(*listener), 1);
  auto wrong = Watch("pinned");
  EXPECT_EQ(wrong->end->code(), absl::StatusCode::kInvalidArgument);
  bool drained = false;
  plane->Drain(absl::Seconds(1), [&drained] { drained = true; });
  loop.RunFor(absl::Seconds(2));
  EXPECT_EQ(listener->events.back().end().reason(), "drain");
  EXPECT_TRUE(drained);
}

TEST_F(SessionlessSelections, MakeRoomForOthers) {
  config.limits.selections_max = 2;
  Restart();
  auto agent = Link();
  GiveList(*agent, "1");
  auto listener = Watch("maya.*.bake");
  for (const char* tools : {"maya", "maya.*.look", "usd"}) {
    EXPECT_TRUE(ListOf(tools).ok()) << tools;
    loop.RunFor(absl::Seconds(1));
  }
  EXPECT_TRUE(Open("blender").ok());
  EXPECT_EQ(ListOf("houdini").status().code(), absl::StatusCode::kResourceExhausted)
      << "one is listened to, the other a session's";
  listener->Drop();
  loop.RunFor(absl::Minutes(16));
  EXPECT_TRUE(ListOf("houdini").ok());
}

}  // namespace
}  // namespace callboard::server
