// Implementation of ExecutionQueue.
#include "backend_agent/execution_queue.h"

#include <algorithm>

namespace callboard::agent {

namespace {

template <class List, class Match>
auto& FindOrAppend(List& list, Match match) {
  auto found = std::find_if(list.begin(), list.end(), match);
  if (found == list.end()) return list.emplace_back();
  return *found;
}

void EraseDeadline(std::multimap<absl::Time, std::string>& deadlines, absl::Time when,
                   const std::string& call_id) {
  auto [at, end] = deadlines.equal_range(when);
  for (; at != end; ++at) {
    if (at->second == call_id) {
      deadlines.erase(at);
      return;
    }
  }
}

}  // namespace

bool ExecutionQueue::Push(Entry entry) {
  auto at = lanes_.find(entry.lane);
  if (at == lanes_.end()) {
    // MAIN and FREE are two; the rest are named.
    if (entry.lane.lane == v1::NAMED && lanes_.size() >= limits_.named_lanes_max + 2) return false;
    at = lanes_.try_emplace(entry.lane).first;
  }
  Lane& lane = at->second;
  const size_t depth_max = entry.lane.lane == v1::FREE ? limits_.free_depth : limits_.main_depth;
  // A call that can run at once does not count as waiting.
  const size_t room = MayRun(entry.lane, lane) ? in_flight_max(entry.lane) - lane.in_flight : 0;
  if (lane.depth >= depth_max + room) return false;
  FairGroup& fair = FindOrAppend(lane.levels[entry.priority], [&](const FairGroup& group) {
    return group.fair_key == entry.fair_key;
  });
  fair.fair_key = entry.fair_key;
  SessionGroup& session = FindOrAppend(fair.sessions, [&](const SessionGroup& group) {
    return group.session_id == entry.session_id;
  });
  session.session_id = entry.session_id;
  session.calls.push_back({entry.call_id, entry.deadline, 0});
  ++lane.depth;
  if (entry.deadline != absl::InfiniteFuture()) deadlines_.emplace(entry.deadline, entry.call_id);
  waiting_.emplace(std::move(entry.call_id),
                   Place{std::move(entry.lane), entry.priority, std::move(entry.fair_key),
                         std::move(entry.session_id), entry.deadline});
  return true;
}

bool ExecutionQueue::Remove(const std::string& call_id) {
  auto at = waiting_.find(call_id);
  if (at == waiting_.end()) return false;
  const Place place = std::move(at->second);
  waiting_.erase(at);
  EraseDeadline(deadlines_, place.deadline, call_id);
  Lane& lane = lanes_[place.lane];
  --lane.depth;
  Level& level = lane.levels[place.priority];
  auto fair = std::find_if(level.begin(), level.end(),
                           [&](const FairGroup& g) { return g.fair_key == place.fair_key; });
  auto session =
      std::find_if(fair->sessions.begin(), fair->sessions.end(),
                   [&](const SessionGroup& g) { return g.session_id == place.session_id; });
  std::erase_if(session->calls, [&](const Waiting& w) { return w.call_id == call_id; });
  if (session->calls.empty()) fair->sessions.erase(session);
  if (fair->sessions.empty()) level.erase(fair);
  if (level.empty()) lane.levels.erase(place.priority);
  DropIfIdle(place.lane);
  return true;
}

bool ExecutionQueue::MayRun(const LaneId& id, const Lane& lane) const {
  return open_ && (main_open_ || id.lane == v1::FREE) && lane.in_flight < in_flight_max(id);
}

std::string ExecutionQueue::TakeFront(Lane& lane) {
  auto level = lane.levels.begin();
  FairGroup& fair = level->second.front();
  SessionGroup& session = fair.sessions.front();
  std::string call_id = std::move(session.calls.front().call_id);
  session.calls.pop_front();
  --lane.depth;
  // Who was served goes to the end of its round.
  if (session.calls.empty()) {
    fair.sessions.pop_front();
  } else {
    fair.sessions.splice(fair.sessions.end(), fair.sessions, fair.sessions.begin());
  }
  if (fair.sessions.empty()) {
    level->second.pop_front();
  } else {
    level->second.splice(level->second.end(), level->second, level->second.begin());
  }
  if (level->second.empty()) lane.levels.erase(level);
  return call_id;
}

std::optional<std::string> ExecutionQueue::Take() {
  for (auto& [id, lane] : lanes_) {
    if (lane.depth == 0 || !MayRun(id, lane)) continue;
    std::string call_id = TakeFront(lane);
    ++lane.in_flight;
    auto at = waiting_.find(call_id);
    EraseDeadline(deadlines_, at->second.deadline, call_id);
    waiting_.erase(at);
    return call_id;
  }
  return std::nullopt;
}

void ExecutionQueue::Release(const LaneId& lane) {
  auto at = lanes_.find(lane);
  if (at == lanes_.end() || at->second.in_flight == 0) return;
  --at->second.in_flight;
  DropIfIdle(lane);
}

void ExecutionQueue::DropIfIdle(const LaneId& id) {
  auto at = lanes_.find(id);
  if (id.lane == v1::NAMED && at->second.depth == 0 && at->second.in_flight == 0) lanes_.erase(at);
}

std::vector<std::string> ExecutionQueue::TakeExpired(absl::Time now) {
  std::vector<std::string> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    expired.push_back(deadlines_.begin()->second);
    Remove(expired.back());
  }
  return expired;
}

absl::Time ExecutionQueue::next_deadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

void ExecutionQueue::TellPlaces(
    absl::FunctionRef<void(const std::string& call_id, uint32_t ahead)> tell) {
  if (waiting_.empty()) return;
  std::vector<std::pair<std::string, uint32_t>> changed;
  for (auto& [id, lane] : lanes_) {
    uint32_t ahead = lane.in_flight >= in_flight_max(id) ? 1 : 0;
    for (auto& [priority, level] : lane.levels) {
      // The order in which TakeFront would serve the level: round r gives each fair key one call;
      // within a key the sessions take turns in the same way.
      std::vector<std::vector<Waiting*>> by_key;
      size_t rounds = 0;
      for (FairGroup& fair : level) {
        std::vector<Waiting*>& order = by_key.emplace_back();
        size_t turns = 0;
        for (const SessionGroup& session : fair.sessions) {
          turns = std::max(turns, session.calls.size());
        }
        for (size_t turn = 0; turn < turns; ++turn) {
          for (SessionGroup& session : fair.sessions) {
            if (turn < session.calls.size()) order.push_back(&session.calls[turn]);
          }
        }
        rounds = std::max(rounds, order.size());
      }
      for (size_t round = 0; round < rounds; ++round) {
        for (const std::vector<Waiting*>& order : by_key) {
          if (round >= order.size()) continue;
          Waiting& waiting = *order[round];
          if (ahead != waiting.told_ahead && ahead > 0)
            changed.emplace_back(waiting.call_id, ahead);
          waiting.told_ahead = ahead;
          ++ahead;
        }
      }
    }
  }
  for (const auto& [call_id, ahead] : changed) tell(call_id, ahead);
}

std::vector<std::string> ExecutionQueue::waiting_ids() const {
  std::vector<std::string> ids;
  ids.reserve(waiting_.size());
  for (const auto& [call_id, place] : waiting_) ids.push_back(call_id);
  return ids;
}

}  // namespace callboard::agent
