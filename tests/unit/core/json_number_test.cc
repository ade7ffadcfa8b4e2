// Tests of numbers compared by what they mean.
#include "core/mcp/json_number.h"

#include <gtest/gtest.h>

namespace callboard::core {
namespace {

TEST(JsonNumber, ComparesByValueAndNotByText) {
  EXPECT_TRUE(CompareNumbers("2", "10") < 0);
  EXPECT_TRUE(CompareNumbers("-1", "-0.5") < 0);
  EXPECT_TRUE(CompareNumbers("1.0", "1") == 0);
  EXPECT_TRUE(CompareNumbers("1e2", "100") == 0);
  EXPECT_TRUE(CompareNumbers("0.30", "0.3") == 0);
  EXPECT_TRUE(CompareNumbers("5.5", "5") > 0);
}

TEST(JsonNumber, TellsIntegersApartThatNoDoubleTellsApart) {
  EXPECT_TRUE(CompareNumbers("9007199254740993", "9007199254740992") > 0);
  EXPECT_TRUE(CompareNumbers("-9007199254740993", "-9007199254740992") < 0);
}

TEST(JsonNumber, OrdersNothingThatIsNoNumber) {
  for (const char* text : {"", "x", "\"1\"", "1x", "1e999", "null"}) {
    EXPECT_TRUE(CompareNumbers(text, "1") == std::partial_ordering::unordered) << text;
    EXPECT_TRUE(CompareNumbers("1", text) == std::partial_ordering::unordered) << text;
  }
}

}  // namespace
}  // namespace callboard::core
