// Tests of member lookup and of strings: FindMember and its kin, DecodeString, QuoteJson.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(FindMember, GivesTheRawTextOfTheFirstMember) {
  const std::string text = " { \"a\" : [1, 2] , \"b\":\"x\\\"}\" ,\"a\":3, \"c\" : -1.50e2 } ";
  EXPECT_EQ(FindMember(text, "a"), "[1, 2]");
  EXPECT_EQ(FindMember(text, "b"), "\"x\\\"}\"");
  EXPECT_EQ(FindMember(text, "c"), "-1.50e2");
  EXPECT_EQ(FindMember(text, "d"), std::nullopt);
}

TEST(FindMember, FindsNothingInWhatIsNoObject) {
  for (std::string_view text :
       {"", "[]", "\"a\"", "null", "{", "{\"a\"", "{\"b\":1", "{\"b\":[}"}) {
    EXPECT_EQ(FindMember(text, "a"), std::nullopt) << text;
  }
}

TEST(FindMember, ComparesDecodedKeys) {
  EXPECT_EQ(FindMember(R"({"\u006dethod":1})", "method"), "1");
  EXPECT_EQ(FindMember(R"({"a\/b":1})", "a/b"), "1");
  EXPECT_EQ(FindMember(R"({"\n":1})", "\\n"), std::nullopt);
  EXPECT_EQ(FindMember(R"({"\\n":1})", "\\n"), "1");
  EXPECT_EQ(FindMember(R"({"\ud83c\udfa8":1})", "\xf0\x9f\x8e\xa8"), "1");
}

TEST(FindMember, IsNotFooledByBracketsAndQuotesInStrings) {
  EXPECT_EQ(FindMember(R"({"s":{"x":"}]{\"a\":1,\\"},"a":2})", "a"), "2");
}

TEST(FindMember, RefusesDeepNestingInSkippedValues) {
  const auto text = [](size_t depth) {
    return "{\"deep\":" + std::string(depth, '[') + std::string(depth, ']') + ",\"a\":1}";
  };
  EXPECT_EQ(FindMember(text(kJsonDepthMax - 1), "a"), "1");
  EXPECT_EQ(FindMember(text(kJsonDepthMax), "a"), std::nullopt);
  const auto status = ForEachMember(text(kJsonDepthMax), [](JsonMember) { return true; });
  EXPECT_THAT(std::string(Message(status)), HasSubstr("nested too deeply"));
}

TEST(FindMember, RefusesWrongBracketsInSkippedValues) {
  EXPECT_EQ(FindMember(R"({"x":[{]},"a":1})", "a"), std::nullopt);
  EXPECT_EQ(FindMember(R"({"x":tru,"a":1})", "a"), std::nullopt);
}

TEST(FindPath, Descends) {
  const std::string text = R"({"params":{"_meta":{"progressToken":"p1"}},"x":1})";
  EXPECT_EQ(FindPath(text, {"params", "_meta", "progressToken"}), "\"p1\"");
  EXPECT_EQ(FindPath(text, {"params", "meta", "progressToken"}), std::nullopt);
  EXPECT_EQ(FindPath(text, {"x", "y"}), std::nullopt);
}

TEST(FindInteger, TakesOnlyIntegersInRange) {
  const std::string text =
      R"({"a":42,"b":-9223372036854775808,"c":9223372036854775808,"d":1.0,"e":1e3,"f":"7","g":-0})";
  EXPECT_EQ(FindInteger(text, "a"), 42);
  EXPECT_EQ(FindInteger(text, "b"), INT64_MIN);
  EXPECT_EQ(FindInteger(text, "c"), std::nullopt);
  EXPECT_EQ(FindInteger(text, "d"), std::nullopt);
  EXPECT_EQ(FindInteger(text, "e"), std::nullopt);
  EXPECT_EQ(FindInteger(text, "f"), std::nullopt);
  EXPECT_EQ(FindInteger(text, "g"), 0);
  EXPECT_EQ(FindInteger(text, "h"), std::nullopt);
}

TEST(FindBool, TakesOnlyTrueAndFalse) {
  const std::string text = R"({"a":true,"b":false,"c":0,"d":"true"})";
  EXPECT_EQ(FindBool(text, "a"), true);
  EXPECT_EQ(FindBool(text, "b"), false);
  EXPECT_EQ(FindBool(text, "c"), std::nullopt);
  EXPECT_EQ(FindBool(text, "d"), std::nullopt);
}

TEST(FindString, Decodes) {
  EXPECT_EQ(FindString(R"({"a":"x\ty"})", "a"), "x\ty");
  EXPECT_EQ(FindString(R"({"a":1})", "a"), std::nullopt);
}

TEST(ForEachMember, VisitsInOrderAndStopsWhenTold) {
  std::vector<std::pair<std::string, std::string>> seen;
  const auto collect = [&](JsonMember member) {
    seen.emplace_back(member.key, member.value);
    return seen.size() < 2;
  };
  EXPECT_TRUE(ForEachMember(R"({"b":1,"\u0061":[2],"c":broken)", collect).ok());
  EXPECT_THAT(seen, ElementsAre(Pair("b", "1"), Pair("\\u0061", "[2]")));
}

TEST(ForEachMember, ReportsTextAfterTheObject) {
  const auto status = ForEachMember("{} x", [](JsonMember) { return true; });
  EXPECT_EQ(Message(status), "invalid JSON at byte 3: text after the value");
}

TEST(ForEachMember, LooksIntoValuesOnlyWhenAskedTo) {
  const auto all = [](JsonMember) { return true; };
  for (std::string_view text :
       {R"({"a":[1,,2]})", R"({"a":{"b" 1}})", R"({"a":[01]})", "{\"a\":[\"\xff\"]}"}) {
    EXPECT_TRUE(ForEachMember(text, all).ok()) << text;
    EXPECT_EQ(ForEachMember(text, all, JsonCheck::kFull).code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(ForEachElement, VisitsRawElements) {
  std::vector<std::string> seen;
  const auto collect = [&](std::string_view raw) {
    seen.emplace_back(raw);
    return true;
  };
  EXPECT_TRUE(ForEachElement(R"( [1 , "a,]", {"x":[2]} , []] )", collect).ok());
  EXPECT_THAT(seen, ElementsAre("1", "\"a,]\"", "{\"x\":[2]}", "[]"));
  seen.clear();
  EXPECT_TRUE(ForEachElement("[ ]", collect).ok());
  EXPECT_TRUE(seen.empty());
  for (std::string_view text : {"", "{}", "[", "[1", "[1,", "[1,]", "[1 2]", "[] 1"}) {
    EXPECT_FALSE(ForEachElement(text, collect).ok()) << text;
  }
}

TEST(RejectDuplicateKeys, NamesTheKey) {
  EXPECT_TRUE(RejectDuplicateKeys(R"({"a":{"x":1,"x":2},"b":1})").ok());
  EXPECT_EQ(Message(RejectDuplicateKeys(R"({"name":1,"n\u0061me":2})")),
            "the key \"name\" occurs twice in one object; send it once");
  EXPECT_FALSE(RejectDuplicateKeys(R"({"\u0061":1,"b":2,"a":2})").ok());
  EXPECT_EQ(RejectDuplicateKeys("[]").code(), absl::StatusCode::kInvalidArgument);
}

TEST(DecodeString, DecodesEveryEscape) {
  EXPECT_EQ(DecodeString(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(DecodeString(R"("\u0041\u00e9\u20AC\ud83c\udfa8")"),
            "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xa8");
  EXPECT_EQ(DecodeString(R"("a\u0000b")"), std::string("a\0b", 3));
  EXPECT_EQ(DecodeString("\"\""), "");
}

TEST(DecodeString, ReplacesHalfSurrogatePairs) {
  EXPECT_EQ(DecodeString(R"("\ud800")"), "\xef\xbf\xbd");
  EXPECT_EQ(DecodeString(R"("\udc00x")"), "\xef\xbf\xbdx");
  EXPECT_EQ(DecodeString(R"("\ud800\u0041")"),
            "\xef\xbf\xbd"
            "A");
  EXPECT_EQ(DecodeString(R"("\ud800\ud83c\udfa8")"), "\xef\xbf\xbd\xf0\x9f\x8e\xa8");
  EXPECT_EQ(DecodeString(R"("\ud800\n")"), "\xef\xbf\xbd\n");
}

TEST(DecodeString, RefusesWhatIsNoString) {
  for (std::string_view raw :
       {"", "a", "1", "\"", "\"a", "\"a\"b", "\"a\" ", "\"\\\"", "\"\xff\""}) {
    EXPECT_EQ(DecodeString(raw), std::nullopt) << raw;
  }
}

TEST(QuoteJson, EscapesAndRoundTrips) {
  EXPECT_EQ(QuoteJson("a\"b\\c\n\x01\x7f/"), "\"a\\\"b\\\\c\\n\\u0001\x7f/\"");
  std::string all;
  for (int c = 0; c < 128; ++c) all.push_back(static_cast<char>(c));
  all += "\xc3\xa9\xf0\x9f\x8e\xa8";
  EXPECT_TRUE(ValidateJson(QuoteJson(all)).ok());
  EXPECT_EQ(DecodeString(QuoteJson(all)), all);
}

TEST(QuoteJson, ReplacesInvalidUtf8) {
  EXPECT_EQ(QuoteJson("a\xff\xc3\xa9\xc3"), "\"a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace callboard::core
