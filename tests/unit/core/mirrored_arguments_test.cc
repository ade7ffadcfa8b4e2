// Tests of arguments that are repeated in headers: which are, and which annotations break the
// rules.
#include "core/mcp/mirrored_arguments.h"

#include <gtest/gtest.h>

#include <string>

namespace callboard::core {
namespace {

std::string Shown(std::string_view schema, std::string_view arguments) {
  std::string shown;
  for (const MirroredArgument& argument : FindMirroredArguments(schema, arguments)) {
    shown.append(argument.header).append("=").append(argument.value).append(";");
  }
  return shown;
}

// A schema with one property `a`, or with what else stands in `properties`.
std::string With(std::string properties) { return R"({"properties":{)" + properties + "}}"; }

TEST(MirroredArguments, AreFoundAtAnyDepthOfProperties) {
  EXPECT_EQ(
      Shown(R"({"properties":{"z":{"type":"string","x-mcp-header":"Zone"},)"
            R"("n":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry"}}},)"
            R"("\u0073":{"type":"integer","x-mcp-header":"Size"}}})",
            R"({"z":"eu","n":{"dry":true},"s":3.0,"free":1})"),
      "Dry=true;Size=3.0;Zone=\"eu\";");
  EXPECT_EQ(Shown(With(R"("a":{"type":"string","x-mcp-header":"A"})"), R"({"a":null})"), "A=;");
  EXPECT_EQ(Shown(With(R"("a":{"type":"string"})"), R"({"a":"x"})"), "");
}

TEST(MirroredArguments, OfFaultyAnnotationsAreNone) {
  EXPECT_EQ(Shown(With(R"("a":{"type":"string","x-mcp-header":"a b"})"), R"({"a":"1"})"), "");
  EXPECT_EQ(Shown(With(R"("a":{"type":"string","x-mcp-header":"A"},)"
                       R"("b":{"type":"string","x-mcp-header":"a"})"),
                  R"({"a":"1","b":"2"})"),
            "");
}

TEST(MirrorFault, SaysWhatIsWrong) {
  EXPECT_EQ(FindMirrorFault(With(R"("a":{"type":"string","x-mcp-header":"A"})")), "");
  EXPECT_EQ(FindMirrorFault(With(R"("x-mcp-header":{"type":"string"})")), "") << "a mere name";
  EXPECT_EQ(FindMirrorFault(With(R"("a":{"type":"string","x-mcp-header":""})")),
            R"("" can be no part of a header's name)");
  EXPECT_EQ(FindMirrorFault(With(R"("a":{"type":"string","x-mcp-header":"a:b"})")),
            R"("a:b" can be no part of a header's name)");
  EXPECT_EQ(FindMirrorFault(With(R"("a":{"type":"string","x-mcp-header":7})")), "7 is no text");
  for (const char* type :
       {R"("number")", R"("object")", R"("array")", R"("null")", R"(["string"])"}) {
    EXPECT_EQ(
        FindMirrorFault(With(R"("a":{"type":)" + std::string(type) + R"(,"x-mcp-header":"A"})")),
        R"("A" is at a property that is no string, integer or boolean)");
  }
  EXPECT_EQ(
      FindMirrorFault(With(R"("a":{"type":"string","x-mcp-header":"A"},)"
                           R"("n":{"properties":{"b":{"type":"string","x-mcp-header":"a"}}})")),
      R"("A" is there more than once)");
  for (const char* schema :
       {R"({"items":{"type":"string","x-mcp-header":"A"}})",
        R"({"anyOf":[{},{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]})",
        R"({"$defs":{"d":{"type":"string","x-mcp-header":"A"}}})",
        R"({"type":"string","x-mcp-header":"A"})"}) {
    EXPECT_EQ(FindMirrorFault(schema),
              R"("A" is not at a property that is reached by 'properties' alone)")
        << schema;
  }
}

TEST(MirrorFault, IsTakenOutAndNothingElse) {
  EXPECT_EQ(
      RemoveMirrorFaults(
          R"({"$defs":{"d":{"x-mcp-header":"D","k":1.0}} , "properties":{"a":{"x-mcp-header":"A",)"
          R"("type":"string"},"b":{"type":"number" ,"x-mcp-header":"B"}},)"
          R"("allOf":[ {"x-mcp-header":"C"},{"minimum":1e2} ],"const":{"x-mcp-header":"E"}})"),
      R"({"$defs":{"d":{"k":1.0}} , "properties":{"a":{"x-mcp-header":"A",)"
      R"("type":"string"},"b":{"type":"number"}},)"
      R"("allOf":[{},{"minimum":1e2}],"const":{"x-mcp-header":"E"}})");
  const std::string twice = RemoveMirrorFaults(With(R"("a":{"type":"string","x-mcp-header":"A"},)"
                                                    R"("b":{"type":"string","x-mcp-header":"a"})"));
  EXPECT_EQ(twice, With(R"("a":{"type":"string"},"b":{"type":"string"})"));
  const std::string sound = With(R"("a":{ "type":"string", "x-mcp-header":"A" })");
  EXPECT_EQ(RemoveMirrorFaults(sound), sound);
  std::string deep = R"({"type":"string","x-mcp-header":"A"})";
  for (int i = 0; i < 60; ++i) deep = With(R"("a":)" + deep);
  EXPECT_EQ(Shown(deep, "{}"), "");
  EXPECT_EQ(RemoveMirrorFaults(deep), deep) << "too deep for anybody to look";
}

}  // namespace
}  // namespace callboard::core
