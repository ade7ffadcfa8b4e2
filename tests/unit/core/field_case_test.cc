// Field cases about text: SSE lines (FC-20), number text (FC-31) and members that nobody knows
// (FC-21).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/mcp/line_separators.h"
#include "core/mcp/sse_codec.h"

namespace callboard::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Events that carry data.
std::vector<std::string> Data(const std::vector<std::string>& chunks) {
  SseDecoder decoder(1 << 20);
  std::vector<std::string> data;
  for (const std::string& chunk : chunks) {
    EXPECT_TRUE(decoder
                    .Feed(chunk,
                          [&](SseEvent event) {
                            if (!event.data.empty()) data.push_back(event.data);
                          })
                    .ok());
  }
  return data;
}

TEST(FieldCaseFc20, OnlyCrLfAndCrLfEndLinesWhereverTheyAreCut) {
  EXPECT_THAT(Data({"data:{\"a\":1}\n\n"}), ElementsAre("{\"a\":1}"));
  EXPECT_THAT(Data({"data: {\"a\":1}\r", "\n\r", "\ndata: {\"b\":2}\r\n\r\n"}),
              ElementsAre("{\"a\":1}", "{\"b\":2}"));
  EXPECT_THAT(Data({"data: 1\r\rdata: 2\r\r"}), ElementsAre("1", "2"));
  EXPECT_THAT(Data({"data: {\"a\":\ndata: 1}\n\n"}), ElementsAre("{\"a\":\n1}"));
  EXPECT_THAT(Data({": hb\nfoo: x\ndata: 1\n\n"}), ElementsAre("1"));
  EXPECT_THAT(Data({"id: 7\n\ndata: 1\n\n"}), ElementsAre("1"));
  EXPECT_THAT(Data({"retry: 2500\n\n"}), IsEmpty());
  EXPECT_THAT(Data({"data: 1\n\ndata: 2\n"}), ElementsAre("1"));
  EXPECT_THAT(Data({"data: \xe2", "\x80", "\xa8\xe2\x80\xa9\n\n"}),
              ElementsAre("\xe2\x80\xa8\xe2\x80\xa9"));
  EXPECT_THAT(Data({"data: a\xe2\x80\xa8"
                    "b\xc2\x85"
                    "c\n\n"}),
              ElementsAre("a\xe2\x80\xa8"
                          "b\xc2\x85"
                          "c"));
  EXPECT_THAT(Data({"\xef\xbb\xbf"
                    "data: 1\n\n"}),
              ElementsAre("1"));
}

constexpr std::string_view kResult =
    R"({"structuredContent":{"id":9007199254740993,"uid":1915883588174806058,)"
    R"("neg":-7108510333361982070,"max":18446744073709551615},)"
    R"("content":[{"type":"text","text":"{\"id\": 9007199254740993}"}]})";

TEST(FieldCaseFc20, LineSeparatorsOfUnicodeAreWrittenAsEscapesWhereverTheTextIsCut) {
  const std::string text =
      "{\"t\":\"a\xe2\x80\xa8"
      "b\xe2\x80\xa9"
      "c\xc2\x85"
      "d\\re\\nf "
      "\xe2\x80\x9cquoted\xe2\x80\x9d \xc2\xa7 \xf0\x9f\x8e\xac\"}";
  const std::string escaped =
      "{\"t\":\"a\\u2028b\\u2029c\\u0085d\\re\\nf "
      "\xe2\x80\x9cquoted\xe2\x80\x9d \xc2\xa7 \xf0\x9f\x8e\xac\"}";
  EXPECT_EQ(EscapeLineSeparators(text), escaped);
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      LineSeparatorEscaper escaper;
      std::string out = escaper.Next(text.substr(0, first));
      out += escaper.Next(text.substr(first, second - first));
      out += escaper.Next(text.substr(second));
      ASSERT_EQ(out + escaper.Rest(), escaped) << first << " " << second;
    }
  }
}

TEST(FieldCaseFc20, TextThatEndsInsideACharacterIsKept) {
  LineSeparatorEscaper escaper;
  EXPECT_EQ(escaper.Next("a\xe2\x80"), "a");
  EXPECT_EQ(escaper.Rest(), "\xe2\x80");
  EXPECT_EQ(escaper.Rest(), "");
}

TEST(FieldCaseFc31, NumbersKeepTheirText) {
  const std::string message = MakeResult("9007199254740993", kResult);
  const auto parsed = ParseJsonRpc(message, /*validate=*/true);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->id, "9007199254740993");
  EXPECT_EQ(parsed->result, kResult);
  EXPECT_EQ(SetPath(parsed->result, {"_meta", "seat"}, "\"maya-1\""),
            std::string(kResult.substr(0, kResult.size() - 1)) + R"(,"_meta":{"seat":"maya-1"}})");
}

TEST(FieldCaseFc21, UnknownMembersKeepTheirOrderAndText) {
  const std::string tool =
      R"({"z":1,"a":{"$ref":"#/$defs/n"},"m":[],"$defs":{"n":{"$ref":"#/$defs/n"}},"x-vendor":null})";
  EXPECT_EQ(SetMember(tool, "z", "2"), "{\"z\":2" + tool.substr(6));
  EXPECT_EQ(RemoveMember(SetMember(tool, "new", "1"), "new"), tool);
}

}  // namespace
}  // namespace callboard::core
