// Tests of the headers that repeat parts of a body.
#include "core/mcp/mirror_header.h"

#include <gtest/gtest.h>

#include <string>

namespace callboard::core {
namespace {

std::string Decoded(std::string_view value) {
  const auto text = DecodeMirrorHeader(value);
  return text.ok() ? *text : "refused";
}

TEST(MirrorHeader, IsReadPlainOrAsBase64) {
  EXPECT_EQ(Decoded("create_sphere"), "create_sphere");
  EXPECT_EQ(Decoded(" \tcreate_sphere  "), "create_sphere");
  EXPECT_EQ(Decoded(""), "");
  EXPECT_EQ(Decoded("=?base64?SGVsbG8=?="), "Hello");
  EXPECT_EQ(Decoded("=?base64?w6Q=?="), "\xC3\xA4");
  EXPECT_EQ(Decoded("=?base64?"
                    "?="),
            "");
}

TEST(MirrorHeader, IsLiteralWithoutBothMarkers) {
  EXPECT_EQ(Decoded("SGVsbG8="), "SGVsbG8=");
  EXPECT_EQ(Decoded("=?base64?SGVsbG8="), "=?base64?SGVsbG8=");
  EXPECT_EQ(Decoded("SGVsbG8=?="), "SGVsbG8=?=");
  EXPECT_EQ(Decoded("=?BASE64?SGVsbG8=?="), "=?BASE64?SGVsbG8=?=");
  EXPECT_EQ(Decoded("=?base64?="), "=?base64?=");
}

TEST(MirrorHeader, IsRefusedUnlessItsBase64IsCanonical) {
  for (const char* value : {"=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?SGVs bG8=?=",
                            "=?base64?SGVsbG9=?=", "=?base64?SGVsbG8==?=", "=?base64?_-8=?="}) {
    EXPECT_EQ(Decoded(value), "refused") << value;
  }
  EXPECT_EQ(Decoded("=?base64?/w==?="), "refused") << "no UTF-8";
  EXPECT_EQ(Decoded("\xC3\xA4"), "refused") << "bytes no header may have";
  EXPECT_EQ(Decoded("a\x01"), "refused");
}

TEST(MirrorHeader, IsWrittenSoThatItIsReadBack) {
  EXPECT_EQ(EncodeMirrorHeader("create_sphere"), "create_sphere");
  EXPECT_EQ(EncodeMirrorHeader(" x"), "=?base64?IHg=?=");
  EXPECT_EQ(EncodeMirrorHeader("\xC3\xA4"), "=?base64?w6Q=?=");
  EXPECT_EQ(EncodeMirrorHeader("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
  for (const std::string text : {"", "a b", "a\nb", "=?base64?", "=?base64?x?=", "\t", "x "}) {
    EXPECT_EQ(Decoded(EncodeMirrorHeader(text)), text);
  }
}

TEST(MirrorHeader, IsComparedByValue) {
  EXPECT_TRUE(CheckMirrorHeader("eu", R"("eu")").ok());
  EXPECT_TRUE(CheckMirrorHeader("=?base64?w6Q=?=", R"("\u00e4")").ok());
  EXPECT_FALSE(CheckMirrorHeader("EU", R"("eu")").ok());
  EXPECT_TRUE(CheckMirrorHeader("10", "10").ok());
  EXPECT_TRUE(CheckMirrorHeader("10", "1e1").ok());
  EXPECT_TRUE(CheckMirrorHeader("9007199254740993", "9007199254740993").ok());
  EXPECT_FALSE(CheckMirrorHeader("9007199254740992", "9007199254740993").ok());
  EXPECT_FALSE(CheckMirrorHeader("ten", "10").ok());
  EXPECT_TRUE(CheckMirrorHeader("true", "true").ok());
  EXPECT_FALSE(CheckMirrorHeader("True", "true").ok());
  EXPECT_FALSE(CheckMirrorHeader("{}", R"("x")").ok());
  const absl::Status differs = CheckMirrorHeader("eu", R"("us")");
  EXPECT_EQ(differs.message(), R"(the header says 'eu', the body "us")");
}

TEST(MirrorHeader, NamesAreTokens) {
  EXPECT_TRUE(IsHeaderToken("Region"));
  EXPECT_TRUE(IsHeaderToken("x-1!"));
  for (const char* name : {"", "a b", "a:b", "\xC3\xA4", "a\n"}) EXPECT_FALSE(IsHeaderToken(name));
}

}  // namespace
}  // namespace callboard::core
