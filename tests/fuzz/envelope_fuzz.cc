// Fuzzes the envelope of requests without a session: what is added is read back, what is removed is
// gone, and nothing else changes.
#include <string>
#include <utility>
#include <vector>

#include "core/mcp/envelope.h"
#include "core/mcp/json.h"
#include "tests/fuzz/fuzz_target.h"

using namespace callboard::core;

namespace {

std::vector<std::pair<std::string, std::string>> MembersButMeta(std::string_view object) {
  std::vector<std::pair<std::string, std::string>> members;
  FUZZ_CHECK(ForEachMember(object, [&](JsonMember member) {
               if (!member.Is("_meta")) members.emplace_back(member.key, member.value);
               return true;
             }).ok());
  return members;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view params(reinterpret_cast<const char*>(data), size);
  // As the bridge does: the envelope is read of what is JSON.
  if (!ValidateJson(params).ok()) return 0;
  const auto claim = FindModernClaim(params);
  const auto envelope = ReadEnvelope(params);
  if (!envelope.ok()) {
    FUZZ_CHECK(envelope.status().code() == absl::StatusCode::kInvalidArgument);
  } else {
    FUZZ_CHECK(claim && IsString(*claim));
    FUZZ_CHECK(IsObject(envelope->capabilities));
    FUZZ_CHECK(envelope->client_info.empty() || IsObject(envelope->client_info));
    const std::string removed = RemoveEnvelope(params);
    FUZZ_CHECK(ValidateJson(removed).ok());
    FUZZ_CHECK(!FindModernClaim(removed));
    FUZZ_CHECK(MembersButMeta(removed) == MembersButMeta(params));
    const std::string added = AddEnvelope(removed, "2026-07-28", *envelope);
    const auto again = ReadEnvelope(added);
    FUZZ_CHECK(again.ok() && again->capabilities == envelope->capabilities);
    FUZZ_CHECK(again->client_info == envelope->client_info);
    FUZZ_CHECK(again->log_level == envelope->log_level);
    FUZZ_CHECK(MembersButMeta(added) == MembersButMeta(params));
  }
  if (!IsObject(params)) return 0;
  FUZZ_CHECK(ValidateJson(RemoveEnvelope(params)).ok());
  const std::string added = AddEnvelope(params, "2026-07-28", {});
  FUZZ_CHECK(ValidateJson(added).ok());
  FUZZ_CHECK(FindModernClaim(added) == "\"2026-07-28\"");
  return 0;
}
