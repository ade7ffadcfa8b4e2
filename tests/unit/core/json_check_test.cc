// Tests of ValidateJson: what the grammar admits, what it refuses and how the fault is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

using testing::HasSubstr;

std::string Fault(std::string_view text) { return std::string(Message(ValidateJson(text))); }

std::string Nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(ValidateJson, AcceptsEveryKindOfValue) {
  for (std::string_view text : {"{}", "[]", "null", "true", "false", "0", "-0", "1.5e-3", "1E+2",
                                "\"\"", " [ 1 , 2 ] ", "{\"a\":{\"b\":[1,{\"c\":null}]}}",
                                "\t\r\n {\"\":0}\n", "\"\xf0\x9f\x8e\xa8\"", "\"\x7f\""}) {
    EXPECT_TRUE(ValidateJson(text).ok()) << text << ": " << Fault(text);
  }
}

TEST(ValidateJson, TakesNumbersAsTextOfAnySize) {
  EXPECT_TRUE(ValidateJson("1e400").ok());
  EXPECT_TRUE(ValidateJson("123456789012345678901234567890").ok());
  EXPECT_TRUE(ValidateJson("-0.000000000000000000000000000000000000001e-99999").ok());
}

TEST(ValidateJson, RefusesMalformedText) {
  for (std::string_view text : {"",
                                " ",
                                "{",
                                "[",
                                "}",
                                "]",
                                "[1,]",
                                "[,1]",
                                "[1 2]",
                                "{\"a\"}",
                                "{\"a\":}",
                                "{\"a\":1,}",
                                "{a:1}",
                                "{'a':1}",
                                "{1:1}",
                                "{\"a\":1 \"b\":2}",
                                "{\"a\" 1}",
                                "[1}",
                                "{\"a\":1]",
                                "[[1]",
                                "tru",
                                "truex",
                                "nul",
                                "True",
                                "NaN",
                                "Infinity",
                                "+1",
                                "01",
                                "-",
                                "-a",
                                "1.",
                                ".5",
                                "1.e2",
                                "1e",
                                "1e+",
                                "0x10",
                                "1 2",
                                "{} {}",
                                "[1]]",
                                "\"abc",
                                "\"",
                                "\"\\",
                                "\"\\x\"",
                                "\"\\u12\"",
                                "\"\\u12g4\"",
                                "\"\\u",
                                "\"a\nb\"",
                                "\"tab\there\"",
                                "// c\n1",
                                "[1,/**/2]",
                                "\xef\xbb\xbf{}"}) {
    const absl::Status status = ValidateJson(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("invalid JSON at byte ")) << text;
  }
}

TEST(ValidateJson, NamesTheOffsetAndTheFault) {
  EXPECT_EQ(Fault("{\"a\":1,}"), "invalid JSON at byte 7: expected a key in quotes");
  EXPECT_EQ(Fault("[1 2]"), "invalid JSON at byte 3: expected ',' or ']'");
  EXPECT_EQ(Fault("{\"a\":\"xyz"), "invalid JSON at byte 5: string without closing quote");
  EXPECT_EQ(Fault("{\"a\":1"), "invalid JSON at byte 6: the text ends inside an object or array");
  EXPECT_EQ(Fault("[1] x"), "invalid JSON at byte 4: text after the value");
  EXPECT_EQ(Fault("\"ab\xff\""), "invalid JSON at byte 3: 0xff is not valid UTF-8 here");
}

TEST(ValidateJson, RefusesEveryPrefixOfAMessage) {
  const std::string text =
      R"({"jsonrpc":"2.0","id":17,"params":{"a":[1.5e3,true,null,"\u00e9\n"]}})";
  ASSERT_TRUE(ValidateJson(text).ok());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ValidateJson(text.substr(0, size)).ok()) << size;
  }
}

TEST(ValidateJson, FindsAControlCharacterAtEveryPositionOfAString) {
  for (size_t length : {1, 7, 15, 16, 17, 31, 32, 33, 64}) {
    for (size_t at = 0; at < length; ++at) {
      std::string inner(length, 'x');
      EXPECT_TRUE(ValidateJson('"' + inner + '"').ok());
      inner[at] = '\x1f';
      EXPECT_FALSE(ValidateJson('"' + inner + '"').ok()) << length << " " << at;
      inner[at] = '\0';
      EXPECT_FALSE(ValidateJson('"' + inner + '"').ok()) << length << " " << at;
      inner[at] = '"';
      EXPECT_FALSE(ValidateJson('"' + inner + '"').ok()) << length << " " << at;
      inner[at] = ' ';
      EXPECT_TRUE(ValidateJson('"' + inner + '"').ok()) << length << " " << at;
    }
  }
}

TEST(ValidateJson, RefusesInvalidUtf8) {
  for (std::string_view bytes : {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xff",
                                 "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(ValidateJson('"' + std::string(bytes) + '"').ok());
  }
}

TEST(ValidateJson, AcceptsHalfASurrogatePairAsEscape) {
  EXPECT_TRUE(ValidateJson(R"("\ud800")").ok());
  EXPECT_TRUE(ValidateJson(R"("\udc00\ud800")").ok());
}

TEST(ValidateJson, BoundsDepthWithoutUsingTheStack) {
  EXPECT_TRUE(ValidateJson(Nested(kJsonDepthMax)).ok());
  EXPECT_EQ(Fault(Nested(kJsonDepthMax + 1)), "invalid JSON at byte 128: nested too deeply");
  EXPECT_TRUE(ValidateJson(Nested(3), 3).ok());
  EXPECT_FALSE(ValidateJson(Nested(4), 3).ok());
  EXPECT_TRUE(ValidateJson("1", 0).ok());
  EXPECT_FALSE(ValidateJson("[]", 0).ok());
  EXPECT_TRUE(ValidateJson(Nested(1024), 1 << 20).ok());
  EXPECT_FALSE(ValidateJson(Nested(1025), 1 << 20).ok());
  EXPECT_FALSE(ValidateJson(std::string(1 << 20, '[')).ok());
}

TEST(ValidateJson, RemembersTheKindOfEveryOpenContainer) {
  std::string open;
  std::string close;
  for (int i = 0; i < kJsonDepthMax; ++i) {
    open += i % 3 == 0 ? "[" : "{\"k\":";
    close.insert(0, i % 3 == 0 ? "]" : "}");
  }
  EXPECT_TRUE(ValidateJson(open + "1" + close).ok());
  for (size_t i = 0; i < close.size(); ++i) {
    std::string wrong = close;
    wrong[i] = wrong[i] == ']' ? '}' : ']';
    EXPECT_FALSE(ValidateJson(open + "1" + wrong).ok()) << i;
  }
}

}  // namespace
}  // namespace callboard::core
