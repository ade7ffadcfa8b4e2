// Tests of arguments that a tool's schema has repeated in headers.
#include "server/flows/mirrored_arguments.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace callboard::server {
namespace {

constexpr char kSchema[] =
    R"({"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},)"
    R"("size":{"type":"integer","x-mcp-header":"Size"},"free":{"type":"string"},)"
    R"("nested":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry"}}}}})";

std::string Problem(std::string_view schema, std::string_view arguments,
                    std::vector<std::pair<std::string, std::string>> headers) {
  google::protobuf::RepeatedPtrField<v1::ParamHeader> list;
  for (auto& [name, value] : headers) {
    v1::ParamHeader& header = *list.Add();
    header.set_name(name);
    header.set_value(value);
  }
  const absl::Status status = CheckMirroredArguments(schema, arguments, list);
  return std::string(status.message());
}

TEST(MirroredArguments, AgreeWithTheirHeaders) {
  EXPECT_EQ(Problem(kSchema, R"({"region":"eu","size":3,"nested":{"dry":true},"free":"x"})",
                    {{"region", "eu"}, {"size", "3.0"}, {"dry", "true"}, {"unknown", "?"}}),
            "");
  EXPECT_EQ(Problem(kSchema, R"({"region":"\u00e4"})", {{"region", "=?base64?w6Q=?="}}), "");
}

TEST(MirroredArguments, ThatAreAbsentOrNullHaveNoHeader) {
  EXPECT_EQ(Problem(kSchema, "", {}), "");
  EXPECT_EQ(Problem(kSchema, R"({"region":null})", {}), "");
  EXPECT_EQ(Problem(kSchema, R"({"region":null})", {{"region", "eu"}}),
            "Mcp-Param-Region is there, the argument is not");
}

TEST(MirroredArguments, NameTheHeaderThatDoesNotFit) {
  EXPECT_EQ(Problem(kSchema, R"({"region":"eu"})", {}),
            "Mcp-Param-Region is missing; the argument is there");
  EXPECT_EQ(Problem(kSchema, R"({"region":"eu"})", {{"region", "us"}}),
            R"(Mcp-Param-Region does not fit: the header says 'us', the body "eu")");
  EXPECT_EQ(Problem(kSchema, R"({"region":"eu"})", {{"region", "eu"}, {"region", "us"}}),
            "Mcp-Param-Region is there twice");
  EXPECT_EQ(Problem(kSchema, R"({"nested":{"dry":true}})", {}),
            "Mcp-Param-Dry is missing; the argument is there");
}

TEST(MirroredArguments, OfBrokenAnnotationsCountForNothing) {
  const auto with = [](std::string properties) {
    return Problem(R"({"properties":{)" + properties + "}}", R"({"a":"1","b":"2"})", {});
  };
  EXPECT_EQ(with(R"("a":{"type":"string","x-mcp-header":"a b"})"), "");
  EXPECT_EQ(with(R"("a":{"type":"number","x-mcp-header":"A"})"), "");
  EXPECT_EQ(with(R"("a":{"type":"string","x-mcp-header":7})"), "");
  EXPECT_EQ(
      with(R"("a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"})"),
      "");
  EXPECT_EQ(with(R"("a":"x-mcp-header")"), "");
  EXPECT_EQ(Problem(R"({"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]})",
                    R"({"a":"1"})", {}),
            "");
}

}  // namespace
}  // namespace callboard::server
