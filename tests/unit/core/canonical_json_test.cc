// Tests of CanonicalJson.
#include "core/mcp/canonical_json.h"

#include <string>

#include "gtest/gtest.h"

namespace callboard::core {
namespace {

TEST(CanonicalJson, OrdersMembersAtEveryDepth) {
  EXPECT_EQ(CanonicalJson(R"( {"b": [ {"y":1, "x":2} ], "a": {"d":null,"c":true}} )"),
            R"({"a":{"c":true,"d":null},"b":[{"x":2,"y":1}]})");
  EXPECT_EQ(CanonicalJson("[ ]"), "[]");
  EXPECT_EQ(CanonicalJson("{ }"), "{}");
}

TEST(CanonicalJson, WritesStringsAndKeysInOneWay) {
  EXPECT_EQ(CanonicalJson(R"({"\u0061":"\u00e4\/"})"), CanonicalJson("{\"a\":\"ä/\"}"));
  EXPECT_NE(CanonicalJson(R"("a")"), CanonicalJson(R"("b")"));
}

TEST(CanonicalJson, KeepsTheTextOfNumbersAndTheOrderOfElements) {
  EXPECT_EQ(CanonicalJson("[1.0, 1, 1e0]"), "[1.0,1,1e0]");
  EXPECT_NE(CanonicalJson("[1,2]"), CanonicalJson("[2,1]"));
}

TEST(CanonicalJson, LeavesAloneWhatIsNoJson) {
  EXPECT_EQ(CanonicalJson(R"({"a":)"), R"({"a":)");
  EXPECT_EQ(CanonicalJson(""), "");
  const std::string deep(200, '[');
  EXPECT_EQ(CanonicalJson(deep), deep);
}

}  // namespace
}  // namespace callboard::core
