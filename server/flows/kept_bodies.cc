// Implementation of KeptBodies.
#include "server/flows/kept_bodies.h"

#include <algorithm>
#include <utility>

#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr absl::Duration kRetryEvery = absl::Seconds(5);

}  // namespace

// ---- what is kept -------------------------------------------------------------------------------

void KeptBodies::Begin(const CallId& id, Place place, uint64_t size) {
  if (coming_.contains(id) || kept_.contains(id)) return;
  const bool fits = MakeRoom(size);
  Coming& body = coming_[id];
  body.place = std::move(place);
  body.size = size;
  body.run = next_run_++;
  bytes_ += size;
  if (fits) return;
  Lose(id, fmt::format("it has {} bytes, and for all results that are kept "
                       "limits.kept_bodies_bytes_max leaves {}",
                       size, plane_.config.limits.kept_bodies_bytes_max));
}

bool KeptBodies::MakeRoom(uint64_t size) {
  const uint64_t most = plane_.config.limits.kept_bodies_bytes_max;
  if (size > most) return false;
  while (bytes_ + size > most && !kept_.empty()) {
    const CallId oldest = kept_.begin()->first;  // what is lost takes its own key along
    Lose(oldest,
         fmt::format("it had to make room for newer ones (limits.kept_bodies_bytes_max is {})",
                     most));
  }
  return bytes_ + size <= most;
}

bool KeptBodies::Erase(const CallId& id) {
  if (auto body = coming_.find(id); body != coming_.end()) {
    bytes_ -= body->second.size;
    coming_.erase(body);
  } else if (auto kept = kept_.find(id); kept != kept_.end()) {
    bytes_ -= kept->second;
    kept_.erase(kept);
  } else {
    return false;
  }
  turns_.erase(id);
  store_.Remove(id);
  return true;
}

void KeptBodies::Forget(const CallId& id) {
  if (Erase(id)) TellWaiting(id);
}

void KeptBodies::Lose(const CallId& id, const std::string& why) {
  if (!Erase(id)) return;
  ++lost_;
  core::LogInfo("kept_result_gone", {{"call", id.hex()}, {"reason", why}});
  // First what is told to those who ask from now on.
  if (over_ != nullptr) over_(id, why);
  TellWaiting(id);
}

void KeptBodies::TellWaiting(const CallId& id) {
  const auto [first, last] = waiting_.equal_range(id);
  std::vector<absl::AnyInvocable<void()>> told;
  for (auto at = first; at != last; ++at) told.push_back(std::move(at->second));
  waiting_.erase(first, last);
  for (auto& callback : told) callback();
}

// ---- from agents --------------------------------------------------------------------------------

void KeptBodies::FoundAt(const CallId& id, uint32_t attempt, uint64_t n) {
  auto found = coming_.find(id);
  if (found == coming_.end()) return;
  if (found->second.place.attempt != attempt) {
    return Lose(id, fmt::format("its agent has attempt {} of the call, not {}", attempt,
                                found->second.place.attempt));
  }
  if (found->second.place.n == 0) found->second.place.n = std::max<uint64_t>(n, 1);
}

bool KeptBodies::OnHeader(const CallId& id, const v1::CallEvent& event) {
  auto found = coming_.find(id);
  if (found == coming_.end() || event.attempt() != found->second.place.attempt) return false;
  const v1::Outcome& outcome = event.outcome();
  if (outcome.body().size() == found->second.size) {
    found->second.place.n = event.n();
    return true;
  }
  const std::string& detail = outcome.facts().detail();
  Lose(id, detail.empty() ? "its agent has lost it" : "its agent has lost it: " + detail);
  return true;
}

bool KeptBodies::TakeTurn(const CallId& id) {
  if (turns_.contains(id)) return true;
  if (turns_.size() >= kPullsMax) return false;
  turns_.insert(id);
  return true;
}

void KeptBodies::OnChunk(const CallId& id, const v1::Chunk& chunk, bool alone) {
  auto found = coming_.find(id);
  if (found == coming_.end()) return;
  Coming& body = found->second;
  const uint64_t offset = chunk.offset();
  // What is ahead of what is here comes again when it is asked for.
  if (chunk.attempt() != body.place.attempt || chunk.n() != body.place.n || offset > body.have ||
      offset + chunk.bytes().size() <= body.have || body.have == body.size ||
      body.retry_at > plane_.loop.Now()) {
    return;
  }
  if (alone ? !TakeTurn(id) : body.have - body.written >= kWindow) return;
  body.alone = alone;
  if (!alone) turns_.erase(id);
  std::string bytes = chunk.bytes().substr(body.have - offset);
  if (bytes.size() > body.size - body.have) bytes.resize(body.size - body.have);
  const uint64_t at = std::exchange(body.have, body.have + bytes.size());
  const uint64_t count = bytes.size();
  store_.Append(id, at, std::move(bytes),
                lifetime_.Wrap([this, id, run = body.run, count](const absl::Status& status) {
                  OnAppended(id, run, count, status);
                }));
}

void KeptBodies::OnAppended(const CallId& id, uint64_t run, uint64_t bytes,
                            const absl::Status& status) {
  auto found = coming_.find(id);
  if (found == coming_.end() || found->second.run != run) return;
  Coming& body = found->second;
  if (!status.ok()) return Fail(id, body, status);
  body.written += bytes;
  SetWell();
  if (body.written == body.size) return Seal(id, body);
  if (body.alone && written_ != nullptr) written_(id, {body.place, body.written});
}

void KeptBodies::Seal(const CallId& id, Coming& body) {
  body.sealing = true;
  store_.Seal(id, body.size, lifetime_.Wrap([this, id, run = body.run](const absl::Status& status) {
    OnSealed(id, run, status);
  }));
}

void KeptBodies::OnSealed(const CallId& id, uint64_t run, const absl::Status& status) {
  auto found = coming_.find(id);
  if (found == coming_.end() || found->second.run != run) return;
  found->second.sealing = false;
  if (!status.ok()) return Fail(id, found->second, status);
  SetWell();
  kept_[id] = found->second.size;
  coming_.erase(found);
  turns_.erase(id);
  if (over_ != nullptr) over_(id, "");
  TellWaiting(id);
}

void KeptBodies::Fail(const CallId& id, Coming& body, const absl::Status& status) {
  ++failures_;
  body.run = next_run_++;
  // What is there is not what was written: from the beginning.
  if (status.code() != absl::StatusCode::kUnavailable) body.written = 0;
  body.have = body.written;
  body.retry_at = plane_.loop.Now() + kRetryEvery;
  turns_.erase(id);
  if (fault_.ok()) {
    failing_since_ = plane_.loop.Now();
    core::LogWarn("results_not_kept", {{"call", id.hex()}, {"reason", core::Message(status)}});
  }
  fault_ = status;
}

void KeptBodies::SetWell() {
  if (fault_.ok()) return;
  fault_ = absl::OkStatus();
  core::LogInfo("results_kept_again",
                {{"failed_ms", absl::ToInt64Milliseconds(plane_.loop.Now() - failing_since_)}});
}

void KeptBodies::OnLinkDown(const std::string& agent_id) {
  for (const auto& [id, body] : coming_) {
    if (body.place.agent_id == agent_id) turns_.erase(id);
  }
}

std::vector<CallId> KeptBodies::ComingOf(const std::string& agent_id) const {
  std::vector<CallId> found;
  for (const auto& [id, body] : coming_) {
    if (body.place.agent_id == agent_id) found.push_back(id);
  }
  return found;
}

std::optional<KeptBodies::Wanted> KeptBodies::Pull(const CallId& id) {
  auto found = coming_.find(id);
  if (found == coming_.end() || found->second.retry_at > plane_.loop.Now() ||
      found->second.have == found->second.size || found->second.place.n == 0 || !TakeTurn(id)) {
    return std::nullopt;
  }
  return Wanted{found->second.place, found->second.have};
}

std::vector<std::pair<CallId, std::string>> KeptBodies::Sweep() {
  const absl::Time now = plane_.loop.Now();
  std::vector<CallId> unsealed;
  std::vector<std::pair<CallId, std::string>> idle;
  for (auto& [id, body] : coming_) {
    const bool moved = std::exchange(body.swept_at, body.have) != body.have;
    if (moved || body.sealing || body.have != body.written || body.retry_at > now) continue;
    if (body.written == body.size) {
      unsealed.push_back(id);
    } else {
      idle.emplace_back(id, body.place.agent_id);
    }
  }
  for (const CallId& id : unsealed) Seal(id, coming_.at(id));
  return idle;
}

// ---- for those who ask --------------------------------------------------------------------------

void KeptBodies::WhenOver(const CallId& id, absl::AnyInvocable<void()> callback) {
  if (!coming_.contains(id)) return callback();
  waiting_.emplace(id, std::move(callback));
}

std::string KeptBodies::WhyComing(const CallId& id) const {
  auto found = coming_.find(id);
  if (found == coming_.end()) return {};
  const Coming& body = found->second;
  if (!fault_.ok()) return std::string(core::Message(fault_));
  return fmt::format("{} of {} bytes have come from its agent", body.written, body.size);
}

void KeptBodies::Read(const CallId& id, uint64_t offset, size_t bytes_max,
                      absl::AnyInvocable<void(absl::StatusOr<std::string>)> callback) {
  auto kept = kept_.find(id);
  if (kept == kept_.end()) {
    return callback(core::MakeError(absl::StatusCode::kNotFound,
                                    fmt::format("the result of {} is not kept", id.hex())));
  }
  const uint64_t size = kept->second;
  const size_t bytes = std::min<uint64_t>(bytes_max, size - std::min(offset, size));
  store_.Read(id, offset, bytes,
              lifetime_.Wrap([this, id, bytes, callback = std::move(callback)](
                                 absl::StatusOr<std::string> piece) mutable {
                if (piece.ok() && piece->size() != bytes) {
                  piece = core::MakeError(
                      absl::StatusCode::kNotFound,
                      fmt::format("the kept result of {} is shorter than it was", id.hex()));
                }
                if (piece.status().code() == absl::StatusCode::kNotFound) {
                  Lose(id, std::string(core::Message(piece.status())));
                }
                callback(std::move(piece));
              }));
}

// ---- at start -----------------------------------------------------------------------------------

void KeptBodies::Load() {
  auto whole = store_.Load();
  if (!whole.ok()) {
    core::LogError("kept_results_not_loaded", {{"reason", core::Message(whole.status())}});
    return;
  }
  for (const BodyStore::Whole& body : *whole) loaded_[body.call] = body.bytes;
}

void KeptBodies::Restore(const CallId& id, Place place, uint64_t size) {
  bytes_ += size;
  auto found = loaded_.find(id);
  if (found != loaded_.end() && found->second == size) {
    loaded_.erase(found);
    kept_[id] = size;
    return;
  }
  // Its agent may have it still.
  Coming& body = coming_[id];
  body.place = std::move(place);
  body.size = size;
  body.run = next_run_++;
}

void KeptBodies::EndRestore() {
  for (const auto& [id, size] : std::exchange(loaded_, {})) store_.Remove(id);
  (void)MakeRoom(0);
}

void KeptBodies::WriteMetrics(core::MetricsText& text) const {
  text.Gauge("callboard_kept_bodies", "Results over 64 KiB that are kept.").Sample(kept_.size());
  text.Gauge("callboard_kept_bodies_bytes", "The same in bytes, with those on their way.")
      .Sample(bytes_);
  text.Gauge("callboard_kept_bodies_coming", "Those on their way from their agents.")
      .Sample(coming_.size());
  text.Counter("callboard_kept_bodies_lost_total", "Those that had to go or could not be had.")
      .Sample(lost_);
  text.Counter("callboard_kept_bodies_failures_total", "Writes that failed; each is tried again.")
      .Sample(failures_);
}

}  // namespace callboard::server
