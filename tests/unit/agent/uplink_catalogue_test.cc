// Tests of how tool lists reach the control plane: whole, and as what is new in them.
#include "core/mcp/tool_list_delta.h"
#include "tests/unit/agent/uplink_fixture.h"

namespace callboard::tests {
namespace {

class UplinkCatalogue : public AgentTest {
 protected:
  static std::string List(int tools) {
    std::string list = R"({"tools":[)";
    for (int i = 0; i < tools; ++i) {
      list += fmt::format(R"({}{{"name":"tool_{}","description":"{}"}})", i == 0 ? "" : ",", i,
                          std::string(200, 'd'));
    }
    return list + "]}";
  }
  v1::Catalogue Want(const std::string& digest, const std::string& list) {
    seat.state.set_catalogue_digest(digest);
    seat.catalogue = agent::Payload(list);
    plane.items.clear();
    v1::ServerItem item;
    item.mutable_catalogue_want()->set_digest(digest);
    plane.Send(std::move(item));
    loop.RunReady();
    const auto sent = Items(v1::AgentItem::kCatalogue);
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? v1::Catalogue() : sent[0].catalogue();
  }
};

TEST_F(UplinkCatalogue, SecondListIsWhatIsNewInIt) {
  StartLinked();
  EXPECT_EQ(Want("d1", List(100)).base_digest(), "");
  const v1::Catalogue delta = Want("d2", List(102));
  EXPECT_EQ(delta.base_digest(), "d1");
  ASSERT_EQ(delta.changes_size(), 2);
  EXPECT_EQ(delta.changes(0).name(), "tool_100");
  EXPECT_EQ(delta.changes(0).after(), "tool_99");
  EXPECT_LT(delta.body().inline_().size(), 1'000u);
  const auto made = core::ApplyToolListDelta(
      List(100), {{"tool_100", false, "tool_99"}, {"tool_101", false, "tool_100"}},
      delta.body().inline_());
  EXPECT_EQ(*made, List(102));
}

TEST_F(UplinkCatalogue, SameListWantedAgainIsWhole) {
  StartLinked();
  Want("d1", List(100));
  Want("d2", List(102));
  const v1::Catalogue again = Want("d2", List(102));
  EXPECT_EQ(again.base_digest(), "");
  EXPECT_EQ(again.body().inline_(), List(102));
}

TEST_F(UplinkCatalogue, NewLinkBeginsWithAWholeList) {
  StartLinked();
  Want("d1", List(100));
  CutAndRedial();
  SendWelcome();
  EXPECT_EQ(Want("d2", List(102)).base_digest(), "");
}

}  // namespace
}  // namespace callboard::tests
