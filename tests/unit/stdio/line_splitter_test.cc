// Tests of how a client's bytes become lines.
#include "apps/stdio/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace callboard::apps {
namespace {

using testing::ElementsAre;

class Lines : public testing::Test {
 protected:
  void Feed(std::string_view bytes) {
    splitter.Feed(
        bytes, [this](std::string line) { lines.push_back(std::move(line)); },
        [this](LineSplitter::TooLong line) { too_long.push_back(std::move(line)); });
  }
  LineSplitter splitter{20'000};
  std::vector<std::string> lines;
  std::vector<LineSplitter::TooLong> too_long;
};

TEST_F(Lines, AreTheSameWhereverTheBytesAreCut) {
  const std::string bytes = "{\"a\":1}\r\n\n  \n[2]\n";
  Feed(bytes);
  for (const char c : bytes) Feed(std::string(1, c));
  EXPECT_THAT(lines, ElementsAre(R"({"a":1})", "[2]", R"({"a":1})", "[2]"));
}

TEST_F(Lines, EndWithTheInput) {
  Feed("one\ntwo");
  splitter.End([this](std::string line) { lines.push_back(std::move(line)); },
               [](LineSplitter::TooLong) { FAIL(); });
  EXPECT_THAT(lines, ElementsAre("one", "two"));
}

TEST_F(Lines, ThatAreTooLongAreSkippedWhole) {
  const std::string large(1'000'000, 'x');
  Feed(R"({"jsonrpc":"2.0","id":"seven","method":"m","params":")" + large);
  Feed(large + "\"}\nnext\n");
  EXPECT_THAT(lines, ElementsAre("next"));
  ASSERT_EQ(too_long.size(), 1u);
  EXPECT_EQ(too_long[0].bytes, 2'000'055u);
  EXPECT_LE(too_long[0].head.size() + too_long[0].tail.size(), 8192u);
  EXPECT_TRUE(too_long[0].head.starts_with(R"({"jsonrpc":"2.0","id":"seven")"));
  EXPECT_TRUE(too_long[0].tail.ends_with("xx\"}"));
}

}  // namespace
}  // namespace callboard::apps
