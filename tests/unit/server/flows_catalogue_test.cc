// Lists of seats, watching them, and loading a skill.
#include "core/runtime/digest.h"
#include "gmock/gmock.h"
#include "tests/unit/server/flows_fixture.h"

namespace callboard::server {
namespace {

constexpr char kStub[] = R"(,{"name":"__skill__rigging","inputSchema":{"type":"object"}})";

TEST_F(FlowsTest, AsksForAListOnceAndServesItByDigest) {
  auto agent = Link();
  const std::string digest = GiveList(*agent, "first");
  EXPECT_FALSE(agent->Take(v1::ServerItem::kCatalogueWant));
  v1::GetListRequest request;
  request.mutable_target()->set_seat_id(kSeat);
  request.set_kind("tools");
  auto list = plane->GetList(request);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->digest(), digest);
  EXPECT_NE(list->list().find("\"bake\""), std::string::npos);
  request.set_known_digest(digest);
  EXPECT_TRUE(plane->GetList(request)->list().empty());
  EXPECT_EQ(plane->ListInstances({}).instances(0).tools(), 3u);
}

TEST_F(FlowsTest, AListIsAskedForAgainOnceItsAgentHasIt) {
  auto agent = Link();
  agent->TellState(1, "d1");
  loop.RunReady();
  EXPECT_EQ(agent->Take(v1::ServerItem::kCatalogueWant)->catalogue_want().digest(), "d1");
  agent->Cut();
  loop.RunReady();
  auto back = std::make_unique<FakeAgent>(loop, "boot-2");
  plane->AttachAgent(back->MakeLink(), {"ipv4:127.0.0.1:1", "", ""});
  back->Open({}, 0);  // it looks for the seat
  loop.RunReady();
  EXPECT_FALSE(back->Take(v1::ServerItem::kCatalogueWant));
  for (const char* digest : {"d1", "d2", "d1"}) {
    back->TellState(1, digest);
    loop.RunReady();
    const auto want = back->Take(v1::ServerItem::kCatalogueWant);
    ASSERT_TRUE(want) << digest;
    EXPECT_EQ(want->catalogue_want().digest(), digest);
  }
}

// The seat has a list of another digest and is asked for it.
v1::AgentItem Delta(FakeAgent& agent, const std::string& digest, const std::string& base) {
  agent.TellState(1, digest);
  v1::AgentItem item;
  item.mutable_catalogue()->set_seat_id(kSeat);
  item.mutable_catalogue()->set_digest(digest);
  item.mutable_catalogue()->set_base_digest(base);
  v1::CatalogueChange* gone = item.mutable_catalogue()->add_changes();
  gone->set_name("look");
  gone->set_removed(true);
  v1::CatalogueChange* added = item.mutable_catalogue()->add_changes();
  added->set_name("melt");
  added->set_after("bake");
  item.mutable_catalogue()->mutable_body()->set_inline_(R"({"tools":[{"name":"melt"}]})");
  return item;
}

TEST_F(FlowsTest, ListIsMadeFromTheFormerOneAndWhatIsNew) {
  auto agent = Link();
  const std::string base = GiveList(*agent, "first");
  const std::string digest = core::Sha256Hex(
      R"({"tools":[{"name":"bake","description":"first","inputSchema":{"type":"object",)"
      R"("properties":{"frames":{"type":"integer"}}}},{"name":"melt"},{"name":"load_skill",)"
      R"("inputSchema":{"type":"object"}}]})");
  agent->Say(Delta(*agent, digest, base));
  loop.RunReady();
  v1::GetListRequest request;
  request.mutable_target()->set_seat_id(kSeat);
  request.set_kind("tools");
  const auto list = plane->GetList(request);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->digest(), digest);
  EXPECT_EQ(list->list().find("\"look\""), std::string::npos);
  EXPECT_LT(list->list().find("\"bake\""), list->list().find("\"melt\""));
  EXPECT_LT(list->list().find("\"melt\""), list->list().find("\"load_skill\""));
}

TEST_F(FlowsTest, DeltaOfAListThatIsNotAtHandIsAskedForWhole) {
  auto agent = Link();
  GiveList(*agent, "d1");
  const v1::AgentItem delta = Delta(*agent, "d3", "of another list");
  loop.RunReady();
  ASSERT_TRUE(agent->Take(v1::ServerItem::kCatalogueWant));
  agent->Say(delta);
  loop.RunReady();
  const auto again = agent->Take(v1::ServerItem::kCatalogueWant);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->catalogue_want().digest(), "d3");
}

TEST_F(FlowsTest, ListThatIsNotWhatItsDigestSaysIsRefusedAndWantedOnceMore) {
  auto agent = Link();
  const std::string text = R"({"tools":[{"name":"bake"}]})";
  const std::string digest = core::Sha256Hex(text);
  agent->TellState(1, digest);
  v1::AgentItem list;
  list.mutable_catalogue()->set_seat_id(kSeat);
  list.mutable_catalogue()->set_digest(digest);
  list.mutable_catalogue()->mutable_body()->set_inline_(R"({"tools":[{"name":"forged"}]})");
  agent->Say(list);
  loop.RunReady();
  EXPECT_EQ(agent->TakeAll(v1::ServerItem::kCatalogueWant).size(), 2u);
  v1::GetListRequest request;
  request.mutable_target()->set_seat_id(kSeat);
  request.set_kind("tools");
  EXPECT_EQ(plane->GetList(request).status().message().find("forged"), std::string::npos);
  EXPECT_EQ(plane->ListInstances({}).instances(0).tools(), 0u);

  agent->Say(list);
  loop.RunReady();
  EXPECT_FALSE(agent->Take(v1::ServerItem::kCatalogueWant)) << "a second time it is left alone";
  agent->TellState(1, digest);
  loop.RunReady();
  EXPECT_FALSE(agent->Take(v1::ServerItem::kCatalogueWant));

  // The right one is taken all the same.
  list.mutable_catalogue()->mutable_body()->set_inline_(text);
  agent->Say(list);
  loop.RunReady();
  EXPECT_EQ(plane->GetList(request)->list(), R"([{"name":"bake"}])");
}

TEST_F(FlowsTest, LargeListThatIsNotWhatItsDigestSaysIsRefused) {
  auto agent = Link();
  const std::string text =
      R"({"tools":[{"name":"bake","description":")" + std::string(300 << 10, 'x') + R"("}]})";
  agent->TellState(1, core::Sha256Hex(text));
  loop.RunReady();
  auto tell = [&](char fill) {
    std::string sent = text;
    sent[100] = fill;
    v1::AgentItem head;
    head.mutable_catalogue()->set_seat_id(kSeat);
    head.mutable_catalogue()->set_digest(core::Sha256Hex(text));
    head.mutable_catalogue()->mutable_body()->set_size(sent.size());
    agent->Say(std::move(head));
    for (size_t at = 0; at < sent.size(); at += 64 << 10) {
      v1::AgentItem piece;
      piece.mutable_chunk()->set_call_id(kSeat);
      piece.mutable_chunk()->set_offset(at);
      piece.mutable_chunk()->set_bytes(sent.substr(at, 64 << 10));
      agent->Say(std::move(piece));
    }
    loop.RunReady();
    return plane->ListInstances({}).instances(0).tools();
  };
  EXPECT_EQ(tell('y'), 0u);
  EXPECT_EQ(agent->TakeAll(v1::ServerItem::kCatalogueWant).size(), 2u);
  EXPECT_EQ(tell('x'), 1u);
}

TEST_F(FlowsTest, LoadSkillWaitsForTheListThatShowsItsTools) {
  auto agent = Link();
  GiveList(*agent, "d1", kStub);
  v1::LoadSkillRequest request;
  request.set_skill("rigging");
  std::optional<absl::StatusOr<v1::LoadSkillResponse>> reply;
  plane->LoadSkill(request, [&](absl::StatusOr<v1::LoadSkillResponse> r) { reply = std::move(r); });
  loop.RunReady();
  const v1::Dispatch call = agent->TakeDispatch();
  EXPECT_EQ(call.params().inline_(),
            R"({"name":"load_skill","arguments":{"skill_name":"rigging"}})");
  agent->Result(call, 1, R"({"content":[]})");
  loop.RunFor(absl::Seconds(1));
  EXPECT_FALSE(reply);
  GiveList(*agent, "d2", R"(,{"name":"bind_skin","inputSchema":{"type":"object"}})");
  loop.RunReady();
  ASSERT_TRUE(reply);
  ASSERT_TRUE(reply->ok()) << reply->status();
  EXPECT_EQ((*reply)->backend_result(), R"({"content":[]})");
  ASSERT_EQ((*reply)->new_tools_size(), 1);
  EXPECT_EQ((*reply)->new_tools(0).tool(), "bind_skin");
}

TEST_F(FlowsTest, LoadSkillEndsWithoutANewListAfterItsBound) {
  auto agent = Link();
  GiveList(*agent, "d1", kStub);
  v1::LoadSkillRequest request;
  request.set_skill("rigging");
  std::optional<absl::StatusOr<v1::LoadSkillResponse>> reply;
  plane->LoadSkill(request, [&](absl::StatusOr<v1::LoadSkillResponse> r) { reply = std::move(r); });
  loop.RunReady();
  agent->Result(agent->TakeDispatch(), 1);
  loop.RunFor(absl::Seconds(5));
  ASSERT_TRUE(reply);
  EXPECT_EQ((*reply)->new_tools_size(), 0);
}

TEST_F(FlowsTest, ASkillThatItsSeatRefusesToLoadIsNoFaultOfTheControlPlane) {
  auto agent = Link();
  const std::string digest = GiveList(*agent, "d1", kStub);
  v1::LoadSkillRequest request;
  request.set_skill("rigging");
  request.set_session_id(OpenSession());
  auto first = Invoke(Call(request.session_id()));
  agent->Result(agent->TakeDispatch(), 1);
  agent->TellState(2, digest);
  loop.RunReady();
  std::optional<absl::Status> refused;
  plane->LoadSkill(request, [&](const absl::StatusOr<v1::LoadSkillResponse>& reply) {
    refused = reply.status();
  });
  loop.RunReady();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), absl::StatusCode::kFailedPrecondition) << *refused;
  EXPECT_THAT(refused->message(), testing::HasSubstr("has been restarted"));
}

TEST_F(FlowsTest, DestroyingThePlaneWhileASkillIsLoadingIsSilent) {
  auto agent = Link();
  GiveList(*agent, "d1", kStub);
  v1::LoadSkillRequest request;
  request.set_skill("rigging");
  bool replied = false;
  plane->LoadSkill(request, [&](const absl::StatusOr<v1::LoadSkillResponse>&) { replied = true; });
  loop.RunReady();
  agent->Started(agent->TakeDispatch());
  loop.RunReady();
  plane.reset();
  loop.RunReady();
  EXPECT_FALSE(replied);
}

TEST_F(FlowsTest, AWatcherSeesTheSeatsAndTheirChanges) {
  auto agent = Link();
  Puller<v1::InstanceEvent> watch(plane->WatchInstances({}));
  ASSERT_EQ(watch.events.size(), 1u);
  EXPECT_EQ(watch.events[0].instance().status(), "starting") << "as the list of seats says";
  GiveList(*agent, "first");
  EXPECT_EQ(watch.events.back().instance().status(), "available");
  EXPECT_EQ(watch.events.back().instance().tools(), 3u);
  const size_t before = watch.events.size();
  agent->Cut();
  loop.RunReady();
  ASSERT_EQ(watch.events.size(), before + 1);
  EXPECT_EQ(watch.events.back().instance().status(), "reconnecting");
}

}  // namespace
}  // namespace callboard::server
