// What people see of seats: names, rows, and how a target finds one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/runtime/strings.h"
#include "server/domain/seat_registry.h"

namespace callboard::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Change = SeatRegistry::Change;

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);
constexpr char kFirst[] = "1f2e3d4c000000000000000000000001";
constexpr char kSecond[] = "1f2e3d4c000000000000000000000002";
constexpr char kThird[] = "aabbccdd000000000000000000000003";

v1::SeatState Seat(const std::string& id, const std::string& name, uint64_t incarnation = 1) {
  v1::SeatState state;
  state.set_seat_id(id);
  state.set_name(name);
  state.set_app("maya");
  state.set_incarnation(incarnation);
  return state;
}

class SeatRegistryTest : public ::testing::Test {
 protected:
  Change Put(const v1::SeatState& state, const std::string& agent = "agent1",
             absl::Duration at = absl::ZeroDuration(),
             const std::map<std::string, std::string>& labels = {}) {
    return *seats_.Update(state, agent, "ws1", labels, kStart + at);
  }
  std::string Resolved(const std::string& instance) {
    v1::Target target;
    target.set_instance(instance);
    auto seat = seats_.Resolve(target);
    return seat.ok() ? (*seat)->state.seat_id() : std::string(core::Message(seat.status()));
  }
  std::vector<std::string> Names(const v1::ListInstancesRequest& request = {}) {
    std::vector<std::string> names;
    for (const auto& row : seats_.Rows(request, kStart)) {
      names.push_back(row.name() + ":" + row.status() + ":" + row.advice());
    }
    return names;
  }
  SeatRegistry seats_{SeatRegistryLimits{}};
};

TEST_F(SeatRegistryTest, TellsWhatAnUpdateChanged) {
  EXPECT_EQ(Put(Seat(kFirst, "alice")), Change::kAdded);
  EXPECT_EQ(Put(Seat(kFirst, "alice")), Change::kNone);
  v1::SeatState scene = Seat(kFirst, "alice");
  scene.set_scene("/show/shot.ma");
  EXPECT_EQ(Put(scene), Change::kUpdated);
  EXPECT_EQ(Put(Seat(kFirst, "alice", 3)), Change::kNewIncarnation);
  EXPECT_EQ(Put(Seat(kFirst, "old", 2)), Change::kNone);
  EXPECT_EQ(seats_.Find(kFirst)->state.name(), "alice");
  seats_.Detach("agent1", kStart);
  EXPECT_EQ(Put(Seat(kFirst, "alice", 3)), Change::kBackOnline);
}

TEST_F(SeatRegistryTest, RefusesSeatsBeyondTheLimit) {
  seats_ = SeatRegistry(SeatRegistryLimits{.seats_max = 1});
  Put(Seat(kFirst, "alice"));
  auto refused = seats_.Update(Seat(kSecond, "bob"), "agent1", "ws1", {}, kStart);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(core::Message(refused.status()), HasSubstr("seat 'bob' of agent agent1 is refused"));
  EXPECT_TRUE(absl::IsInvalidArgument(seats_.Update({}, "agent1", "", {}, kStart).status()));
}

TEST_F(SeatRegistryTest, ShowsTheLaterSeatOfOneNameWithItsId) {
  Put(Seat(kFirst, "maya"), "agent1");
  Put(Seat(kThird, "maya"), "agent2");
  EXPECT_THAT(Names(), ElementsAre("maya:available:route", "maya-aabbccdd:available:route"));
  EXPECT_EQ(Resolved("maya-aabbccdd"), kThird);
  EXPECT_EQ(Resolved("maya"), kFirst);
  seats_.Remove(kFirst);
  EXPECT_THAT(Names(), ElementsAre("maya-aabbccdd:available:route"));
}

TEST_F(SeatRegistryTest, ResolvesNameIdInstanceIdAndPrefix) {
  v1::SeatState state = Seat(kThird, "alice");
  state.set_instance_id("BA59AC7E-1111-2222-3333-444455556666");
  Put(state);
  Put(Seat(kFirst, "bob"));
  EXPECT_EQ(Resolved("alice"), kThird);
  EXPECT_EQ(Resolved(kThird), kThird);
  EXPECT_EQ(Resolved("ba59ac7e-1111-2222-3333-444455556666"), kThird);
  EXPECT_EQ(Resolved("ba59ac7e111122223333444455556666"), kThird);
  EXPECT_EQ(Resolved("ba59ac7e"), kThird);
  EXPECT_EQ(Resolved("AABBCCDD"), kThird);
  EXPECT_THAT(Resolved("aabbcc"), HasSubstr("needs 8 characters"));
  EXPECT_EQ(Resolved("carol"), "no instance for 'carol'; there are: alice, bob");
}

TEST_F(SeatRegistryTest, ForgetsTheInstanceIdOfAFormerProcess) {
  v1::SeatState state = Seat(kThird, "alice");
  state.set_instance_id("ba59ac7e-1111-2222-3333-444455556666");
  Put(state);
  state.set_incarnation(2);
  state.set_instance_id("cc59ac7e-1111-2222-3333-444455556666");
  Put(state);
  EXPECT_THAT(Resolved("ba59ac7e"), HasSubstr("no instance for 'ba59ac7e'"));
  EXPECT_EQ(Resolved("cc59ac7e"), kThird);
}

TEST_F(SeatRegistryTest, NamesTheCandidatesOfAnAmbiguousPrefix) {
  Put(Seat(kFirst, "alice"));
  Put(Seat(kSecond, "bob"));
  EXPECT_EQ(Resolved("1f2e3d4c"),
            "'1f2e3d4c' is ambiguous: alice (1f2e3d4c000000000000000000000001), bob "
            "(1f2e3d4c000000000000000000000002); give more characters or the name");
  EXPECT_EQ(seats_.SlugPrefix(*seats_.Find(kFirst)), std::string("maya.") + kFirst);
  Put(Seat(kThird, "carol"));
  EXPECT_EQ(seats_.SlugPrefix(*seats_.Find(kThird)), "maya.aabbccdd");
}

TEST_F(SeatRegistryTest, SaysWhenADeadSeatWasLastSeen) {
  Put(Seat(kFirst, "alice"));
  v1::SeatState gone = Seat(kFirst, "alice");
  gone.mutable_health()->set_process(v1::GONE);
  EXPECT_EQ(Put(gone, "agent1", absl::Seconds(10)), Change::kUpdated);
  EXPECT_EQ(Put(gone, "agent1", absl::Seconds(11)), Change::kNone);
  seats_.Seen("agent1", kStart + absl::Seconds(52));
  EXPECT_THAT(Resolved("alice"), HasSubstr("'alice' was last seen 42 s ago, state dead"));
  EXPECT_EQ(Put(Seat(kFirst, "alice", 2), "agent1", absl::Seconds(60)), Change::kNewIncarnation);
  EXPECT_EQ(Resolved("alice"), kFirst);
}

TEST_F(SeatRegistryTest, LabelsChooseTheLowestLinkedSeat) {
  v1::SeatState state = Seat(kSecond, "bob");
  (*state.mutable_labels())["shot"] = "sh020";
  Put(state, "agent1", {}, {{"show", "dune"}, {"shot", "sh010"}});
  state = Seat(kThird, "carol");
  Put(state, "agent2", {}, {{"show", "dune"}, {"shot", "sh020"}});
  v1::Target target;
  (*target.mutable_labels())["show"] = "dune";
  (*target.mutable_labels())["shot"] = "sh020";
  EXPECT_EQ((*seats_.Resolve(target))->display_name, "bob");
  seats_.Detach("agent1", kStart);
  EXPECT_EQ((*seats_.Resolve(target))->display_name, "carol");
  (*target.mutable_labels())["shot"] = "sh030";
  EXPECT_THAT(core::Message(seats_.Resolve(target).status()),
              HasSubstr("no instance for labels shot=sh030, show=dune"));
  EXPECT_TRUE(absl::IsInvalidArgument(seats_.Resolve({}).status()));
}

TEST_F(SeatRegistryTest, AgesDetachedSeatsUntilTheyAreForgotten) {
  Put(Seat(kFirst, "alice"));
  v1::ListInstancesRequest all;
  all.set_include_stale(true);
  all.set_include_dead(true);
  seats_.Detach("agent1", kStart);
  EXPECT_THAT(Names(), ElementsAre("alice:reconnecting:wait"));
  EXPECT_THAT(seats_.Sweep(kStart + absl::Seconds(30)), ElementsAre());
  EXPECT_THAT(seats_.Sweep(kStart + absl::Seconds(31)), ElementsAre(kFirst));
  EXPECT_THAT(Names(), ElementsAre());
  EXPECT_THAT(Names(all), ElementsAre("alice:stale:reconnect"));
  EXPECT_THAT(seats_.Sweep(kStart + absl::Minutes(6)), ElementsAre(kFirst));
  EXPECT_THAT(Names(all), ElementsAre("alice:dead:restart"));
  EXPECT_THAT(seats_.Sweep(kStart + absl::Hours(25)), ElementsAre(kFirst)) << "it is forgotten";
  EXPECT_EQ(seats_.size(), 0u);
  EXPECT_EQ(Resolved("alice"),
            "no instance for 'alice': none is connected; start a DCC with its agent");
}

TEST_F(SeatRegistryTest, ASeatStartsUntilItsProcessServes) {
  v1::SeatState seat = Seat(kFirst, "alice");
  seat.mutable_health()->set_endpoint(v1::HEALTHY);
  seat.mutable_health()->set_main_thread(v1::NOT_KNOWN);
  Put(seat);
  EXPECT_THAT(Names(), ElementsAre("alice:starting:wait"));
  seat.mutable_health()->set_main_thread(v1::HEALTHY);
  Put(seat);
  EXPECT_THAT(Names(), ElementsAre("alice:available:route"));
  seat.mutable_health()->set_endpoint(v1::GONE);
  seat.mutable_health()->set_main_thread(v1::NOT_KNOWN);
  Put(seat);
  EXPECT_THAT(Names(), ElementsAre("alice:unresponsive:wait"));
}

TEST_F(SeatRegistryTest, RowsTellHealthAndAreFiltered) {
  v1::SeatState busy = Seat(kFirst, "alice");
  busy.mutable_health()->set_main_thread(v1::BUSY);
  busy.set_scene("/show/Dragon.ma");
  Put(busy);
  v1::SeatState hung = Seat(kSecond, "bob");
  hung.mutable_health()->set_main_thread(v1::UNRESPONSIVE);
  hung.set_app("blender");
  Put(hung);
  EXPECT_THAT(Names(), ElementsAre("alice:busy:wait", "bob:unresponsive:wait"));
  v1::ListInstancesRequest request;
  request.set_query("dragon MAYA");
  EXPECT_THAT(Names(request), ElementsAre("alice:busy:wait"));
  request.Clear();
  request.set_app("Blender");
  EXPECT_THAT(Names(request), ElementsAre("bob:unresponsive:wait"));
  request.Clear();
  request.mutable_target()->set_instance("alice");
  EXPECT_THAT(Names(request), ElementsAre("alice:busy:wait"));
  EXPECT_EQ(seats_.Row(*seats_.Find(kFirst), kStart + absl::Seconds(3)).last_seen_ms(), 3000u);
}

}  // namespace
}  // namespace callboard::server
