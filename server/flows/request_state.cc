// Implementation of RequestState.
#include "server/flows/request_state.h"

#include <charconv>
#include <optional>
#include <vector>

#include "absl/strings/str_split.h"
#include "core/runtime/digest.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr std::string_view kPrefix = "callboard1.";
constexpr size_t kParts = 5;
constexpr size_t kKeyNameChars = 8;
constexpr size_t kBytesMax = 256;
constexpr size_t kKeyBytes = 32;

std::optional<int64_t> ParseExpiry(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

const std::string& RequestState::Prefix() {
  if (key_.empty()) key_ = random_.Hex(kKeyBytes);
  if (prefix_.empty()) {
    const std::string name = core::HmacSha256Hex(key_, "name of the key").substr(0, kKeyNameChars);
    prefix_ = fmt::format("{}{}.", kPrefix, name);
  }
  return prefix_;
}

RequestState::Maker RequestState::MakerOf(std::string_view text) {
  if (!text.starts_with(kPrefix)) return Maker::kSomebodyElse;
  return text.starts_with(Prefix()) ? Maker::kUs : Maker::kAnotherCallboard;
}

std::string RequestState::Seal(const Parked& parked, std::string_view binding) {
  const std::string open =
      fmt::format("{}{}.{}", Prefix(), parked.call.hex(), parked.expires_unix_ms);
  return fmt::format("{}.{}", open,
                     core::HmacSha256Hex(key_, fmt::format("{}\n{}", open, binding)));
}

absl::StatusOr<RequestState::Parked> RequestState::Open(std::string_view text,
                                                        std::string_view binding,
                                                        int64_t now_unix_ms) {
  const absl::Status refused = absl::InvalidArgumentError(
      "requestState failed its check: it was changed, or belongs to another request");
  if (MakerOf(text) != Maker::kUs || text.size() > kBytesMax) return refused;
  const std::vector<absl::string_view> parts = absl::StrSplit(core::ToAbsl(text), '.');
  if (parts.size() != kParts) return refused;
  const auto call = CallId::FromHex(core::ToStd(parts[2]));
  const auto expires = ParseExpiry(core::ToStd(parts[3]));
  if (!call || !expires) return refused;
  const Parked parked{*call, *expires};
  if (!core::SameSecret(Seal(parked, binding), text)) return refused;
  if (now_unix_ms >= parked.expires_unix_ms) {
    return absl::DeadlineExceededError(
        "requestState has expired: the call it belongs to has used up its time; call again");
  }
  return parked;
}

}  // namespace callboard::server
