// Fuzzes JSON-RPC parsing and the edits in place: what is edited still says everything else.
#include <string>
#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "tests/fuzz/fuzz_target.h"

using namespace callboard::core;

namespace {

std::vector<std::pair<std::string, std::string>> MembersBut(std::string_view object,
                                                            std::string_view left_out) {
  std::vector<std::pair<std::string, std::string>> members;
  FUZZ_CHECK(ForEachMember(object, [&](JsonMember member) {
               if (!member.Is(left_out)) members.emplace_back(member.key, member.value);
               return true;
             }).ok());
  return members;
}

void CheckEdits(std::string_view text) {
  const std::string edited = SetMember(text, "id", "\"ours\"");
  FUZZ_CHECK(ValidateJson(edited).ok());
  FUZZ_CHECK(FindMember(edited, "id") == "\"ours\"");
  FUZZ_CHECK(MembersBut(edited, "id") == MembersBut(text, "id"));
  const std::string removed = RemoveMember(text, "id");
  FUZZ_CHECK(ValidateJson(removed).ok());
  FUZZ_CHECK(!FindMember(removed, "id"));
  FUZZ_CHECK(MembersBut(removed, "id") == MembersBut(text, "id"));
  const std::string deep = SetPath(text, {"params", "_meta", "progressToken"}, "9007199254740993");
  FUZZ_CHECK(FindPath(deep, {"params", "_meta", "progressToken"}) == "9007199254740993");
  FUZZ_CHECK(MembersBut(deep, "params") == MembersBut(text, "params"));
  std::string flat(text);
  FlattenLines(flat.data(), flat.size());
  FUZZ_CHECK(flat.find_first_of("\r\n") == std::string::npos);
  FUZZ_CHECK(ValidateJson(flat).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool valid = ValidateJson(text).ok();
  const auto strict = ParseJsonRpc(text, /*validate=*/true);
  const auto lax = ParseJsonRpc(text, /*validate=*/false);
  if (strict.ok()) {
    FUZZ_CHECK(valid && lax.ok());
    FUZZ_CHECK(lax->kind == strict->kind && lax->id == strict->id && lax->params == strict->params);
    FUZZ_CHECK(strict->id.empty() || IsString(strict->id) || IsNumber(strict->id));
    if (strict->kind == JsonRpcMessage::Kind::kRequest) {
      const std::string again = MakeRequest(strict->id, strict->method, strict->params);
      const auto parsed = ParseJsonRpc(again, true);
      FUZZ_CHECK(parsed.ok() && parsed->id == strict->id && parsed->params == strict->params);
      FUZZ_CHECK(parsed->method == strict->method);
    }
  } else {
    // The two mistakes are told apart: no JSON, or JSON that is no message.
    FUZZ_CHECK(valid == (strict.status().code() == absl::StatusCode::kFailedPrecondition));
  }
  if (valid && ForEachMember(text, [](JsonMember) { return true; }).ok()) CheckEdits(text);

  const std::string quoted = QuoteJson(text);
  FUZZ_CHECK(ValidateJson(quoted).ok());
  const auto decoded = DecodeString(quoted);
  FUZZ_CHECK(decoded && QuoteJson(*decoded) == quoted);
  if (const auto plain = DecodeString(text)) FUZZ_CHECK(DecodeString(QuoteJson(*plain)) == plain);
  return 0;
}
