// A large body in its places within a response, piece by piece.
#include "bridge/spliced_text.h"

#include <gtest/gtest.h>

#include <string>

#include "core/mcp/json.h"

namespace callboard::bridge {
namespace {

const std::string kToken = SplicedText::Token("00ff");

// The whole, with the body in pieces of so many bytes.
std::string Tell(std::string_view text, std::string_view body, size_t bytes) {
  SplicedText spliced(text, kToken);
  std::string told = spliced.TakeText();
  while (spliced.at_place()) {
    for (size_t at = 0; at < body.size(); at += bytes) {
      told += spliced.Splice(body.substr(at, bytes), at + bytes >= body.size());
    }
    told += spliced.TakeText();
  }
  return told;
}

TEST(SplicedText, IsWhatItWouldBeWithTheBodyInIt) {
  const std::string body = R"({"text":"Ä \"quoted\" \\ 文 🎬","n":1.10})";
  const auto whole = [](std::string_view value) {
    const std::string document = R"({"a":1,"result":)" + std::string(value) + R"(,"b":2})";
    return R"({"content":[{"text":)" + core::QuoteJson(document) + R"(}],"structuredContent":)" +
           document + "}";
  };
  for (size_t bytes = 1; bytes <= body.size(); ++bytes) {
    EXPECT_EQ(Tell(whole(kToken), body, bytes), whole(body)) << "in pieces of " << bytes;
  }
  EXPECT_EQ(SplicedText(whole(kToken), kToken).Size(body.size()), std::nullopt);
}

TEST(SplicedText, GivesAnObjectMembersThatStandBeforeItsOwn) {
  const std::string body = R"({"x":1})";
  const std::string text = R"({"result":)" + SplicedText::ObjectWith(R"("r":2)", kToken) + "}";
  EXPECT_EQ(Tell(text, body, 1), R"({"result":{"r":2,"x":1}})");
  EXPECT_EQ(SplicedText(text, kToken).Size(body.size()), Tell(text, body, 3).size());
  EXPECT_EQ(Tell(R"({"result":)" + SplicedText::ObjectWith("", kToken) + "}", body, 2),
            R"({"result":{"x":1}})");
}

TEST(SplicedText, WithoutAPlaceIsItself) {
  EXPECT_EQ(Tell(R"({"a":1})", "{}", 1), R"({"a":1})");
  EXPECT_EQ(SplicedText("{}", kToken).places(), 0u);
}

}  // namespace
}  // namespace callboard::bridge
