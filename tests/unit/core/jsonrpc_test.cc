// Tests of the JSON-RPC envelope.
#include "core/mcp/jsonrpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/runtime/strings.h"

namespace callboard::core {
namespace {

using Kind = JsonRpcMessage::Kind;
using testing::HasSubstr;

std::string Problem(std::string_view text) {
  const auto message = ParseJsonRpc(text, true);
  EXPECT_EQ(message.status().code(), absl::StatusCode::kFailedPrecondition) << text;
  EXPECT_EQ(ParseJsonRpc(text, false).status(), message.status()) << text;
  return std::string(Message(message.status()));
}

TEST(JsonRpc, ReadsARequest) {
  const auto message =
      ParseJsonRpc(R"( {"params":{"a":"b", "n":12345678901234567890} , "method":"a\/b",)"
                   R"("id":"a\n","jsonrpc":"2.0"} )",
                   true);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->kind, Kind::kRequest);
  EXPECT_EQ(message->id, R"("a\n")");
  EXPECT_EQ(message->method, "a/b");
  EXPECT_EQ(message->params, R"({"a":"b", "n":12345678901234567890})");
  EXPECT_TRUE(message->result.empty());
}

TEST(JsonRpc, ReadsTheOtherKinds) {
  const auto notification = ParseJsonRpc(R"({"jsonrpc":"2.0","method":"x"})", true);
  ASSERT_TRUE(notification.ok());
  EXPECT_EQ(notification->kind, Kind::kNotification);
  EXPECT_TRUE(notification->params.empty());
  const auto result = ParseJsonRpc(R"({"jsonrpc":"2.0","id":-3,"result":null})", true);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->kind, Kind::kResult);
  EXPECT_EQ(result->id, "-3");
  EXPECT_EQ(result->result, "null");
  const auto error =
      ParseJsonRpc(R"({"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}})", true);
  ASSERT_TRUE(error.ok());
  EXPECT_EQ(error->kind, Kind::kError);
  EXPECT_EQ(error->error, R"({"code":1,"message":""})");
}

TEST(JsonRpc, AdmitsAnErrorWithoutId) {
  const auto error = ParseJsonRpc(R"({"jsonrpc":"2.0","error":{}})", true);
  ASSERT_TRUE(error.ok());
  EXPECT_EQ(error->kind, Kind::kError);
  EXPECT_TRUE(error->id.empty());
}

TEST(JsonRpc, ComparesDecodedNames) {
  const auto message =
      ParseJsonRpc(R"({"json\u0072pc":"\u0032.0","\u0069d":1,"\u006dethod":"x"})", true);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->id, "1");
  EXPECT_EQ(message->method, "x");
}

TEST(JsonRpc, RefusesDuplicatedMembers) {
  EXPECT_EQ(Problem(R"({"jsonrpc":"2.0","id":1,"method":"a","\u006dethod":"b"})"),
            "not a JSON-RPC 2.0 message: member \"method\" occurs twice");
  for (std::string_view member : {R"("jsonrpc":"2.0")", R"("id":1)", R"("method":"x")",
                                  R"("params":{})", R"("result":1)", R"("error":{})"}) {
    const std::string text =
        "{\"jsonrpc\":\"2.0\"," + std::string(member) + "," + std::string(member) + "}";
    EXPECT_THAT(Problem(text), HasSubstr("occurs twice")) << text;
  }
}

TEST(JsonRpc, RefusesWhatIsJsonButNoMessage) {
  EXPECT_THAT(Problem("[]"), HasSubstr("batches are not supported"));
  EXPECT_THAT(Problem("1"), HasSubstr("one object"));
  EXPECT_THAT(Problem("{}"), HasSubstr("\"jsonrpc\":\"2.0\""));
  EXPECT_THAT(Problem(R"({"jsonrpc":2.0,"id":1,"method":"x"})"), HasSubstr("\"jsonrpc\":\"2.0\""));
  EXPECT_THAT(Problem(R"({"jsonrpc":"1.0","id":1,"method":"x"})"),
              HasSubstr("\"jsonrpc\":\"2.0\""));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0"})"), HasSubstr("no method, no result and no error"));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0","id":1})"), HasSubstr("no method"));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0","id":1,"result":1,"error":{}})"), HasSubstr("both"));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0","id":1,"method":"x","result":1})"), HasSubstr("both"));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0","result":1})"), HasSubstr("no id"));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0","id":1,"error":"x"})"), HasSubstr("error must be"));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0","id":1,"method":7})"), HasSubstr("method must be"));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0","id":1,"method":"x","params":"y"})"),
              HasSubstr("params"));
  EXPECT_THAT(Problem(R"({"jsonrpc":"2.0","id":1,"method":"x","params":null})"),
              HasSubstr("params"));
}

TEST(JsonRpc, RefusesIdsThatAreNoStringOrInteger) {
  for (std::string_view id : {"null", "1.5", "1e3", "{}", "[1]", "true"}) {
    const std::string text =
        "{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"id\":" + std::string(id) + "}";
    EXPECT_EQ(Problem(text),
              "not a JSON-RPC 2.0 message: its id must be a string or an integer, not " +
                  std::string(id));
  }
}

TEST(JsonRpc, ReportsBrokenTextBeforeABrokenEnvelope) {
  for (std::string_view text : {"", "  ", "{", "[1", "x", "{\"id\":null,", R"({"id":1,"id":2} x)",
                                R"({"jsonrpc":"2.0","method":"x","params":{"a":[1,2})"}) {
    EXPECT_EQ(ParseJsonRpc(text, true).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(ParseJsonRpc(text, false).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(JsonRpc, LooksIntoValuesOnlyWhenValidating) {
  for (std::string_view text : {R"({"jsonrpc":"2.0","method":"x","params":{"a":[1,,2]}})",
                                "{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":[\"\xff\"]}"}) {
    EXPECT_EQ(ParseJsonRpc(text, true).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(ParseJsonRpc(text, false).ok());
  }
}

TEST(JsonRpc, BoundsDepth) {
  const auto text = [](size_t depth) {
    return R"({"jsonrpc":"2.0","method":"x","params":)" + std::string(depth, '[') +
           std::string(depth, ']') + "}";
  };
  for (bool validate : {true, false}) {
    EXPECT_TRUE(ParseJsonRpc(text(kJsonDepthMax - 1), validate).ok());
    EXPECT_FALSE(ParseJsonRpc(text(kJsonDepthMax), validate).ok());
    EXPECT_FALSE(ParseJsonRpc(text(1 << 20), validate).ok());
  }
}

TEST(JsonRpc, WritesMessages) {
  EXPECT_EQ(MakeRequest("7", "a\"b", "{\"x\":1}"),
            R"({"jsonrpc":"2.0","id":7,"method":"a\"b","params":{"x":1}})");
  EXPECT_EQ(MakeRequest("\"s\"", "ping", ""), R"({"jsonrpc":"2.0","id":"s","method":"ping"})");
  EXPECT_EQ(MakeNotification("n", "{}"), R"({"jsonrpc":"2.0","method":"n","params":{}})");
  EXPECT_EQ(MakeNotification("n", ""), R"({"jsonrpc":"2.0","method":"n"})");
  EXPECT_EQ(MakeResult("1", "{}"), R"({"jsonrpc":"2.0","id":1,"result":{}})");
  EXPECT_EQ(MakeErrorResponse("1", kInvalidParams, "no\nway"),
            R"({"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no\nway"}})");
  EXPECT_EQ(MakeErrorResponse("", kParseError, "x", "[1]"),
            R"({"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x","data":[1]}})");
  EXPECT_EQ(MakeRawErrorResponse("2", "{\"code\": 1}"),
            R"({"jsonrpc":"2.0","id":2,"error":{"code": 1}})");
}

TEST(JsonRpc, ReadsWhatItWrites) {
  const std::string text = MakeRequest("\"a\"", "tools/call", "{\"x\":[1]}");
  const auto message = ParseJsonRpc(text, true);
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message->method, "tools/call");
  EXPECT_EQ(message->params, "{\"x\":[1]}");
}

}  // namespace
}  // namespace callboard::core
