// What the seats offer: each distinct list once by digest, tools with what the hub must know of
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/runtime/strings.h"

namespace callboard::server {

// What of a tool is searched, most telling first.
enum class SearchField { kName, kAlias, kTitle, kSkill, kTag, kDescription };
inline constexpr size_t kSearchFields = 6;

// The words of a text in lower case: split at everything that is no letter or digit and where
// camelCase begins a new word. Bytes beyond ASCII count as letters.
std::vector<std::string> SearchWords(std::string_view text);

// One tool of a list. `definition` is the backend's own text of the Tool.
struct ToolInfo {
  std::string name;
  std::string title;
  std::string description;
  std::string definition;                      // raw JSON
  std::string input_schema;                    // raw JSON; empty if none
  std::string annotations;                     // raw JSON object or empty
  bool read_only = false;                      // annotations.readOnlyHint
  bool idempotent = false;                     // annotations.idempotentHint, or read_only
  std::optional<absl::Duration> timeout_hint;  // _meta.dcc.timeoutHintSecs
  std::vector<std::string> aliases;            // _meta.dcc.searchAliases
  std::vector<std::string> tags;
  // A stub that stands for a skill not loaded yet ("__skill__<name>"): the skill's name, else
  // empty.
  std::string unloaded_skill;
  std::string skill;  // the skill it belongs to, where the tool says so; of a stub the unloaded one
  // Per SearchField its words, each between line feeds: "\ncreate\nsphere\n"; empty if none.
  std::array<std::string, kSearchFields> search;
};

// First sentence of a description, at most 200 characters.
std::string Summary(std::string_view description);

// Immutable once made; shared by all seats with the same digest.
struct ToolList {
  std::string digest;
  std::string array;            // raw JSON array, the backend's bytes: what tools/list serves
  std::vector<ToolInfo> tools;  // in the backend's order
  core::StringMap<size_t> by_name;
  const ToolInfo* Find(std::string_view name) const;
};

inline constexpr size_t kToolsPerListMax = 20'000;

// Parses {"tools":[...]}. InvalidArgument says which tool is broken or that there are more than
// kToolsPerListMax; tools without a name are skipped, of two with one name the first counts (both
// stay in `array`).
absl::StatusOr<std::shared_ptr<const ToolList>> ParseToolList(std::string digest,
                                                              std::string_view body);

// Pure table: seat -> list. Lists are kept while a seat uses them; one that no seat uses yet until
// the next Put.
class ToolCatalog {
 public:
  // Whether the list of that digest is at hand.
  bool Has(std::string_view digest) const;
  void Put(std::shared_ptr<const ToolList> list);
  // The seat now has the list of that digest (which may come later).
  void Assign(const std::string& seat_id, const std::string& digest);
  void RemoveSeat(const std::string& seat_id);

  // nullptr while the seat's list is not known.
  std::shared_ptr<const ToolList> Of(std::string_view seat_id) const;
  // Grows with every change of any seat's list.
  uint64_t generation() const { return generation_; }
  size_t lists() const { return lists_.size(); }

 private:
  void Release(const std::string& digest);

  std::map<std::string, std::shared_ptr<const ToolList>, std::less<>> lists_;
  std::map<std::string, std::string, std::less<>> digest_of_seat_;
  std::map<std::string, size_t, std::less<>> seats_of_digest_;
  uint64_t generation_ = 1;
};

}  // namespace callboard::server
