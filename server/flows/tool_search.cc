// Scores each distinct tool list once, joins the seats that have it and keeps the best page.
#include "server/flows/tool_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"

namespace callboard::server {
namespace {

using core::MakeError;

constexpr uint32_t kLimitDefault = 25;
constexpr uint32_t kLimitMax = 100;
constexpr size_t kQueryBytesMax = 1'024;
constexpr size_t kQueryWordsMax = 32;
constexpr size_t kSuggestionsMax = 5;
constexpr int kExactName = 10'000;

struct Weight {
  int exact;
  int prefix;
  int substring;
};
// In the order of SearchField.
constexpr std::array<Weight, kSearchFields> kWeights = {Weight{18, 12, 8}, {14, 10, 6}, {12, 8, 5},
                                                        {10, 7, 4},        {9, 6, 4},   {8, 5, 3}};

// `field` is framed by line feeds (ToolInfo::search).
int FieldScore(std::string_view field, std::string_view word, const Weight& weight) {
  int best = 0;
  for (size_t at = field.find(word); at != std::string_view::npos; at = field.find(word, at + 1)) {
    if (field[at - 1] != '\n') {
      best = std::max(best, weight.substring);
    } else if (field[at + word.size()] == '\n') {
      return weight.exact;
    } else {
      best = std::max(best, weight.prefix);
    }
  }
  return best;
}

int WordScore(const ToolInfo& tool, std::string_view word) {
  int best = 0;
  for (size_t field = 0; field < kSearchFields; ++field) {
    if (kWeights[field].exact <= best) break;  // weights fall: nothing better can follow
    best = std::max(best, FieldScore(tool.search[field], word, kWeights[field]));
  }
  return best;
}

struct Query {
  explicit Query(std::string_view text) {
    text = text.substr(0, kQueryBytesMax);
    whole = std::string(core::ToStd(absl::StripAsciiWhitespace(core::ToAbsl(text))));
    words = SearchWords(text);
    if (words.size() > kQueryWordsMax) words.resize(kQueryWordsMax);
  }
  std::string whole;
  std::vector<std::string> words;
};

// 0 if fewer than `words_min` words match something.
int Score(const ToolInfo& tool, const Query& query, size_t words_min) {
  int score = 0;
  size_t missed = 0;
  for (const std::string& word : query.words) {
    const int best = WordScore(tool, word);
    if (best == 0 && ++missed + words_min > query.words.size()) return 0;
    score += best;
  }
  const std::string& name = tool.unloaded_skill.empty() ? tool.name : tool.unloaded_skill;
  if (absl::EqualsIgnoreCase(core::ToAbsl(name), core::ToAbsl(query.whole)) ||
      tool.name == query.whole) {
    score += kExactName;
  }
  return score;
}

struct Match {
  const ToolInfo* tool;
  int score;
};

std::vector<Match> MatchesIn(const ToolList& list, const Query& query, size_t words_min,
                             bool loaded_only) {
  std::vector<Match> matches;
  for (const ToolInfo& tool : list.tools) {
    if (loaded_only && !tool.unloaded_skill.empty()) continue;
    if (query.whole.empty()) {
      matches.push_back({&tool, 0});
      continue;
    }
    // A query of signs only can match no word, but it may be a tool's name.
    const int score = Score(tool, query, words_min);
    if (score > 0) matches.push_back({&tool, score});
  }
  return matches;
}

struct Offer {
  std::string slug_prefix;
  const SeatRecord* seat;
  std::shared_ptr<const ToolList> list;
};

// The seats to search, in order of their slugs.
std::vector<Offer> Offers(const v1::SearchToolsRequest& request, const SeatRegistry& seats,
                          const ToolCatalog& catalog) {
  std::vector<Offer> offers;
  auto add = [&](const SeatRecord& seat) {
    if (!request.app().empty() && !absl::EqualsIgnoreCase(request.app(), seat.state.app())) return;
    if (auto list = catalog.Of(seat.state.seat_id())) {
      offers.push_back({seats.SlugPrefix(seat), &seat, std::move(list)});
    }
  };
  const v1::Target& target = request.target();
  if (!target.seat_id().empty() || !target.instance().empty()) {
    if (auto seat = seats.Resolve(target); seat.ok()) add(**seat);
    return offers;
  }
  for (const auto& [id, seat] : seats.all()) {
    if (seat.presence == Presence::kStale || seat.presence == Presence::kDead) continue;
    const bool carries_all = std::all_of(
        target.labels().begin(), target.labels().end(), [&labels = seat.labels](const auto& label) {
          auto found = labels.find(label.first);
          return found != labels.end() && found->second == label.second;
        });
    if (carries_all) add(seat);
  }
  std::sort(offers.begin(), offers.end(),
            [](const Offer& a, const Offer& b) { return a.slug_prefix < b.slug_prefix; });
  return offers;
}

struct Candidate {
  int score;
  size_t offer;
  const ToolInfo* tool;
};

bool Better(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  if (a.offer != b.offer) return a.offer < b.offer;
  return a.tool->name < b.tool->name;
}

// The tools of a list whose names share most with `wanted`.
std::vector<std::string> Nearest(const ToolList& list, std::string_view wanted) {
  const std::vector<std::string> words = SearchWords(wanted.substr(0, kQueryBytesMax));
  std::vector<Match> matches;
  for (const ToolInfo& tool : list.tools) {
    int score = 0;
    for (const std::string& word : words) {
      score += FieldScore(tool.search[0], word, kWeights[0]);
    }
    if (score > 0) matches.push_back({&tool, score});
  }
  std::stable_sort(matches.begin(), matches.end(),
                   [](const Match& a, const Match& b) { return a.score > b.score; });
  std::vector<std::string> names;
  for (const Match& match : matches) {
    if (names.size() == kSuggestionsMax) break;
    names.push_back(match.tool->name);
  }
  return names;
}

v1::ToolHit HitOf(const SeatRecord& seat, const ToolInfo& tool, std::string_view slug_prefix,
                  const SeatRegistry& seats) {
  v1::ToolHit hit;
  hit.set_slug(fmt::format("{}.{}", slug_prefix, tool.name));
  hit.set_tool(tool.name);
  hit.set_summary(Summary(tool.description.empty() ? tool.title : tool.description));
  hit.set_app(seat.state.app());
  hit.set_seat_id(seat.state.seat_id());
  hit.set_seat_name(seats.DisplayName(seat));
  hit.set_loaded(tool.unloaded_skill.empty());
  hit.set_skill(tool.skill);
  hit.set_annotations(tool.annotations);
  return hit;
}

}  // namespace

absl::StatusOr<Slug> ParseSlug(std::string_view slug) {
  const size_t first = slug.find('.');
  const size_t second = first == std::string_view::npos ? first : slug.find('.', first + 1);
  if (second == std::string_view::npos || first == 0 || second == first + 1 ||
      second + 1 == slug.size()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     fmt::format("'{}' is no tool slug: it reads <app>.<instance id>.<tool>, e.g. "
                                 "maya.1f2e3d4c.bake; search_tools gives slugs",
                                 slug.substr(0, 200)));
  }
  return Slug{std::string(slug.substr(0, first)),
              std::string(slug.substr(first + 1, second - first - 1)),
              std::string(slug.substr(second + 1))};
}

v1::ToolHit MakeHit(const SeatRecord& seat, const ToolInfo& tool, const SeatRegistry& seats) {
  return HitOf(seat, tool, seats.SlugPrefix(seat), seats);
}

v1::SearchToolsResponse SearchTools(const v1::SearchToolsRequest& request,
                                    const SeatRegistry& seats, const ToolCatalog& catalog) {
  const Query query(request.query());
  const size_t limit = request.limit() == 0 ? kLimitDefault : std::min(request.limit(), kLimitMax);
  const size_t keep = size_t{request.offset()} + limit;
  const std::vector<Offer> offers = Offers(request, seats, catalog);

  std::vector<Candidate> best;  // a heap with the worst on top, at most `keep`
  const auto collect = [&](size_t words_min) {
    std::map<const ToolList*, std::vector<Match>> matches_of;
    size_t total = 0;
    for (size_t offer = 0; offer < offers.size(); ++offer) {
      const ToolList* list = offers[offer].list.get();
      auto [entry, added] = matches_of.try_emplace(list);
      if (added) entry->second = MatchesIn(*list, query, words_min, request.loaded_only());
      total += entry->second.size();
      for (const Match& match : entry->second) {
        const Candidate candidate{match.score, offer, match.tool};
        if (best.size() == keep) {
          if (!Better(candidate, best.front())) continue;
          std::pop_heap(best.begin(), best.end(), Better);
          best.pop_back();
        }
        best.push_back(candidate);
        std::push_heap(best.begin(), best.end(), Better);
      }
    }
    return total;
  };
  // Models ask in sentences: what no tool matches as a whole may be matched by most of it.
  size_t total = collect(query.words.size());
  if (total == 0 && query.words.size() > 2) total = collect(query.words.size() / 2 + 1);
  std::sort_heap(best.begin(), best.end(), Better);

  v1::SearchToolsResponse response;
  response.set_total(static_cast<uint32_t>(std::min<size_t>(total, UINT32_MAX)));
  response.set_index_generation(fmt::to_string(catalog.generation()));
  for (size_t i = request.offset(); i < best.size(); ++i) {
    const Offer& offer = offers[best[i].offer];
    v1::ToolHit& hit = *response.add_hits();
    hit = HitOf(*offer.seat, *best[i].tool, offer.slug_prefix, seats);
    hit.set_score(best[i].score);
  }
  return response;
}

absl::StatusOr<v1::ToolHit> FindTool(std::string_view slug, const SeatRegistry& seats,
                                     const ToolCatalog& catalog) {
  CALLBOARD_ASSIGN_OR_RETURN(const Slug parts, ParseSlug(slug));
  v1::Target target;
  target.set_instance(parts.seat_prefix);
  CALLBOARD_ASSIGN_OR_RETURN(const SeatRecord* const seat, seats.Resolve(target));

  const std::string prefix = seats.SlugPrefix(*seat);
  const std::string_view app = std::string_view(prefix).substr(0, prefix.find('.'));
  if (!absl::EqualsIgnoreCase(core::ToAbsl(parts.app), core::ToAbsl(app))) {
    return MakeError(absl::StatusCode::kNotFound,
                     fmt::format("no tool '{}': instance '{}' is {}, not {}", slug,
                                 seats.DisplayName(*seat), app, parts.app));
  }
  const std::shared_ptr<const ToolList> list = catalog.Of(seat->state.seat_id());
  if (list == nullptr) {
    return MakeError(absl::StatusCode::kUnavailable,
                     fmt::format("the tools of instance '{}' are not known yet; try again shortly",
                                 seats.DisplayName(*seat)));
  }
  if (const ToolInfo* tool = list->Find(parts.tool)) return MakeHit(*seat, *tool, seats);
  const std::vector<std::string> nearest = Nearest(*list, parts.tool);
  return MakeError(
      absl::StatusCode::kNotFound,
      nearest.empty()
          ? fmt::format("instance '{}' has no tool '{}'; search_tools finds what it has",
                        seats.DisplayName(*seat), parts.tool)
          : fmt::format("instance '{}' has no tool '{}'; nearest: {}; if its skill is not loaded, "
                        "load_skill first",
                        seats.DisplayName(*seat), parts.tool, fmt::join(nearest, ", ")));
}

}  // namespace callboard::server
