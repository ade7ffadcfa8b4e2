// Tests of edits of JSON text: all bytes that are not edited survive.
#include <gtest/gtest.h>

#include <string>

#include "core/mcp/json.h"

namespace callboard::core {
namespace {

TEST(SetMember, ReplacesTheValueWhereItStands) {
  EXPECT_EQ(SetMember(R"({ "a" : 1 , "b":2 })", "a", "[9]"), R"({ "a" : [9] , "b":2 })");
  EXPECT_EQ(SetMember(R"({"\u0061":1})", "a", "2"), R"({"\u0061":2})");
}

TEST(SetMember, AddsAMissingMemberAtTheEnd) {
  EXPECT_EQ(SetMember("{}", "a", "1"), R"({"a":1})");
  EXPECT_EQ(SetMember(" {\n} ", "a", "1"), " {\"a\":1\n} ");
  EXPECT_EQ(SetMember("{\"b\":2 }", "a", "1"), "{\"b\":2,\"a\":1 }");
  EXPECT_EQ(SetMember("{}", "q\"", "1"), R"({"q\"":1})");
}

TEST(SetMember, KeepsNumbersOrderAndSpacesOfTheRest) {
  const std::string text =
      "{\"big\":123456789012345678901234567890, \"z\":1.10e+400,\t\"id\":1,\n\"dup\":1,\"dup\":2}";
  EXPECT_EQ(SetMember(text, "id", "\"s:1\""),
            "{\"big\":123456789012345678901234567890, \"z\":1.10e+400,\t\"id\":\"s:1\",\n\"dup\":1,"
            "\"dup\":2}");
}

TEST(SetMember, LeavesOneMemberOfThatKey) {
  EXPECT_EQ(SetMember(R"({"a":1,"b":2, "a":3 ,"\u0061":4,"c":5,"a":6})", "a", "0"),
            R"({"a":0,"b":2,"c":5})");
}

TEST(SetMember, TakesWhatIsNoObjectAsAnEmptyOne) {
  for (std::string_view text : {"", "[]", "1", "null", "{\"b\":1", "{\"a\":1,", "{\"a\":1} x"}) {
    EXPECT_EQ(SetMember(text, "a", "0"), R"({"a":0})") << text;
  }
}

TEST(SetPath, CreatesObjectsOnTheWay) {
  EXPECT_EQ(SetPath("{}", {"params", "_meta", "progressToken"}, "7"),
            R"({"params":{"_meta":{"progressToken":7}}})");
  EXPECT_EQ(SetPath(R"({"params":{"x":1}})", {"params", "_meta", "t"}, "7"),
            R"({"params":{"x":1,"_meta":{"t":7}}})");
  EXPECT_EQ(SetPath(R"({"params":{"_meta":{"t": 1 },"x":2}})", {"params", "_meta", "t"}, "7"),
            R"({"params":{"_meta":{"t": 7 },"x":2}})");
}

TEST(SetPath, ReplacesNonObjectsOnTheWay) {
  EXPECT_EQ(SetPath(R"({"a":[1],"b":2})", {"a", "c"}, "7"), R"({"a":{"c":7},"b":2})");
  EXPECT_EQ(SetPath("null", {"a", "c"}, "7"), R"({"a":{"c":7}})");
}

TEST(RemoveMember, TakesTheCommaWithIt) {
  EXPECT_EQ(RemoveMember(R"({"a":1, "b":2 , "c":3})", "a"), R"({"b":2 , "c":3})");
  EXPECT_EQ(RemoveMember(R"({"a":1, "b":2 , "c":3})", "b"), R"({"a":1 , "c":3})");
  EXPECT_EQ(RemoveMember(R"({"a":1, "b":2 , "c":3 })", "c"), R"({"a":1, "b":2 })");
  EXPECT_EQ(RemoveMember(R"({ "a":1 })", "a"), "{  }");
}

TEST(RemoveMember, RemovesAllOccurrences) {
  EXPECT_EQ(RemoveMember(R"({"a":1,"\u0061":2,"b":3,"a":4,"a":5,"c":6,"a":7})", "a"),
            R"({"b":3,"c":6})");
  EXPECT_EQ(RemoveMember(R"({"a":1,"a":2})", "a"), "{}");
}

TEST(RemoveMember, LeavesOtherTextAlone) {
  for (std::string_view text : {"", "[]", "{ }", "{\"b\": 1 }", "{\"a\":1,"}) {
    EXPECT_EQ(RemoveMember(text, "a"), text);
  }
}

TEST(RemoveMember, LeavesValidJsonForEveryPatternOfMembers) {
  for (int pattern = 0; pattern < 64; ++pattern) {
    std::string text = "{";
    std::string expected = "{";
    for (int i = 0; i < 6; ++i) {
      const bool remove = (pattern >> i & 1) != 0;
      const std::string member = remove ? "\"a\":0" : "\"b\":" + std::to_string(i);
      text += (i > 0 ? "," : "") + member;
      if (!remove) expected += (expected.size() > 1 ? "," : "") + member;
    }
    EXPECT_EQ(RemoveMember(text + "}", "a"), expected + "}") << text;
  }
}

TEST(FlattenLines, ReplacesLineEndsAtEveryPosition) {
  for (size_t size = 0; size < 70; ++size) {
    std::string plain(size, 'x');
    std::string flat = plain;
    FlattenLines(flat.data(), flat.size());
    EXPECT_EQ(flat, plain);
    for (size_t at = 0; at < size; ++at) {
      std::string text = plain;
      text[at] = at % 2 == 0 ? '\n' : '\r';
      std::string expected = plain;
      expected[at] = ' ';
      FlattenLines(text.data(), text.size());
      EXPECT_EQ(text, expected);
    }
  }
}

TEST(JsonObject, WritesMembersInOrder) {
  JsonObject object;
  object.String("s", "a\"b").Int("i", -5).Bool("t", true).Bool("f", false).Raw("r", "[1]");
  EXPECT_EQ(object.Take(), R"({"s":"a\"b","i":-5,"t":true,"f":false,"r":[1]})");
  EXPECT_EQ(object.Take(), "{}");
}

}  // namespace
}  // namespace callboard::core
