// Parses tool lists into what the hub must know of each tool, and keeps which seat has which list.
#include "server/domain/tool_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "core/mcp/json.h"
#include "core/runtime/status_macros.h"

namespace callboard::server {
namespace {

constexpr std::string_view kStubPrefix = "__skill__";
constexpr size_t kSummaryCharactersMax = 200;
constexpr size_t kSearchedDescriptionBytesMax = 4'096;
constexpr double kTimeoutHintSecondsMax = 24 * 3600;

bool IsUpper(char c) { return absl::ascii_isupper(static_cast<unsigned char>(c)); }
bool IsLower(char c) { return absl::ascii_islower(static_cast<unsigned char>(c)); }
bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }
bool IsWordByte(char c) {
  return IsUpper(c) || IsLower(c) || IsDigit(c) || (static_cast<unsigned char>(c) & 0x80) != 0;
}
bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

void AddWord(std::string& field, std::string_view word) {
  if (word.empty()) return;
  if (field.empty()) field = "\n";
  field += word;
  field += '\n';
}

void AddWords(std::string& field, std::string_view text) {
  for (const std::string& word : SearchWords(text)) AddWord(field, word);
}

std::vector<std::string> Strings(std::optional<std::string_view> raw) {
  std::vector<std::string> strings;
  if (!raw || !core::IsArray(*raw)) return strings;
  core::ForEachElement(*raw, [&](std::string_view element) {
    if (auto text = core::DecodeString(element)) strings.push_back(*std::move(text));
    return true;
  }).IgnoreError();
  return strings;
}

// The first of several spellings of a string member.
std::string FirstString(std::string_view object, std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) {
    if (auto text = core::FindString(object, key)) return *std::move(text);
  }
  return {};
}

std::optional<absl::Duration> TimeoutHint(std::string_view dcc) {
  auto raw = core::FindMember(dcc, "timeoutHintSecs");
  double seconds = 0;
  if (!raw || !core::IsNumber(*raw) || !absl::SimpleAtod(core::ToAbsl(*raw), &seconds) ||
      !(seconds > 0)) {
    return std::nullopt;
  }
  return absl::Seconds(std::min(seconds, kTimeoutHintSecondsMax));
}

void FillSearch(ToolInfo& tool) {
  auto field = [&](SearchField which) -> std::string& {
    return tool.search[static_cast<size_t>(which)];
  };
  const std::string& shown = tool.unloaded_skill.empty() ? tool.name : tool.unloaded_skill;
  std::string whole = shown;
  absl::AsciiStrToLower(&whole);
  AddWord(field(SearchField::kName), whole);
  AddWords(field(SearchField::kName), shown);
  for (const std::string& alias : tool.aliases) AddWords(field(SearchField::kAlias), alias);
  AddWords(field(SearchField::kTitle), tool.title);
  AddWords(field(SearchField::kSkill), tool.skill);
  for (const std::string& tag : tool.tags) AddWords(field(SearchField::kTag), tag);
  AddWords(field(SearchField::kDescription),
           std::string_view(tool.description).substr(0, kSearchedDescriptionBytesMax));
}

ToolInfo ParseTool(std::string_view raw, std::string name) {
  ToolInfo tool;
  tool.name = std::move(name);
  tool.definition = std::string(raw);
  tool.title = FirstString(raw, {"title"});
  tool.description = FirstString(raw, {"description"});
  if (auto schema = core::FindMember(raw, "inputSchema")) {
    tool.input_schema = std::string(*schema);
  }
  if (auto annotations = core::FindMember(raw, "annotations");
      annotations && core::IsObject(*annotations)) {
    tool.annotations = std::string(*annotations);
    tool.read_only = core::FindBool(*annotations, "readOnlyHint").value_or(false);
    tool.idempotent =
        tool.read_only || core::FindBool(*annotations, "idempotentHint").value_or(false);
    if (tool.title.empty()) tool.title = FirstString(*annotations, {"title"});
  }
  tool.tags = Strings(core::FindMember(raw, "tags"));
  if (auto dcc = core::FindPath(raw, {"_meta", "dcc"})) {
    tool.timeout_hint = TimeoutHint(*dcc);
    tool.aliases = Strings(core::FindMember(*dcc, "searchAliases"));
    for (std::string& tag : Strings(core::FindMember(*dcc, "tags"))) {
      if (std::find(tool.tags.begin(), tool.tags.end(), tag) == tool.tags.end()) {
        tool.tags.push_back(std::move(tag));
      }
    }
    tool.skill = FirstString(*dcc, {"skillName", "skill_name", "skill"});
  }
  if (tool.name.starts_with(kStubPrefix) && tool.name.size() > kStubPrefix.size()) {
    tool.unloaded_skill = tool.name.substr(kStubPrefix.size());
    tool.skill = tool.unloaded_skill;
  }
  FillSearch(tool);
  return tool;
}

// Where the first sentence ends: after a full stop that a word of its own kind follows ("e.g. a"
// goes on), or at a line feed.
size_t SentenceEnd(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') return i;
    if (text[i] != '.' && text[i] != '!' && text[i] != '?') continue;
    if (i + 1 == text.size()) return i + 1;
    if (!IsSpace(text[i + 1])) continue;
    size_t next = i + 1;
    while (next < text.size() && IsSpace(text[next])) ++next;
    if (next == text.size() || !IsLower(text[next])) return i + 1;
  }
  return text.size();
}

}  // namespace

std::vector<std::string> SearchWords(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  auto end_word = [&] {
    if (!word.empty()) words.push_back(std::exchange(word, {}));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!IsWordByte(c)) {
      end_word();
      continue;
    }
    if (IsUpper(c) && i > 0) {
      // "createSphere" and the last letter of "USDStage"'s first word.
      const bool after_lower = IsLower(text[i - 1]) || IsDigit(text[i - 1]);
      const bool before_lower = i + 1 < text.size() && IsLower(text[i + 1]);
      if (after_lower || (IsUpper(text[i - 1]) && before_lower)) end_word();
    }
    word += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  end_word();
  return words;
}

std::string Summary(std::string_view description) {
  while (!description.empty() && IsSpace(description.front())) description.remove_prefix(1);
  std::string_view sentence = description.substr(0, SentenceEnd(description));
  while (!sentence.empty() && IsSpace(sentence.back())) sentence.remove_suffix(1);

  size_t characters = 0;
  size_t cut = 0;  // where the last character that leaves room for the ellipsis ends
  for (size_t i = 0; i < sentence.size(); ++i) {
    if (IsContinuation(sentence[i])) continue;
    if (characters == kSummaryCharactersMax - 1) cut = i;
    if (++characters > kSummaryCharactersMax) {
      return std::string(sentence.substr(0, cut)) + "\u2026";
    }
  }
  return std::string(sentence);
}

const ToolInfo* ToolList::Find(std::string_view name) const {
  auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : &tools[found->second];
}

absl::StatusOr<std::shared_ptr<const ToolList>> ParseToolList(std::string digest,
                                                              std::string_view body) {
  CALLBOARD_RETURN_IF_ERROR(core::ValidateJson(body));
  auto array = core::FindMember(body, "tools");
  if (!array || !core::IsArray(*array)) {
    return core::MakeError(absl::StatusCode::kInvalidArgument,
                           fmt::format("tool list {} has no array \"tools\"",
                                       digest.empty() ? "(no digest)" : digest));
  }
  auto list = std::make_shared<ToolList>();
  list->digest = std::move(digest);
  list->array = std::string(*array);
  absl::Status broken = absl::OkStatus();
  size_t index = 0;
  CALLBOARD_RETURN_IF_ERROR(core::ForEachElement(*array, [&](std::string_view raw) {
    const size_t here = index++;
    if (here >= kToolsPerListMax) {
      broken = core::MakeError(
          absl::StatusCode::kInvalidArgument,
          fmt::format("tool list {} has more than {} tools", list->digest, kToolsPerListMax));
      return false;
    }
    if (!core::IsObject(raw)) {
      broken =
          core::MakeError(absl::StatusCode::kInvalidArgument,
                          fmt::format("tool list {}: tool {} is not an object but {}", list->digest,
                                      here, raw.substr(0, std::min<size_t>(raw.size(), 40))));
      return false;
    }
    std::optional<std::string> name = core::FindString(raw, "name");
    if (!name || name->empty() || list->by_name.contains(*name)) return true;
    list->by_name.emplace(*name, list->tools.size());
    list->tools.push_back(ParseTool(raw, *std::move(name)));
    return true;
  }));
  CALLBOARD_RETURN_IF_ERROR(broken);
  return list;
}

bool ToolCatalog::Has(std::string_view digest) const { return lists_.contains(digest); }

void ToolCatalog::Put(std::shared_ptr<const ToolList> list) {
  std::erase_if(lists_,
                [this](const auto& entry) { return !seats_of_digest_.contains(entry.first); });
  const std::string digest = list->digest;
  lists_[digest] = std::move(list);
  ++generation_;
}

void ToolCatalog::Assign(const std::string& seat_id, const std::string& digest) {
  auto [entry, added] = digest_of_seat_.try_emplace(seat_id, digest);
  if (!added && entry->second == digest) return;
  ++seats_of_digest_[digest];
  if (!added) Release(std::exchange(entry->second, digest));
  ++generation_;
}

void ToolCatalog::RemoveSeat(const std::string& seat_id) {
  auto entry = digest_of_seat_.find(seat_id);
  if (entry == digest_of_seat_.end()) return;
  Release(entry->second);
  digest_of_seat_.erase(entry);
  ++generation_;
}

void ToolCatalog::Release(const std::string& digest) {
  auto count = seats_of_digest_.find(digest);
  if (--count->second > 0) return;
  seats_of_digest_.erase(count);
  lists_.erase(digest);
}

std::shared_ptr<const ToolList> ToolCatalog::Of(std::string_view seat_id) const {
  auto entry = digest_of_seat_.find(seat_id);
  if (entry == digest_of_seat_.end()) return nullptr;
  auto list = lists_.find(entry->second);
  return list == lists_.end() ? nullptr : list->second;
}

}  // namespace callboard::server
