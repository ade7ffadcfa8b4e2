// Tests of what the bridge lets in: hosts, origins, paths, methods, media types.
#include "tests/unit/bridge/bridge_fixture.h"

namespace callboard::tests {
namespace {

using Access = BridgeTest;

TEST_F(Access, RefusesForeignHosts) {
  for (const std::string host : {"evil.example", "localhost.evil.example", "127.0.0.1:80x", ""}) {
    EXPECT_EQ(Send("GET", "/health", {{"Host", host}})->status, 403) << host;
  }
  const Answer answer = Send("GET", "/health", {{"Host", "evil.example"}});
  EXPECT_EQ(answer->Header("Content-Type"), "application/json");
  EXPECT_NE(answer->body.find("host 'evil.example' is not served here"), std::string::npos);
  EXPECT_EQ(bridge_->gauges().foreign_refused, 5u);
}

TEST_F(Access, TakesLoopbackHostsWithAnyPort) {
  for (const std::string host : {"localhost", "LocalHost:1", "127.0.0.1:9765", "[::1]:80"}) {
    EXPECT_EQ(Send("GET", "/health", {{"Host", host}})->status, 200) << host;
  }
}

TEST_F(Access, RefusesForeignOriginsAndSecondHeaders) {
  for (const std::string origin :
       {"https://evil.example", "null", "file://", "http://localhost@x"}) {
    const Answer answer = Send("GET", "/health", {{"Host", "localhost"}, {"Origin", origin}});
    EXPECT_EQ(answer->status, 403) << origin;
    EXPECT_EQ(answer->Header("Access-Control-Allow-Origin"), "");
  }
  EXPECT_EQ(Send("GET", "/health", {{"Host", "localhost"}, {"Host", "evil.example"}})->status, 403);
}

TEST_F(Access, TellsAllowedPagesSo) {
  const Answer answer =
      Send("GET", "/health", {{"Host", "localhost"}, {"Origin", "http://localhost:3000"}});
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->Header("Access-Control-Allow-Origin"), "http://localhost:3000");
  EXPECT_EQ(answer->Header("Access-Control-Expose-Headers"), "Mcp-Session-Id");
}

TEST_F(Access, TakesConfiguredHostsAndOrigins) {
  Restart({.allowed_hosts = {"Studio.example"}, .allowed_origins = {"https://tools.example"}});
  EXPECT_EQ(Send("GET", "/health", {{"Host", "studio.example:9765"}})->status, 200);
  EXPECT_EQ(
      Send("GET", "/health", {{"Host", "localhost"}, {"Origin", "https://tools.example"}})->status,
      200);
  EXPECT_EQ(
      Send("GET", "/health", {{"Host", "localhost"}, {"Origin", "http://tools.example"}})->status,
      403);
}

TEST_F(Access, AnswersPreflightsOfAllowedPagesOnly) {
  const Answer own =
      Send("OPTIONS", "/mcp", {{"Host", "localhost"}, {"Origin", "http://127.0.0.1:1"}});
  EXPECT_EQ(own->status, 204);
  EXPECT_EQ(own->Header("Access-Control-Allow-Methods"), "POST, GET, DELETE, OPTIONS");
  EXPECT_EQ(Send("OPTIONS", "/mcp", {{"Origin", "https://evil.example"}})->status, 403);
  const Answer plain = Send("OPTIONS", "/mcp", {});
  EXPECT_EQ(plain->status, 204);
  EXPECT_EQ(plain->Header("Access-Control-Allow-Methods"), "");
}

TEST_F(Access, AllowsEveryHeaderThatRepeatsAnArgument) {
  const Answer answer = Send("OPTIONS", "/mcp",
                             {{"Host", "localhost"},
                              {"Origin", "http://localhost:1"},
                              {"Access-Control-Request-Headers",
                               "mcp-param-region, x-evil,Mcp-Param-Size,mcp-param-a\"b"}});
  const std::string allowed = answer->Header("Access-Control-Allow-Headers");
  EXPECT_NE(allowed.find("Mcp-Method, Mcp-Name"), std::string::npos);
  EXPECT_TRUE(allowed.ends_with("x-agent-status, mcp-param-region, mcp-param-size")) << allowed;
}

TEST_F(Access, NamesPathsAndMethodsThatExist) {
  const Answer lost = Send("GET", "/nowhere", {});
  EXPECT_EQ(lost->status, 404);
  EXPECT_NE(lost->body.find("/mcp/{instance}"), std::string::npos);
  const Answer put = Send("PUT", "/mcp", {});
  EXPECT_EQ(put->status, 405);
  EXPECT_EQ(put->Header("Allow"), "POST, GET, DELETE, OPTIONS");
  EXPECT_EQ(Send("POST", "/health", {})->Header("Allow"), "GET, HEAD, OPTIONS");
}

TEST_F(Access, ServesTrailingSlashesWithoutRedirect) {
  const std::string session = Open();
  EXPECT_EQ(PostIn(session, R"({"jsonrpc":"2.0","id":1,"method":"ping"})", "/mcp/")->body,
            R"({"jsonrpc":"2.0","id":1,"result":{}})");
}

TEST_F(Access, WantsJsonBodies) {
  for (const std::string type : {"text/plain", "application/jsonx", ""}) {
    EXPECT_EQ(Send("POST", "/mcp", {{"Content-Type", type}}, "{}")->status, 415) << type;
  }
  EXPECT_EQ(Send("POST", "/mcp", {}, "{}")->status, 415);
  EXPECT_EQ(
      Send("POST", "/mcp", {{"Content-Type", "Application/JSON; charset=utf-8"}}, "{}")->status,
      400);
}

TEST_F(Access, RefusesOnlyAcceptHeadersThatExcludeJsonAndEvents) {
  const std::string ping = R"({"jsonrpc":"2.0","id":1,"method":"ping"})";
  const std::string session = Open();
  const auto status = [&](std::string accept) {
    return Send("POST", "/mcp",
                {{"Content-Type", "application/json"},
                 {"Mcp-Session-Id", session},
                 {"Accept", std::move(accept)}},
                ping)
        ->status;
  };
  EXPECT_EQ(status("application/json"), 200);
  EXPECT_EQ(status("*/*"), 200);
  EXPECT_EQ(status("application/*;q=0.5"), 200);
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status("text/html"), 406);
  EXPECT_EQ(status("text/event-stream"), 200);
  EXPECT_EQ(status("text/*;q=0, application/json;q=0"), 406);
}

TEST_F(Access, ClientsThatAcceptOnlyEventsAreAnsweredByOne) {
  const Answer answer = Send("POST", "/mcp",
                             {{"Content-Type", "application/json"},
                              {"Mcp-Session-Id", Open()},
                              {"Accept", "text/event-stream"}},
                             R"({"jsonrpc":"2.0","id":"a","method":"ping"})");
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->Header("Content-Type"), "text/event-stream");
  EXPECT_EQ(answer->body, "data: {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}\n\n");
  EXPECT_TRUE(answer->ended);
}

}  // namespace
}  // namespace callboard::tests
