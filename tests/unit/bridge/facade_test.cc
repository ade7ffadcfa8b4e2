// Tests of the facade: fixed bytes, argument forms, direct names, what answers say.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/mcp/json.h"
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

class FacadeCalls : public BridgeTest {
 protected:
  Answer Tool(std::string name, std::string arguments, std::string revision = "2025-11-25") {
    if (session_.empty()) session_ = Open(std::move(revision));
    return PostIn(session_, R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":")" +
                                name + R"(","arguments":)" + arguments + "}}");
  }
  std::string session_;
};

TEST_F(FacadeCalls, ListTheSameBytesForEveryClient) {
  const std::string list = R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})";
  const std::string first = PostIn(Open(), list)->body;
  EXPECT_EQ(PostIn(Open("2025-03-26"), list)->body, first);
  EXPECT_TRUE(core::ValidateJson(first).ok());
  size_t at = 0;
  for (const std::string name : {"search_tools", "describe_tool", "call_tool", "list_instances",
                                 "load_skill", "jobs_get_status", "jobs_wait", "jobs_cancel"}) {
    const size_t found = first.find(R"({"name":")" + name + R"(","title":)");
    ASSERT_NE(found, std::string::npos) << name;
    EXPECT_GT(found, at) << name;
    at = found;
  }
}

// Models' caches hold on to these bytes: a change must be meant. CALLBOARD_UPDATE_GOLDEN=1
// (tools/update_golden) writes them anew.
TEST_F(FacadeCalls, ListTheGoldenBytes) {
  const std::string path = std::string(CALLBOARD_SOURCE_DIR) + "/tests/golden/facade/tools.json";
  const std::string body =
      PostIn(Open(), R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})")->body;
  const std::string list = std::string(core::FindMember(body, "result").value_or("")) + "\n";
  if (std::getenv("CALLBOARD_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << list;
  std::ifstream golden(path);
  std::stringstream kept;
  kept << golden.rdbuf();
  EXPECT_EQ(list, kept.str());
  size_t tools = 0;
  (void)core::ForEachElement(*core::FindMember(list, "tools"), [&](std::string_view) {
    ++tools;
    return true;
  });
  EXPECT_LE(tools, 16u);
}

// What a document of the answers may be, as far as the schemas of the list go.
void ExpectFits(std::string_view schema, std::string_view value, const std::string& where) {
  const std::string type = core::FindString(schema, "type").value_or("");
  if (type == "object") {
    ASSERT_TRUE(core::IsObject(value)) << where;
    if (const auto required = core::FindMember(schema, "required")) {
      (void)core::ForEachElement(*required, [&](std::string_view name) {
        EXPECT_TRUE(core::FindMember(value, *core::DecodeString(name))) << where << name;
        return true;
      });
    }
    (void)core::ForEachMember(value, [&](const core::JsonMember& member) {
      const std::string key(member.key);
      if (const auto inner = core::FindPath(schema, {"properties", key})) {
        ExpectFits(*inner, member.value, where + "." + key);
      }
      return true;
    });
  } else if (type == "array") {
    ASSERT_TRUE(core::IsArray(value)) << where;
    (void)core::ForEachElement(value, [&](std::string_view element) {
      ExpectFits(*core::FindMember(schema, "items"), element, where + "[]");
      return true;
    });
  } else if (type == "string") {
    EXPECT_TRUE(core::IsString(value)) << where;
  } else if (type == "integer") {
    EXPECT_TRUE(core::IsNumber(value)) << where;
  } else if (type == "boolean") {
    EXPECT_TRUE(value == "true" || value == "false") << where;
  } else {
    EXPECT_EQ(schema, "{}") << where;
  }
}

TEST_F(FacadeCalls, FitTheOutputSchemasOfTheList) {
  plane_.tools = {Hit("maya", "bake"), Hit("maya", "carve", false)};
  plane_.instances = {Row("maya-1", "aabb")};
  const std::string list =
      PostIn(Open(), R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})")->body;
  const auto check = [&](const std::string& tool, const std::string& arguments) {
    (void)core::ForEachElement(*core::FindPath(list, {"result", "tools"}), [&](auto row) {
      if (core::FindString(row, "name") != tool) return true;
      const auto schema = core::FindMember(row, "outputSchema");
      EXPECT_TRUE(schema) << tool;
      const std::string body = Tool(tool, arguments)->body;
      const auto document = core::FindPath(body, {"result", "structuredContent"});
      EXPECT_TRUE(document) << tool << body;
      if (!schema || !document) return false;
      ExpectFits(*schema, *document, tool);
      const auto content = core::FindPath(body, {"result", "content"});
      (void)core::ForEachElement(*content, [&](std::string_view block) {
        EXPECT_EQ(core::FindString(block, "text"), *document) << "the same beside it";
        return true;
      });
      return false;
    });
  };
  check("search_tools", "{}");
  check("describe_tool", R"({"tool_slug":"maya.1f2e3d4c.bake"})");
  check("describe_tool", R"({"tool_slug":"maya.00000000.x"})");
  check("list_instances", "{}");
  check("load_skill", R"({"skill_name":"modeling"})");
  const std::string job = R"({"job_id":"00112233445566778899aabbccddeeff"})";
  for (const char* tool : {"jobs_get_status", "jobs_wait", "jobs_cancel"}) check(tool, job);
}

TEST_F(FacadeCalls, AreTheSameBytesForTheSameSeats) {
  plane_.tools = {Hit("maya", "bake"), Hit("maya", "carve", false)};
  const std::string first = Tool("search_tools", R"({"query":"b"})")->body;
  loop_.RunFor(absl::Minutes(3));
  session_ = Open();
  EXPECT_EQ(Tool("search_tools", R"({"query":"b"})")->body, first);
  EXPECT_EQ(Tool("describe_tool", R"({"tool_slug":"maya.1f2e3d4c.bake"})")->body,
            Tool("describe_tool", R"({"tool_slug":"maya.1f2e3d4c.bake"})")->body);
}

TEST_F(FacadeCalls, HaveOnePageOfTools) {
  EXPECT_NE(
      PostIn(Open(), R"({"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}})")
          ->body.find("-32602"),
      std::string::npos);
}

TEST_F(FacadeCalls, HaveNoMethodsButTools) {
  const Answer answer = PostIn(Open(), R"({"jsonrpc":"2.0","id":1,"method":"resources/list"})");
  EXPECT_EQ(answer->status, 200);
  EXPECT_NE(answer->body.find("-32601"), std::string::npos);
}

TEST_F(FacadeCalls, SearchAndSayWhatToDoNext) {
  plane_.tools = {Hit("maya", "bake"), Hit("maya", "carve", false)};
  const Answer answer =
      Tool("search", R"({"query":"q","dcc":"maya","instance_id":"1f2e","limit":5})");
  const v1::SearchToolsRequest& request = plane_.searches[0];
  EXPECT_EQ(request.query(), "q");
  EXPECT_EQ(request.app(), "maya");
  EXPECT_EQ(request.target().instance(), "1f2e");
  EXPECT_EQ(request.limit(), 5u);
  EXPECT_NE(
      answer->body.find(
          R"("structuredContent":{"total":2,"hits":[{"slug":"maya.1f2e3d4c.bake","summary":"does it","app":"maya","instance":"maya-1","loaded":true,"skill":"modeling","next_step":{"tool":"describe_tool","arguments":{"tool_slug":"maya.1f2e3d4c.bake"}}},)"),
      std::string::npos)
      << answer->body;
  EXPECT_NE(
      answer->body.find(
          R"("next_step":{"tool":"load_skill","arguments":{"skill_name":"modeling","instance":"1f2e3d4c000000000000000000000000"}})"),
      std::string::npos);
}

TEST_F(FacadeCalls, LeaveOutStructuredContentForOldRevisions) {
  const Answer answer = Tool("search_tools", "{}", "2025-03-26");
  EXPECT_EQ(
      answer->body,
      R"({"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"total\":0,\"hits\":[]}"}],"isError":false}})");
}

TEST_F(FacadeCalls, DescribeWithTheRawDefinition) {
  plane_.tools = {Hit("maya", "bake")};
  const Answer answer = Tool("describe_tool", R"({"slug":"maya.1f2e3d4c.bake"})");
  EXPECT_NE(
      answer->body.find(
          R"("definition":{"name":"t","inputSchema":{"$defs":{},"type":"object"}},"effective":{"idempotent":true,"read_only":false,"source":"annotations","timeout_ms":30000})"),
      std::string::npos)
      << answer->body;
  EXPECT_NE(Tool("describe", R"({"tool_slug":"bake"})")->body.find("definition"),
            std::string::npos);
}

TEST_F(FacadeCalls, DescribeUnknownToolsAsErrorResults) {
  const Answer answer = Tool("describe_tool", R"({"tool_slug":"maya.00000000.x"})");
  EXPECT_NE(
      answer->body.find(
          R"("structuredContent":{"error":{"kind":"not-found","message":"no tool 'maya.00000000.x'"}},"isError":true)"),
      std::string::npos)
      << answer->body;
}

TEST_F(FacadeCalls, CallBySlugWithoutAskingFirst) {
  const Answer answer = Tool(
      "call_tool",
      R"({"tool_slug":"maya.1f2e3d4c.skill__bake.v2","arguments":{"n":9007199254740993, "f":1.0}})");
  ASSERT_EQ(plane_.invokes.size(), 1u);
  const v1::InvokeRequest& request = plane_.invokes[0].request;
  EXPECT_EQ(request.method(), "tools/call");
  EXPECT_EQ(request.target().instance(), "1f2e3d4c");
  EXPECT_EQ(request.params(),
            R"({"name":"skill__bake.v2","arguments":{"n":9007199254740993, "f":1.0}})");
  EXPECT_TRUE(plane_.described.empty());
  EXPECT_TRUE(plane_.searches.empty());
  plane_.invokes[0].script->Push(Result(R"({"content":[ ],"isError":false})"));
  EXPECT_EQ(answer->body, R"({"jsonrpc":"2.0","id":1,"result":{"content":[ ],"isError":false}})");
}

TEST_F(FacadeCalls, TakeEveryFormOfArguments) {
  for (const std::string form : {R"("{\"a\":1}")", R"({"a":1})"}) {
    Tool("call", R"({"slug":"maya.1f2e3d4c.bake","arguments":)" + form + "}");
    EXPECT_EQ(plane_.invokes.back().request.params(), R"({"name":"bake","arguments":{"a":1}})");
  }
  for (const std::string form : {"null", R"("")", R"("  ")"}) {
    Tool("call", R"({"slug":"maya.1f2e3d4c.bake","arguments":)" + form + "}");
    EXPECT_EQ(plane_.invokes.back().request.params(), R"({"name":"bake","arguments":{}})");
  }
  Tool("call", R"({"slug":"maya.1f2e3d4c.bake"})");
  EXPECT_EQ(plane_.invokes.back().request.params(), R"({"name":"bake","arguments":{}})");
  EXPECT_EQ(plane_.invokes.size(), 6u);
  for (const std::string form : {"[1]", "7", R"("[1]")", R"("{")"}) {
    const Answer answer = Tool("call", R"({"slug":"maya.1f2e3d4c.bake","arguments":)" + form + "}");
    EXPECT_NE(answer->body.find("arguments must be a JSON object"), std::string::npos) << form;
    EXPECT_NE(answer->body.find(R"("isError":true)"), std::string::npos);
  }
  EXPECT_EQ(plane_.invokes.size(), 6u);
}

TEST_F(FacadeCalls, PassTheClientsMeta) {
  session_ = Open();
  PostIn(
      session_,
      R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call_tool","_meta":{"progressToken":1, "x":2},"arguments":{"tool_slug":"maya.1f2e3d4c.bake"}}})");
  EXPECT_EQ(plane_.invokes[0].request.params(),
            R"({"name":"bake","arguments":{},"_meta":{"progressToken":1, "x":2}})");
  EXPECT_EQ(plane_.invokes[0].request.progress_token(), "1");
}

TEST_F(FacadeCalls, SayWhichSkillToLoadFirst) {
  plane_.tools = {Hit("maya", "carve", false)};
  const Answer answer = Tool("call_tool", R"({"tool_slug":"maya.1f2e3d4c.carve"})");
  v1::InvokeEvent error;
  error.mutable_outcome()->set_class_(v1::RPC_ERROR);
  error.mutable_outcome()->mutable_body()->set_inline_(R"({"code":-32602,"message":"unknown"})");
  plane_.invokes[0].script->Push(error);
  EXPECT_NE(answer->body.find(R"("isError":true)"), std::string::npos);
  EXPECT_NE(
      answer->body.find(
          R"(call load_skill with {\"skill_name\":\"modeling\",\"instance\":\"1f2e3d4c000000000000000000000000\"} first)"),
      std::string::npos)
      << answer->body;
}

TEST_F(FacadeCalls, LeaveFailuresOfLoadedToolsAlone) {
  plane_.tools = {Hit("maya", "bake")};
  const Answer answer = Tool("call_tool", R"({"tool_slug":"maya.1f2e3d4c.bake"})");
  v1::InvokeEvent failed = Result(R"({"content":[],"isError":true})");
  failed.mutable_outcome()->mutable_facts()->set_is_error(true);
  plane_.invokes[0].script->Push(failed);
  EXPECT_EQ(answer->body, R"({"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}})");
}

TEST_F(FacadeCalls, ResolveDirectNamesIfTheyAreUnique) {
  plane_.tools = {Hit("maya", "modeling__bake"), Hit("hou", "cook")};
  Tool("modeling__bake", R"({"a":1})");
  EXPECT_EQ(plane_.invokes[0].request.target().seat_id(), "1f2e3d4c000000000000000000000000");
  EXPECT_EQ(plane_.invokes[0].request.params(), R"({"name":"modeling__bake","arguments":{"a":1}})");
  Tool("hou__cook", "{}");
  EXPECT_EQ(plane_.invokes[1].request.params(), R"({"name":"cook","arguments":{}})");
  Tool("hou.1f2e3d4c.cook", "{}");
  EXPECT_EQ(plane_.invokes[2].request.target().instance(), "1f2e3d4c");
  plane_.tools.push_back(Hit("blender", "cook"));
  EXPECT_NE(Tool("cook", "{}")
                ->body.find(
                    "call_tool with one of these slugs: hou.1f2e3d4c.cook, blender.1f2e3d4c.cook"),
            std::string::npos);
}

TEST_F(FacadeCalls, OfUnknownToolsNameTheFive) {
  const Answer answer = Tool("nothing__here", "{}");
  EXPECT_NE(answer->body.find(R"("code":-32602)"), std::string::npos);
  EXPECT_NE(answer->body.find("search_tools, describe_tool, call_tool, list_instances, load_skill"),
            std::string::npos);
}

TEST_F(FacadeCalls, CallByNameAndInstance) {
  Tool("call_tool", R"({"tool_slug":"bake","instance":"maya-1"})");
  EXPECT_EQ(plane_.invokes[0].request.target().instance(), "maya-1");
}

TEST_F(FacadeCalls, LoadSkillsAndListInstances) {
  plane_.tools = {Hit("maya", "bake")};
  const Answer loaded =
      Tool("load_skill", R"({"skill_name":"modeling","dcc_type":"maya","instance":null})");
  EXPECT_EQ(plane_.loads[0].skill(), "modeling");
  EXPECT_EQ(plane_.loads[0].app(), "maya");
  EXPECT_NE(loaded->body.find(R"("new_tools":[{"slug":"maya.1f2e3d4c.bake","summary":"does it"}])"),
            std::string::npos);
  plane_.load_error = absl::FailedPreconditionError("two instances: name one");
  EXPECT_NE(Tool("load_skill", R"({"skill_name":"m"})")->body.find("two instances: name one"),
            std::string::npos);
  plane_.instances = {Row("maya-1", "aabb")};
  EXPECT_NE(Tool("list_instances", "{}")->body.find(R"("mcp_path":"/mcp/aabb")"),
            std::string::npos);
}

TEST_F(FacadeCalls, TellThatTheApplicationCouldNotLoadASkill) {
  plane_.load_result = R"({"content":[],"isError":true})";
  const Answer failed = Tool("load_skill", R"({"skill_name":"nonesuch"})");
  EXPECT_NE(failed->body.find(R"("loaded":false)"), std::string::npos);
  EXPECT_NE(failed->body.find(R"("isError":true})"), std::string::npos);
}

TEST_F(FacadeCalls, ReportWrongArgumentsByRevision) {
  EXPECT_NE(Tool("search_tools", R"({"limit":"many"})")
                ->body.find("limit must be a whole number that is not negative, got string"),
            std::string::npos);
  session_ = Open("2025-06-18");
  EXPECT_NE(Tool("call_tool", "{}")->body.find(R"("code":-32602)"), std::string::npos);
  const Answer nameless = PostIn(session_, R"({"jsonrpc":"2.0","id":1,"method":"tools/call"})");
  EXPECT_NE(nameless->body.find(R"("code":-32602)"), std::string::npos);
}

TEST_F(FacadeCalls, EndWhenTheControlPlaneIsSilent) {
  session_ = Open();
  plane_.silent = true;
  const Answer answer = Tool("search_tools", "{}");
  loop_.RunFor(absl::Seconds(32));
  EXPECT_NE(answer->body.find(R"("reason":"hard_timer","certainty":"not_started")"),
            std::string::npos);
}

}  // namespace
}  // namespace callboard::tests
