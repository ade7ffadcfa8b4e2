// Tests of the envelope of requests without a session.
#include "core/mcp/envelope.h"

#include <gtest/gtest.h>

#include <string>

namespace callboard::core {
namespace {

constexpr char kVersion[] = R"("io.modelcontextprotocol/protocolVersion":"2026-07-28")";
constexpr char kCapabilities[] = R"("io.modelcontextprotocol/clientCapabilities":{"roots":{}})";

std::string Params(const std::string& meta) { return R"({"name":"x","_meta":{)" + meta + "}}"; }

std::string Problem(const std::string& params) {
  const auto envelope = ReadEnvelope(params);
  return envelope.ok() ? "" : std::string(envelope.status().message());
}

TEST(Envelope, IsRead) {
  const std::string params =
      Params(std::string(kVersion) + "," + kCapabilities +
             R"(,"io.modelcontextprotocol/clientInfo":{"name":"c"},"progressToken":1,)"
             R"("io.modelcontextprotocol/logLevel":"warning")");
  const auto envelope = ReadEnvelope(params);
  ASSERT_TRUE(envelope.ok());
  EXPECT_EQ(envelope->capabilities, R"({"roots":{}})");
  EXPECT_EQ(envelope->client_info, R"({"name":"c"})");
  EXPECT_EQ(envelope->log_level, "warning");
}

TEST(Envelope, NeedsVersionAndCapabilitiesAndNothingElse) {
  EXPECT_EQ(Problem(Params(std::string(kVersion) + "," + kCapabilities)), "");
  EXPECT_NE(Problem(Params(kVersion)).find("clientCapabilities'] is missing"), std::string::npos);
  EXPECT_NE(Problem(Params(kCapabilities)).find("protocolVersion'] is missing"), std::string::npos);
  EXPECT_NE(Problem("{}").find("protocolVersion'] is missing"), std::string::npos);
  EXPECT_NE(Problem("").find("protocolVersion'] is missing"), std::string::npos);
  EXPECT_NE(Problem("[]").find("protocolVersion'] is missing"), std::string::npos);
  EXPECT_NE(Problem(R"({"_meta":7})").find("must be an object"), std::string::npos);
}

TEST(Envelope, NamesValuesOfAnotherType) {
  const std::string sound = std::string(kVersion) + "," + kCapabilities;
  EXPECT_NE(Problem(Params(R"("io.modelcontextprotocol/protocolVersion":7)"))
                .find("protocolVersion'] must be a string"),
            std::string::npos);
  EXPECT_NE(
      Problem(Params(std::string(kVersion) + R"(,"io.modelcontextprotocol/clientCapabilities":[])"))
          .find("clientCapabilities'] must be an object"),
      std::string::npos);
  EXPECT_NE(Problem(Params(sound + R"(,"io.modelcontextprotocol/clientInfo":"c")"))
                .find("clientInfo'] must be an object"),
            std::string::npos);
  EXPECT_NE(Problem(Params(sound + R"(,"io.modelcontextprotocol/logLevel":"loud")"))
                .find("must be one of: debug, info"),
            std::string::npos);
}

TEST(Envelope, IsNotAmbiguous) {
  const std::string sound = std::string(kVersion) + "," + kCapabilities;
  EXPECT_NE(Problem(Params(sound + "," + kVersion)), "");
  EXPECT_NE(Problem(R"({"name":"a","name":"b","_meta":{)" + sound + "}}"), "");
}

TEST(Envelope, ClaimsTheEraByItsVersionAlone) {
  EXPECT_EQ(FindModernClaim(Params(kVersion)), R"("2026-07-28")");
  EXPECT_EQ(FindModernClaim(R"({"_meta":{"io.modelcontextprotocol\/protocolVersion":7}})"), "7");
  EXPECT_FALSE(FindModernClaim(Params(kCapabilities)));
  EXPECT_FALSE(FindModernClaim(R"({"protocolVersion":"2026-07-28"})"));
  EXPECT_FALSE(FindModernClaim(R"({"arguments":{"_meta":{)" + std::string(kVersion) + "}}}"));
  EXPECT_FALSE(FindModernClaim(""));
}

TEST(Envelope, LeavesNothingElseBehindWhenItIsRemoved) {
  const std::string sound = std::string(kVersion) + "," + kCapabilities;
  EXPECT_EQ(RemoveEnvelope(R"({"a": 1.0,"_meta":{)" + sound + R"(},"b":[ ]})"),
            R"({"a": 1.0,"b":[ ]})");
  EXPECT_EQ(RemoveEnvelope(Params(sound + R"(,"progressToken":"t","own":{"z":1e5})")),
            R"({"name":"x","_meta":{"progressToken":"t","own":{"z":1e5}}})");
  EXPECT_EQ(RemoveEnvelope(""), "");
  EXPECT_EQ(RemoveEnvelope(R"({"_meta":3})"), R"({"_meta":3})");
}

TEST(Envelope, IsAddedInPlaceOfAnother) {
  const Envelope envelope{
      .capabilities = R"({"sampling":{}})", .client_info = R"({"name":"c"})", .log_level = "info"};
  const std::string params =
      AddEnvelope(R"({"name":"x","_meta":{"own":1}})", "2026-07-28", envelope);
  const auto read = ReadEnvelope(params);
  ASSERT_TRUE(read.ok()) << params;
  EXPECT_EQ(read->capabilities, R"({"sampling":{}})");
  EXPECT_EQ(read->log_level, "info");
  EXPECT_EQ(RemoveEnvelope(params), R"({"name":"x","_meta":{"own":1}})");
  const std::string bare = AddEnvelope("", "2026-07-28", {});
  ASSERT_TRUE(ReadEnvelope(bare).ok()) << bare;
  EXPECT_EQ(ReadEnvelope(bare)->capabilities, "{}");
}

}  // namespace
}  // namespace callboard::core
