// The table of seats: incarnations, ageing, unique names, and how targets are resolved.
#include "server/domain/seat_registry.h"

#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "core/runtime/milliseconds.h"
#include "core/runtime/strings.h"

namespace callboard::server {
namespace {

using core::MakeError;

constexpr size_t kPrefixMin = 8;
constexpr size_t kNamesInMessage = 10;

std::string Lower(std::string_view text) { return absl::AsciiStrToLower(core::ToAbsl(text)); }

std::string NormalInstanceId(std::string_view id) {
  std::string normal = Lower(id);
  std::erase(normal, '-');
  return normal;
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (char c : Lower(text) + ' ') {
    if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    } else {
      word += c;
    }
  }
  return words;
}

std::map<std::string, std::string> MergedLabels(
    const v1::SeatState& state, const std::map<std::string, std::string>& agent_labels) {
  std::map<std::string, std::string> labels(state.labels().begin(), state.labels().end());
  labels.insert(agent_labels.begin(), agent_labels.end());
  return labels;
}

template <class Labels>
bool Carries(const SeatRecord& seat, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    auto found = seat.labels.find(label.first);
    return found != seat.labels.end() && found->second == label.second;
  });
}

std::string_view PresenceName(Presence presence) {
  switch (presence) {
    case Presence::kLinked:
      return "linked";
    case Presence::kDetached:
      return "reconnecting";
    case Presence::kStale:
      return "stale";
    case Presence::kDead:
      return "dead";
  }
  return "unknown";
}

struct Condition {
  const char* status;
  const char* advice;
};

Condition ConditionOf(const SeatRecord& seat) {
  switch (seat.presence) {
    case Presence::kDead:
      return {"dead", "restart"};
    case Presence::kStale:
      return {"stale", "reconnect"};
    case Presence::kDetached:
      return {"reconnecting", "wait"};
    case Presence::kLinked:
      break;
  }
  const v1::SeatHealth& health = seat.state.health();
  auto silent = [](v1::HealthState layer) {
    return layer == v1::UNRESPONSIVE || layer == v1::GONE;
  };
  if (silent(health.process()) || silent(health.endpoint()) || silent(health.main_thread())) {
    return {"unresponsive", "wait"};
  }
  // Its process has not said yet that it serves.
  if (health.main_thread() == v1::NOT_KNOWN) return {"starting", "wait"};
  if (health.main_thread() == v1::BUSY || seat.state.queue_depth() > 0) return {"busy", "wait"};
  return {"available", "route"};
}

std::string NameList(const std::vector<std::string>& names, size_t total) {
  std::string list = fmt::format("{}", fmt::join(names, ", "));
  if (total > names.size()) list += fmt::format(" and {} more", total - names.size());
  return list;
}

}  // namespace

absl::StatusOr<SeatRegistry::Change> SeatRegistry::Update(
    const v1::SeatState& state, const std::string& agent_id, const std::string& host,
    const std::map<std::string, std::string>& agent_labels, absl::Time now) {
  latest_ = std::max(latest_, now);
  if (state.seat_id().empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument,
                     fmt::format("agent {} told the state of a seat without seat_id", agent_id));
  }
  auto found = seats_.find(state.seat_id());
  const bool known = found != seats_.end();
  if (known && state.incarnation() < found->second.state.incarnation()) return Change::kNone;
  if (!known && seats_.size() >= limits_.seats_max) {
    return MakeError(absl::StatusCode::kResourceExhausted,
                     fmt::format("seat '{}' of agent {} is refused: {} seats are known, seats_max "
                                 "is {}",
                                 state.name(), agent_id, seats_.size(), limits_.seats_max));
  }

  std::map<std::string, std::string> labels = MergedLabels(state, agent_labels);
  const bool gone = state.health().process() == v1::GONE;
  SeatRecord& record = seats_[state.seat_id()];
  const bool new_incarnation = known && state.incarnation() > record.state.incarnation();
  const bool back = known && record.presence != Presence::kLinked && !gone;
  const bool same = known && record.agent_id == agent_id && record.host == host &&
                    record.labels == labels && back == false &&
                    google::protobuf::util::MessageDifferencer::Equals(record.state, state);
  const bool died = gone && record.presence != Presence::kDead;

  const std::string former_name = record.state.name();
  const std::string former_instance = NormalInstanceId(record.state.instance_id());
  record.state = state;
  record.agent_id = agent_id;
  record.host = host;
  record.labels = std::move(labels);
  if (!gone) {
    record.presence = Presence::kLinked;
    record.last_seen = now;
  } else if (died || !known || new_incarnation) {
    record.presence = Presence::kDead;
    record.last_seen = now;
    record.detached_at = now;
  }

  const std::string instance = NormalInstanceId(state.instance_id());
  if (instance != former_instance) instance_ids_.erase({former_instance, state.seat_id()});
  if (!instance.empty()) instance_ids_.emplace(instance, state.seat_id());
  if (!known || former_name != state.name()) Rename(state.seat_id(), record);

  if (!known) return Change::kAdded;
  if (new_incarnation) return Change::kNewIncarnation;
  if (back) return Change::kBackOnline;
  return same && !died ? Change::kNone : Change::kUpdated;
}

void SeatRegistry::SetBoot(std::string_view seat_id, const std::string& boot_id) {
  auto found = seats_.find(seat_id);
  if (found != seats_.end()) found->second.boot_id = boot_id;
}

void SeatRegistry::Rename(const std::string& seat_id, SeatRecord& record) {
  seat_of_name_.erase(record.display_name);
  const std::string wanted = !record.state.name().empty()  ? record.state.name()
                             : !record.state.app().empty() ? record.state.app()
                                                           : "seat";
  std::string name = wanted;
  // With the whole id the name can only be taken by a seat that is configured to imitate it.
  for (size_t digits = std::min(kPrefixMin, seat_id.size());
       !seat_of_name_.emplace(name, seat_id).second; ++digits) {
    name = digits <= seat_id.size()
               ? fmt::format("{}-{}", wanted, seat_id.substr(0, digits))
               : fmt::format("{}-{}-{}", wanted, seat_id, digits - seat_id.size());
  }
  record.display_name = std::move(name);
}

void SeatRegistry::Restore(SeatRecord record) {
  if (seats_.size() >= limits_.seats_max) return;
  const std::string seat_id = record.state.seat_id();
  const std::string instance = NormalInstanceId(record.state.instance_id());
  if (!instance.empty()) instance_ids_.emplace(instance, seat_id);
  SeatRecord& restored = seats_[seat_id] = std::move(record);
  // The name it was shown under, which no other seat had.
  if (restored.display_name.empty() ||
      !seat_of_name_.emplace(restored.display_name, seat_id).second) {
    restored.display_name.clear();
    Rename(seat_id, restored);
  }
}

void SeatRegistry::Detach(const std::string& agent_id, absl::Time now) {
  latest_ = std::max(latest_, now);
  for (auto& [id, seat] : seats_) {
    if (seat.agent_id != agent_id || seat.presence != Presence::kLinked) continue;
    seat.presence = Presence::kDetached;
    seat.detached_at = now;
  }
}

void SeatRegistry::Seen(const std::string& agent_id, absl::Time now) {
  latest_ = std::max(latest_, now);
  for (auto& [id, seat] : seats_) {
    if (seat.agent_id == agent_id && seat.presence == Presence::kLinked) seat.last_seen = now;
  }
}

void SeatRegistry::Erase(const std::string& seat_id) {
  auto found = seats_.find(seat_id);
  if (found == seats_.end()) return;
  seat_of_name_.erase(found->second.display_name);
  instance_ids_.erase({NormalInstanceId(found->second.state.instance_id()), found->first});
  seats_.erase(found);
}

void SeatRegistry::Remove(const std::string& seat_id) { Erase(seat_id); }

std::vector<std::string> SeatRegistry::Sweep(absl::Time now) {
  latest_ = std::max(latest_, now);
  std::vector<std::string> changed;
  std::vector<std::string> forgotten;
  for (auto& [id, seat] : seats_) {
    if (seat.presence == Presence::kLinked) continue;
    const absl::Duration away = now - seat.detached_at;
    Presence presence = seat.presence;
    if (away > limits_.dead_after) {
      presence = Presence::kDead;
    } else if (away > limits_.stale_after && presence == Presence::kDetached) {
      presence = Presence::kStale;
    }
    const bool forget = away > limits_.forget_after;
    if (presence != seat.presence || forget) changed.push_back(id);
    seat.presence = presence;
    if (forget) forgotten.push_back(id);
  }
  for (const std::string& id : forgotten) Erase(id);
  return changed;
}

const SeatRecord* SeatRegistry::Find(std::string_view seat_id) const {
  auto found = seats_.find(seat_id);
  return found == seats_.end() ? nullptr : &found->second;
}

std::string SeatRegistry::ShortId(std::string_view seat_id) const {
  // Ids are ordered: only a neighbour can share more than kPrefixMin digits.
  auto shared = [&](std::string_view other) {
    return static_cast<size_t>(
        std::mismatch(seat_id.begin(), seat_id.end(), other.begin(), other.end()).first -
        seat_id.begin());
  };
  size_t digits = kPrefixMin;
  auto next = seats_.upper_bound(seat_id);
  if (next != seats_.end()) digits = std::max(digits, shared(next->first) + 1);
  auto here = seats_.lower_bound(seat_id);
  if (here != seats_.begin()) digits = std::max(digits, shared(std::prev(here)->first) + 1);
  return std::string(seat_id.substr(0, digits));
}

std::string SeatRegistry::SlugPrefix(const SeatRecord& seat) const {
  std::string app = seat.state.app().empty() ? "mcp" : seat.state.app();
  std::replace(app.begin(), app.end(), '.', '_');
  return fmt::format("{}.{}", app, ShortId(seat.state.seat_id()));
}

std::vector<const SeatRecord*> SeatRegistry::Candidates(std::string_view instance) const {
  if (auto named = seat_of_name_.find(instance); named != seat_of_name_.end()) {
    return {Find(named->second)};
  }
  if (const SeatRecord* exact = Find(instance)) return {exact};

  const std::string lower = Lower(instance);
  const std::string normal = NormalInstanceId(instance);
  std::set<std::string_view> exact;
  std::set<std::string_view> by_prefix;
  for (auto it = instance_ids_.lower_bound({normal, ""});
       !normal.empty() && it != instance_ids_.end() && it->first.starts_with(normal); ++it) {
    (it->first == normal ? exact : by_prefix).insert(it->second);
  }
  for (auto it = seats_.lower_bound(lower);
       !lower.empty() && it != seats_.end() && it->first.starts_with(lower); ++it) {
    by_prefix.insert(it->first);
  }
  std::vector<const SeatRecord*> seats;
  for (std::string_view id : exact.empty() ? by_prefix : exact) seats.push_back(Find(id));
  return seats;
}

absl::Status SeatRegistry::NoSuchInstance(std::string_view wanted) const {
  std::vector<std::string> names;
  size_t live = 0;
  for (const auto& [name, id] : seat_of_name_) {
    const SeatRecord* seat = Find(id);
    if (seat == nullptr || seat->presence == Presence::kDead) continue;
    if (++live <= kNamesInMessage) names.push_back(name);
  }
  return MakeError(
      absl::StatusCode::kNotFound,
      live == 0
          ? fmt::format("no instance for {}: none is connected; start a DCC with its agent", wanted)
          : fmt::format("no instance for {}; there are: {}", wanted, NameList(names, live)));
}

absl::StatusOr<const SeatRecord*> SeatRegistry::Living(const SeatRecord& seat,
                                                       std::string_view wanted) const {
  if (seat.presence != Presence::kDead) return &seat;
  return MakeError(absl::StatusCode::kNotFound,
                   fmt::format("no live instance for '{}': '{}' was last seen {} s ago, state {}; "
                               "restart it, or ask list_instances",
                               wanted, seat.display_name,
                               std::max<int64_t>(0, absl::ToInt64Seconds(latest_ - seat.last_seen)),
                               PresenceName(seat.presence)));
}

absl::StatusOr<const SeatRecord*> SeatRegistry::Resolve(const v1::Target& target) const {
  if (!target.seat_id().empty()) {
    const SeatRecord* seat = Find(target.seat_id());
    if (seat == nullptr) return NoSuchInstance(fmt::format("seat_id '{}'", target.seat_id()));
    return Living(*seat, target.seat_id());
  }

  if (!target.instance().empty()) {
    const std::string& wanted = target.instance();
    const std::vector<const SeatRecord*> seats = Candidates(wanted);
    if (seats.empty()) return NoSuchInstance(fmt::format("'{}'", wanted));
    const bool whole = seat_of_name_.contains(wanted) || seats_.contains(wanted);
    if (!whole && NormalInstanceId(wanted).size() < kPrefixMin &&
        !instance_ids_.contains({NormalInstanceId(wanted), seats.front()->state.seat_id()})) {
      return MakeError(absl::StatusCode::kInvalidArgument,
                       fmt::format("'{}' is too short: the prefix of an id needs {} characters; "
                                   "or give the instance's name, e.g. '{}'",
                                   wanted, kPrefixMin, seats.front()->display_name));
    }
    if (seats.size() == 1) return Living(*seats.front(), wanted);
    std::vector<const SeatRecord*> live;
    for (const SeatRecord* seat : seats) {
      if (seat->presence != Presence::kDead) live.push_back(seat);
    }
    if (live.size() == 1) return live.front();
    const std::vector<const SeatRecord*>& shown = live.empty() ? seats : live;
    std::vector<std::string> names;
    for (const SeatRecord* seat : shown) {
      if (names.size() == kNamesInMessage) break;
      names.push_back(fmt::format("{} ({})", seat->display_name, seat->state.seat_id()));
    }
    return MakeError(absl::StatusCode::kInvalidArgument,
                     fmt::format("'{}' is ambiguous: {}; give more characters or the name", wanted,
                                 NameList(names, shown.size())));
  }

  if (!target.labels().empty()) {
    for (const auto& [id, seat] : seats_) {
      if (seat.presence == Presence::kLinked && Carries(seat, target.labels())) return &seat;
    }
    const std::map<std::string, std::string> wanted(target.labels().begin(), target.labels().end());
    std::vector<std::string> pairs;
    pairs.reserve(wanted.size());
    for (const auto& [key, value] : wanted) pairs.push_back(fmt::format("{}={}", key, value));
    return NoSuchInstance(fmt::format("labels {}", fmt::join(pairs, ", ")));
  }

  return MakeError(absl::StatusCode::kInvalidArgument,
                   "no target: give an instance (its name or id) or labels; list_instances shows "
                   "them");
}

bool SeatRegistry::Matches(const SeatRecord& seat, const v1::ListInstancesRequest& request,
                           const std::vector<std::string>& words) const {
  if (seat.presence == Presence::kStale && !request.include_stale()) return false;
  if (seat.presence == Presence::kDead && !request.include_dead()) return false;
  if (!request.app().empty() && Lower(request.app()) != Lower(seat.state.app())) return false;
  const v1::Target& target = request.target();
  if (!target.seat_id().empty()) {
    if (target.seat_id() != seat.state.seat_id()) return false;
  } else if (target.instance().empty() && !Carries(seat, target.labels())) {
    return false;
  }
  if (words.empty()) return true;
  const v1::SeatState& state = seat.state;
  std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", seat.display_name, state.seat_id(),
                  state.instance_id(), state.app(), state.version(), state.scene(), seat.host);
  for (const auto& [key, value] : seat.labels) text += fmt::format("\n{}={}", key, value);
  text = Lower(text);
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

std::vector<v1::InstanceRow> SeatRegistry::Rows(const v1::ListInstancesRequest& request,
                                                absl::Time now) const {
  const std::vector<std::string> words = Words(request.query());
  const bool by_instance =
      request.target().seat_id().empty() && !request.target().instance().empty();
  const std::vector<const SeatRecord*> named =
      by_instance ? Candidates(request.target().instance()) : std::vector<const SeatRecord*>{};
  std::vector<v1::InstanceRow> rows;
  for (const auto& [name, id] : seat_of_name_) {
    const SeatRecord* seat = Find(id);
    if (seat == nullptr || !Matches(*seat, request, words)) continue;
    if (by_instance && std::find(named.begin(), named.end(), seat) == named.end()) continue;
    rows.push_back(Row(*seat, now));
  }
  return rows;
}

v1::InstanceRow SeatRegistry::Row(const SeatRecord& seat, absl::Time now) const {
  const v1::SeatState& state = seat.state;
  const Condition condition = ConditionOf(seat);
  v1::InstanceRow row;
  row.set_seat_id(state.seat_id());
  row.set_incarnation(state.incarnation());
  row.set_name(seat.display_name);
  row.set_app(state.app());
  row.set_version(state.version());
  row.set_pid(state.pid());
  row.set_scene(state.scene());
  row.set_host(seat.host);
  row.mutable_labels()->insert(seat.labels.begin(), seat.labels.end());
  *row.mutable_health() = state.health();
  row.set_status(condition.status);
  row.set_advice(condition.advice);
  row.set_queue_depth(state.queue_depth());
  row.set_last_seen_ms(core::ToMillis(now - seat.last_seen));
  row.set_local_mcp_url(state.local_mcp_url());
  row.set_agent_id(seat.agent_id);
  row.set_instance_id(state.instance_id());
  row.set_capabilities(state.capabilities());
  row.set_server_info(state.server_info());
  row.set_modern_capabilities(state.modern_capabilities());
  row.set_instructions(state.instructions());
  row.set_description_rest(state.description_rest());
  return row;
}

std::map<std::string, uint64_t> SeatRegistry::IncarnationsOf(const std::string& agent_id) const {
  std::map<std::string, uint64_t> incarnations;
  for (const auto& [id, seat] : seats_) {
    if (seat.agent_id == agent_id) incarnations[id] = seat.state.incarnation();
  }
  return incarnations;
}

std::string SeatRegistry::BootOf(const std::string& agent_id) const {
  for (const auto& [id, seat] : seats_) {
    if (seat.agent_id == agent_id && !seat.boot_id.empty()) return seat.boot_id;
  }
  return "";
}

std::vector<std::string> SeatRegistry::SeatsOf(const std::string& agent_id) const {
  std::vector<std::string> ids;
  for (const auto& [id, seat] : seats_) {
    if (seat.agent_id == agent_id) ids.push_back(id);
  }
  return ids;
}

}  // namespace callboard::server
