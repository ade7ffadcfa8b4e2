// Implementation of the facade's argument forms.
#include "bridge/facade/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/mcp/json.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

absl::Status Invalid(std::string_view message) {
  return core::MakeError(absl::StatusCode::kInvalidArgument, message);
}

std::string_view KindOf(std::string_view raw) {
  if (core::IsObject(raw)) return "object";
  if (core::IsArray(raw)) return "array";
  if (core::IsString(raw)) return "string";
  if (core::IsNumber(raw)) return "number";
  return raw == "null" ? "null" : "boolean";
}

// null counts as absent everywhere: several clients fill in every optional member with it.
class MemberReader {
 public:
  explicit MemberReader(const core::JsonMember& member) : member_(member) {}

  bool Is(std::initializer_list<std::string_view> names) const {
    return std::ranges::any_of(names, [&](std::string_view name) { return member_.Is(name); });
  }
  absl::Status Text(std::string* target) const {
    if (IsNull()) return absl::OkStatus();
    auto text = core::DecodeString(member_.value);
    if (!text) return Wrong("a string");
    *target = *std::move(text);
    return absl::OkStatus();
  }
  absl::Status Flag(bool* target) const {
    if (IsNull()) return absl::OkStatus();
    if (member_.value != "true" && member_.value != "false") return Wrong("true or false");
    *target = member_.value == "true";
    return absl::OkStatus();
  }
  absl::Status Count(uint32_t* target) const {
    if (IsNull()) return absl::OkStatus();
    const auto number = core::FindInteger(fmt::format(R"({{"n":{}}})", member_.value), "n");
    if (!number || *number < 0) return Wrong("a whole number that is not negative");
    *target = static_cast<uint32_t>(std::min<int64_t>(*number, UINT32_MAX));
    return absl::OkStatus();
  }
  absl::Status Time(absl::Duration unit, std::optional<absl::Duration>* target) const {
    if (IsNull()) return absl::OkStatus();
    uint32_t count = 0;
    CALLBOARD_RETURN_IF_ERROR(Count(&count));
    *target = count * unit;
    return absl::OkStatus();
  }

 private:
  bool IsNull() const { return member_.value == "null"; }
  absl::Status Wrong(std::string_view wanted) const {
    return Invalid(
        fmt::format("{} must be {}, got {}", member_.key, wanted, KindOf(member_.value)));
  }

  const core::JsonMember& member_;
};

absl::Status TakeMember(const core::JsonMember& member, FacadeArguments* taken) {
  const MemberReader reader(member);
  if (reader.Is({"tool_slug", "slug"})) return reader.Text(&taken->slug);
  if (reader.Is({"dcc_type", "dcc", "app"})) return reader.Text(&taken->app);
  if (reader.Is({"instance", "instance_id"})) return reader.Text(&taken->instance);
  if (reader.Is({"query"})) return reader.Text(&taken->query);
  if (reader.Is({"skill_name", "skill"})) return reader.Text(&taken->skill);
  if (reader.Is({"job_id", "id"})) return reader.Text(&taken->job_id);
  if (reader.Is({"include_result"})) return reader.Flag(&taken->include_result);
  if (reader.Is({"timeout_ms"})) return reader.Time(absl::Milliseconds(1), &taken->timeout);
  if (reader.Is({"timeout_secs"})) return reader.Time(absl::Seconds(1), &taken->timeout);
  if (reader.Is({"limit"})) return reader.Count(&taken->limit);
  if (reader.Is({"offset"})) return reader.Count(&taken->offset);
  if (reader.Is({"loaded_only"})) return reader.Flag(&taken->loaded_only);
  if (reader.Is({"include_stale"})) return reader.Flag(&taken->include_stale);
  if (reader.Is({"include_dead"})) return reader.Flag(&taken->include_dead);
  if (reader.Is({"meta"}) && core::IsObject(member.value)) taken->meta = member.value;
  if (reader.Is({"arguments"})) {
    CALLBOARD_ASSIGN_OR_RETURN(taken->arguments, NormalizeArguments(member.value));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FacadeArguments> ParseFacadeArguments(std::string_view raw) {
  CALLBOARD_ASSIGN_OR_RETURN(const std::string object, NormalizeArguments(raw));
  FacadeArguments taken;
  absl::Status wrong;
  CALLBOARD_RETURN_IF_ERROR(core::ForEachMember(object, [&](const core::JsonMember& member) {
    wrong = TakeMember(member, &taken);
    return wrong.ok();
  }));
  CALLBOARD_RETURN_IF_ERROR(wrong);
  return taken;
}

absl::StatusOr<std::string> NormalizeArguments(std::string_view raw) {
  if (raw.empty() || raw == "null") return "{}";
  if (core::IsObject(raw)) return std::string(raw);
  if (!core::IsString(raw)) {
    return Invalid(fmt::format("arguments must be a JSON object, got {}", KindOf(raw)));
  }
  std::string text = core::DecodeString(raw).value_or("");
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "{}";
  text = text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
  if (!core::IsObject(text) || !core::ValidateJson(text).ok()) {
    return Invalid("arguments must be a JSON object, got a string that does not hold one");
  }
  core::FlattenLines(text.data(), text.size());
  return text;
}

std::optional<SlugParts> SplitSlug(std::string_view slug) {
  const size_t first = slug.find('.');
  const size_t second = first == std::string_view::npos ? first : slug.find('.', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const SlugParts parts{slug.substr(0, first), slug.substr(first + 1, second - first - 1),
                        slug.substr(second + 1)};
  if (parts.app.empty() || parts.instance.empty() || parts.tool.empty()) return std::nullopt;
  return parts;
}

}  // namespace callboard::bridge
