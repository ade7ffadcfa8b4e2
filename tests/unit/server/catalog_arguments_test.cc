// What callers are told about arguments that do not fit, and what must pass all the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/runtime/strings.h"
#include "server/flows/argument_check.h"

namespace callboard::server {
namespace {

using ::testing::HasSubstr;

class ArgumentCheckTest : public ::testing::Test {
 protected:
  // "" if the arguments pass, else the part after the tool's name.
  std::string Verdict(const std::string& schema, const std::string& arguments) {
    list_.digest = schema;
    ToolInfo tool;
    tool.name = "create";
    tool.input_schema = schema;
    absl::Status status = check_.Check(list_, tool, arguments);
    if (status.ok()) return "";
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    const std::string_view message = core::Message(status);
    const std::string_view prefix = "arguments of 'create' do not fit its input schema: ";
    EXPECT_TRUE(message.starts_with(prefix)) << message;
    return std::string(message.substr(std::min(message.size(), prefix.size())));
  }
  std::string Property(const std::string& schema, const std::string& value) {
    return Verdict(R"({"type":"object","properties":{"x":)" + schema + "}}",
                   R"({"x":)" + value + "}");
  }
  ToolList list_;
  ArgumentCheck check_;
};

TEST_F(ArgumentCheckTest, NamesPlaceExpectationAndValue) {
  const std::string schema =
      R"({"type":"object","properties":{"radius":{"type":"number"},"name":{"type":"string"}},)"
      R"("required":["name"],"additionalProperties":false})";
  EXPECT_EQ(Verdict(schema, R"({"name":"a","radius":1.5})"), "");
  EXPECT_EQ(Verdict(schema, R"({"name":"a","radius":"big"})"),
            R"(/radius: expected number, got string "big")");
  EXPECT_EQ(Verdict(schema, ""), "/name: required, but missing");
  EXPECT_EQ(Verdict(schema, R"({"name":"a","size":1})"),
            "/size: unknown property; known are radius and name");
  EXPECT_EQ(Verdict(schema, "[1]"), "/: expected object, got array [1]");
}

TEST_F(ArgumentCheckTest, ReachesIntoItemsAndReferences) {
  const std::string schema =
      R"({"$schema":"https://json-schema.org/draft/2020-12/schema",
          "$defs":{"p":{"type":"array","items":{"type":"number"},"minItems":2}},
          "properties":{"at":{"$ref":"#/$defs/p","maxItems":3}}})";
  EXPECT_EQ(Verdict(schema, R"({"at":[1,2.5]})"), "");
  EXPECT_EQ(Verdict(schema, R"({"at":[1,true]})"), "/at/1: expected number, got boolean true");
  EXPECT_THAT(Verdict(schema, R"({"at":[1]})"), HasSubstr("/at: Array should contain no fewer"));
  EXPECT_THAT(Verdict(schema, R"({"at":[1,2,3,4]})"),
              HasSubstr("/at: Array should contain no more"));
}

TEST_F(ArgumentCheckTest, WordsValuesBoundsAndChoices) {
  EXPECT_EQ(Property(R"({"enum":["cube",1]})", R"("ball")"),
            R"(/x: expected one of "cube" or 1, got string "ball")");
  EXPECT_EQ(Property(R"({"const":3})", "4"), "/x: expected 3, got integer 4");
  EXPECT_EQ(Property(R"({"maximum":10})", "10.5"),
            "/x: expected a number <= 10, got number 1.05E1");
  EXPECT_EQ(Property(R"({"exclusiveMinimum":0})", "0"), "/x: expected a number > 0, got integer 0");
  EXPECT_EQ(Property(R"({"anyOf":[{"type":"number"},{"type":"null"}]})", R"("big")"),
            R"(/x: expected number or null, got string "big")");
  EXPECT_EQ(Property(R"({"type":["string","null"]})", "1"),
            "/x: expected string or null, got integer 1");
  EXPECT_EQ(Property(R"({"pattern":"^[a-z]+$"})", R"("A")"),
            R"(/x: expected a text that matches "^[a-z]+$", got string "A")");
  EXPECT_NE(Property(R"({"not":{"type":"string"}})", R"("A")"), "");
  EXPECT_NE(Property(R"({"oneOf":[{"type":"number"},{"minimum":1}]})", "2"), "");
  EXPECT_NE(Property("false", "2"), "");
}

TEST_F(ArgumentCheckTest, SaysWhatHelpsWhereAClientFillsInNull) {
  const std::string schema =
      R"({"type":"object","properties":{"radius":{"type":"number"},"name":{"type":"string"},)"
      R"("unit":{"enum":["cm","m"]},"any":{},"free":{"type":["string","null"]},)"
      R"("at":{"type":"object","properties":{"x":{"type":"number"}}},)"
      R"("points":{"type":"array","items":{"type":"number"}}},"required":["name"]})";
  EXPECT_EQ(Verdict(schema, R"({"name":"a","radius":null})"),
            "/radius: expected number, got null (leave it out: it is optional)");
  EXPECT_EQ(Verdict(schema, R"({"name":"a","unit":null})"),
            R"(/unit: expected one of "cm" or "m", got null (leave it out: it is optional))");
  EXPECT_EQ(Verdict(schema, R"({"name":"a","at":{"x":null}})"),
            "/at/x: expected number, got null (leave it out: it is optional)");
  EXPECT_EQ(Verdict(schema, R"({"name":null})"), "/name: expected string, got null");
  EXPECT_EQ(Verdict(schema, R"({"name":"a","points":[null]})"),
            "/points/0: expected number, got null");
  EXPECT_EQ(Verdict(schema, R"({"name":"a","any":null,"free":null,"other":null})"), "");
}

TEST_F(ArgumentCheckTest, TellsAtMostFiveViolations) {
  std::string properties, values;
  for (int i = 0; i < 9; ++i) {
    properties += fmt::format(R"({}"p{}":{{"type":"null"}})", i == 0 ? "" : ",", i);
    values += fmt::format(R"({}"p{}":{})", i == 0 ? "" : ",", i, i);
  }
  const std::string verdict = Verdict(R"({"properties":{)" + properties + "}}", "{" + values + "}");
  EXPECT_EQ(std::count(verdict.begin(), verdict.end(), ';'), 4) << verdict;
}

TEST_F(ArgumentCheckTest, IntegersMayBeWrittenWithAPoint) {
  EXPECT_EQ(Property(R"({"type":"integer"})", "1.0"), "");
  EXPECT_EQ(Property(R"({"enum":[1]})", "1.0"), "");
  EXPECT_EQ(Property(R"({"const":0.3})", "3e-1"), "");
  EXPECT_EQ(Property(R"({"maximum":0.3})", "0.30"), "");
  EXPECT_EQ(Property(R"({"type":"integer"})", "1.5"), "/x: expected integer, got number 1.5E0");
}

TEST_F(ArgumentCheckTest, HugeNumbersAreNoViolation) {
  for (const char* number : {"18446744073709551615", "123456789012345678901234567890", "1e400",
                             "-1e400", "9007199254740993"}) {
    EXPECT_EQ(Property(R"({"type":"integer"})", number), "") << number;
    EXPECT_EQ(Property(R"({"exclusiveMaximum":9007199254740994})", number), "") << number;
  }
  EXPECT_NE(Property(R"({"type":"integer","maximum":18446744073709551615})", R"("a")"), "");
}

TEST_F(ArgumentCheckTest, WhatIsNotKnownPasses) {
  EXPECT_EQ(Verdict(R"({"$schema":"https://example.com/own","type":"object"})", "[]"), "");
  for (const char* schema : {R"({"$ref":"https://example.com/x"})",
                             R"({"$ref":"#/nowhere"})",
                             R"({"$ref":"#anchor"})",
                             R"({"$dynamicRef":"#x"})",
                             R"_({"pattern":"(?<name>a)"})_",
                             R"({"pattern":"("})",
                             R"({"pattern":"^(a+)+$"})",
                             R"({"type":"any"})",
                             R"({"type":7})",
                             R"({"minimum":"1"})",
                             R"({"prefixItems":[{"type":"number"}],"items":false})",
                             R"({"items":[{"type":"null"}]})",
                             R"({"unevaluatedProperties":false})",
                             R"({"minLength":-1})",
                             R"({"format":"date"})",
                             R"({"not":{"pattern":"("}})",
                             R"({"not":{"if":{"type":"null"},"then":false}})",
                             "17",
                             R"({"$id":"https://example.com/a","$ref":"#/properties/x"})",
                             R"({"enum":"a"})"}) {
    EXPECT_EQ(Property(schema, R"("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")"), "") << schema;
    EXPECT_EQ(Property(schema, R"([1,"a"])"), "") << schema;
  }
  EXPECT_EQ(Verdict("", "{}"), "");
  EXPECT_EQ(Verdict("nonsense", "{}"), "");
}

TEST_F(ArgumentCheckTest, StillChecksWhatStandsBesideTheUnknown) {
  EXPECT_NE(Property(R"({"unevaluatedProperties":false,"type":"object"})", "1"), "");
  // One of two alternatives is not fully known: both may match, so "exactly one" is not demanded.
  const char* one_of = R"({"oneOf":[{"type":"string"},{"type":"string","contains":{}}]})";
  EXPECT_EQ(Property(one_of, R"("a")"), "");
  EXPECT_EQ(Property(one_of, "1"), "/x: expected string, got integer 1");
}

TEST_F(ArgumentCheckTest, PatternsAreOnlyAskedAboutShortPlainTexts) {
  const char* schema = R"({"type":"string","pattern":"^.{1,3}$"})";
  EXPECT_NE(Property(schema, R"("abcd")"), "");
  EXPECT_EQ(Property(schema, R"("äöü")"), "");
  EXPECT_EQ(Property(schema, '"' + std::string(100'000, 'a') + '"'), "");
  EXPECT_EQ(Property(R"({"maxLength":3})", R"("äöü")"), "");
}

TEST_F(ArgumentCheckTest, SurvivesRecursionAndMalice) {
  EXPECT_EQ(Verdict(R"({"$ref":"#"})", "{}"), "");
  EXPECT_EQ(Verdict(R"({"anyOf":[{"$ref":"#"},{"$ref":"#"}]})", "{}"), "");
  const std::string tree = R"({"type":"object","properties":{"l":{"$ref":"#"},"r":{"$ref":"#"}}})";
  EXPECT_EQ(Verdict(tree, R"({"l":{"r":{"l":{}}}})"), "");
  EXPECT_EQ(Verdict(tree, R"({"l":{"r":1}})"), "/l/r: expected object, got integer 1");
  std::string doubling = R"({"$defs":{"d0":{"type":"object"})";
  for (int i = 1; i < 40; ++i) {
    doubling +=
        fmt::format(R"(,"d{}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}})", i,
                    i - 1, i - 1);
  }
  EXPECT_EQ(Verdict(doubling + R"(},"$ref":"#/$defs/d39"})", "{}"), "");
  EXPECT_EQ(Verdict("{}", std::string(1000, '[') + std::string(1000, ']')), "");
  EXPECT_EQ(Property(R"({"minLength":4})", R"("a\u0000bc")"), "");
}

TEST_F(ArgumentCheckTest, RefusesArgumentsThatAreNoJson) {
  ToolInfo tool;
  tool.name = "create";
  tool.input_schema = "{}";
  const absl::Status status = check_.Check(list_, tool, R"({"a":tru})");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(core::Message(status), HasSubstr("arguments of 'create' are not valid JSON"));
}

TEST_F(ArgumentCheckTest, ForgetsSchemasBeyondItsBound) {
  for (int i = 0; i < 5'000; ++i) {
    EXPECT_EQ(Verdict(fmt::format(R"({{"title":"{}"}})", i), "{}"), "");
  }
  EXPECT_NE(Verdict(R"({"title":"0","type":"object"})", "1"), "");
}

}  // namespace
}  // namespace callboard::server
