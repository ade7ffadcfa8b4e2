// Implementation of MakeToolNames.
#include "server/domain/tool_names.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/runtime/digest.h"
#include "core/runtime/strings.h"

namespace callboard::server {
namespace {

constexpr size_t kAppCharactersMax = 16;
constexpr size_t kIdCharacters = 8;
constexpr size_t kHashCharacters = 8;
constexpr std::string_view kSeparator = "__";

bool IsLegal(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}
bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Appends `text` with "_" for each character that is not legal; whether all were.
bool AppendLegal(std::string& name, std::string_view text) {
  bool legal = true;
  for (const char c : text) {
    legal = legal && IsLegal(c);
    if (IsLegal(c)) {
      name += c;
    } else if (!IsContinuation(c)) {
      name += '_';
    }
  }
  return legal;
}

struct Spelling {
  std::string text;
  bool exact;  // says all of the tool's name
};

Spelling Spell(const ToolOrigin& origin) {
  std::string name;
  AppendLegal(name, origin.app.empty() ? std::string_view("mcp") : origin.app);
  name.resize(std::min(name.size(), kAppCharactersMax));
  if (!absl::ascii_isalpha(static_cast<unsigned char>(name.front())) && name.front() != '_') {
    name.insert(name.begin(), '_');
  }
  name += '_';
  AppendLegal(name, std::string_view(origin.seat_id).substr(0, kIdCharacters));
  name += kSeparator;
  const bool exact = AppendLegal(name, origin.tool);
  return {std::move(name), exact};
}

std::string WithHash(std::string name, const ToolOrigin& origin, size_t attempt,
                     size_t characters_max) {
  std::string hashed = origin.seat_id + '\n' + origin.tool;
  if (attempt > 0) hashed += '\n' + std::to_string(attempt);
  name.resize(std::min(name.size(), characters_max - kHashCharacters - 1));
  return name + '_' + core::Sha256Hex(hashed).substr(0, kHashCharacters);
}

}  // namespace

std::vector<std::string> MakeToolNames(const std::vector<ToolOrigin>& origins,
                                       size_t characters_max) {
  std::vector<size_t> order(origins.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&origins](size_t a, size_t b) {
    return std::tie(origins[a].seat_id, origins[a].tool) <
           std::tie(origins[b].seat_id, origins[b].tool);
  });
  std::vector<std::string> names(origins.size());
  core::StringSet taken;
  std::vector<std::pair<size_t, std::string>> hashed;
  for (const size_t i : order) {
    auto [name, exact] = Spell(origins[i]);
    if (exact && name.size() <= characters_max && taken.insert(name).second) {
      names[i] = std::move(name);
    } else {
      hashed.emplace_back(i, std::move(name));
    }
  }
  for (auto& [i, spelt] : hashed) {
    size_t attempt = 0;
    do {
      names[i] = WithHash(spelt, origins[i], attempt++, characters_max);
    } while (!taken.insert(names[i]).second);
  }
  return names;
}

}  // namespace callboard::server
