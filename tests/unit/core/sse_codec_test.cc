// Tests of the server-sent events codec.
#include "core/mcp/sse_codec.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

// Events as a reader would note them, e.g. "[message #7 retry=50] a|b".
std::string Show(const SseEvent& event) {
  std::string text = "[" + (event.event.empty() ? "message" : event.event);
  if (event.id) text += " #" + *event.id;
  if (event.retry_ms) text += " retry=" + std::to_string(*event.retry_ms);
  text += "] ";
  for (char c : event.data) text += c == '\n' ? '|' : c;
  return text;
}

std::vector<std::string> Decode(const std::vector<std::string_view>& pieces) {
  std::vector<std::string> events;
  SseDecoder decoder(1 << 20);
  for (std::string_view piece : pieces) {
    EXPECT_TRUE(decoder.Feed(piece, [&](SseEvent event) { events.push_back(Show(event)); }).ok());
  }
  return events;
}

using Events = std::vector<std::string>;

constexpr std::string_view kStream =
    "\xef\xbb\xbf: hello\n"
    "id: 1\nretry: 3000\ndata: \n\n"
    "event: message\r\nid:2\r\ndata: {\"a\":1}\r\n\r\n"
    "data: one\rdata:  two\rdata\r\r"
    ":ping\n\n"
    "unknown: x\nevent: lost\n\n"
    "data:\xc3\xa9\n\n"
    "data: unfinished\n";
const Events kExpected = {"[message #1 retry=3000] ", "[message #2] {\"a\":1}",
                          "[message] one| two|", "[message] \xc3\xa9"};

TEST(SseDecoder, DecodesAWholeStream) { EXPECT_EQ(Decode({kStream}), kExpected); }

TEST(SseDecoder, DoesNotMindWhereTheStreamIsCut) {
  for (size_t a = 0; a <= kStream.size(); ++a) {
    EXPECT_EQ(Decode({kStream.substr(0, a), kStream.substr(a)}), kExpected) << a;
    for (size_t b = a; b <= kStream.size(); b += 3) {
      EXPECT_EQ(Decode({kStream.substr(0, a), kStream.substr(a, b - a), kStream.substr(b)}),
                kExpected)
          << a << " " << b;
    }
  }
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < kStream.size(); ++i) bytes.push_back(kStream.substr(i, 1));
  EXPECT_EQ(Decode(bytes), kExpected);
}

TEST(SseDecoder, DeliversPrimingAndRetryWithoutData) {
  EXPECT_EQ(Decode({"id: 7\n\n"}), Events{"[message #7] "});
  EXPECT_EQ(Decode({"id\n\n"}), Events{"[message #] "});
  EXPECT_EQ(Decode({"retry: 500\n\n"}), Events{"[message retry=500] "});
  EXPECT_EQ(Decode({"data\n\n"}), Events{"[message] "});
  EXPECT_EQ(Decode({EncodeSsePriming("s:0", 2500)}), Events{"[message #s:0 retry=2500] "});
}

TEST(SseDecoder, IgnoresCommentsAndBlankLines) {
  EXPECT_EQ(Decode({"\n\n\r\n:\n\n: x\n\nevent: e\n\n"}), Events{});
  EXPECT_EQ(Decode({EncodeSseComment("keep-alive")}), Events{});
}

TEST(SseDecoder, IgnoresBadIdsAndRetryTimes) {
  EXPECT_EQ(Decode({std::string_view("id: a\0b\ndata: x\n\n", 17)}), Events{"[message] x"});
  for (std::string_view retry : {"-5", "+5", "5s", "", "99999999999999999999", "1.5", " 5"}) {
    EXPECT_EQ(Decode({"retry: " + std::string(retry) + "\ndata: x\n\n"}), Events{"[message] x"})
        << retry;
  }
}

TEST(SseDecoder, TakesAByteOrderMarkOnlyAtTheVeryBeginning) {
  EXPECT_EQ(Decode({"\xef\xbb\xbf"
                    "data: a\n\n\xef\xbb\xbf"
                    "data: b\n\ndata: c\n\n"}),
            (Events{"[message] a", "[message] c"}));
  EXPECT_EQ(Decode({"\xef", "\xbb",
                    "\xbf"
                    "data: a\n\n"}),
            Events{"[message] a"});
}

TEST(SseDecoder, KeepsAtMostOneSpaceOff) {
  EXPECT_EQ(Decode({"data:  a \n\n"}), Events{"[message]  a "});
  EXPECT_EQ(Decode({"data: a:b: c\n\n"}), Events{"[message] a:b: c"});
}

TEST(SseDecoder, RefusesAnEventBeyondItsBoundHoweverItIsCut) {
  const auto feed = [](std::string_view text, size_t step) {
    SseDecoder decoder(20);
    absl::Status status;
    for (size_t i = 0; i < text.size() && status.ok(); i += step) {
      status = decoder.Feed(text.substr(i, step), [](SseEvent) {});
    }
    return status;
  };
  std::string empty_lines;
  for (int i = 0; i < 30; ++i) empty_lines += "data\n";
  for (size_t step : {1, 2, 5, 1000}) {
    EXPECT_TRUE(feed("data: 12345678901234\n\ndata: 12345678901234\n\n", step).ok()) << step;
    EXPECT_EQ(Message(feed("data: 123456789012345\n\n", step)),
              "an SSE event is larger than the limit of 20 bytes")
        << step;
    EXPECT_EQ(feed("data: 12345678\ndata: 1234567\n\n", step).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(feed(": an endless comment without an end", step).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(feed(empty_lines, step).code(), absl::StatusCode::kResourceExhausted);
  }
}

TEST(SseDecoder, MayBeDestroyedByItsReader) {
  auto decoder = std::make_unique<SseDecoder>(100);
  int delivered = 0;
  ASSERT_TRUE(decoder->Feed("data: a", [](SseEvent) {}).ok());
  const absl::Status status = decoder->Feed("bc\n\ndata: d\n\n", [&](SseEvent event) {
    EXPECT_EQ(event.data, "abc");
    ++delivered;
    decoder.reset();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(delivered, 1);
}

TEST(SseEncoder, WritesEvents) {
  EXPECT_EQ(EncodeSseEvent("message", "s:1", "{}"), "event: message\nid: s:1\ndata: {}\n\n");
  EXPECT_EQ(EncodeSseEvent("", "", "x"), "data: x\n\n");
  EXPECT_EQ(EncodeSsePriming("s:0", 2500), "id: s:0\nretry: 2500\ndata: \n\n");
  EXPECT_EQ(EncodeSseComment("ping"), ": ping\n\n");
  EXPECT_EQ(Decode({EncodeSseEvent("endpoint", "s:1", "/m?x=1")}),
            Events{"[endpoint #s:1] /m?x=1"});
}

}  // namespace
}  // namespace callboard::core
