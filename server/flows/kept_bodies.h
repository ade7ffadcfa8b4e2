// Large results that are kept for later questions: from their agents into files, and back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "callboard/v1/agent.pb.h"
#include "core/runtime/lifetime.h"
#include "core/telemetry/metrics_text.h"
#include "server/flows/body_store.h"
#include "server/flows/plane.h"

namespace callboard::server {

// Loop thread, owned by ControlPlane::Impl. A body is coming until the store of bodies has it
// whole, and may be asked of its agent again until then: what cannot be written stays over there,
// and is tried again. It is over once it is kept, or lost for a reason. Bounds:
// kept_bodies_bytes_max for all, those that are coming with their whole size; the oldest go.
// In memory is what the disk has not taken: at most kWindow of each body that readers have as well,
// and of kPullsMax others.
class KeptBodies {
 public:
  // Where it is to be had: as event `n` of a call's attempt. 0: not known since a restart.
  struct Place {
    std::string agent_id;
    uint32_t attempt = 0;
    uint64_t n = 0;
  };
  // What its agent is to be asked for.
  struct Wanted {
    Place place;
    uint64_t offset = 0;
  };
  static constexpr uint32_t kWindow = 256 << 10;
  static constexpr size_t kPullsMax = 16;

  KeptBodies(Plane& plane, BodyStore& store) : plane_(plane), store_(store) {}
  // More is written of a body that comes for nobody else.
  void OnWritten(absl::AnyInvocable<void(const CallId&, const Wanted&)> observer) {
    written_ = std::move(observer);
  }
  // It is kept or, with a reason, lost: `why` is then a sentence for people.
  void OnOver(absl::AnyInvocable<void(const CallId&, const std::string& why)> observer) {
    over_ = std::move(observer);
  }

  // The call has ended with a body of that size.
  void Begin(const CallId& id, Place place, uint64_t size);
  // Nobody can ask for it any more.
  void Forget(const CallId& id);

  // ---- from agents ----
  bool coming(const CallId& id) const { return coming_.contains(id); }
  // Where it is at its agent, which has just come back with it.
  void FoundAt(const CallId& id, uint32_t attempt, uint64_t n);
  // The header of its outcome, once more. False: it is of no body that is coming.
  bool OnHeader(const CallId& id, const v1::CallEvent& event);
  // `alone`: it comes for nobody else; otherwise what the disk cannot take at once is passed over.
  void OnChunk(const CallId& id, const v1::Chunk& chunk, bool alone);
  void OnLinkDown(const std::string& agent_id);
  // Those that are coming of that agent.
  std::vector<CallId> ComingOf(const std::string& agent_id) const;
  // nullopt: nothing is to be asked for now.
  std::optional<Wanted> Pull(const CallId& id);
  void Lose(const CallId& id, const std::string& why);
  // Those of which nothing has come for a while, and who has them.
  std::vector<std::pair<CallId, std::string>> Sweep();

  // ---- for those who ask ----
  // Runs `callback` once it is no longer coming; not if that is never.
  void WhenOver(const CallId& id, absl::AnyInvocable<void()> callback);
  // Why it is still coming, for people.
  std::string WhyComing(const CallId& id) const;
  // Up to `bytes_max` bytes of a body that is kept; at its end none. NotFound: it is not, and
  // what is missing in its store is lost from then on. `callback` runs inline or later, unless this
  // is destroyed first.
  void Read(const CallId& id, uint64_t offset, size_t bytes_max,
            absl::AnyInvocable<void(absl::StatusOr<std::string>)> callback);

  // ---- at start ----
  void Load();
  // A body of an outcome that is kept.
  void Restore(const CallId& id, Place place, uint64_t size);
  // What nobody knows goes.
  void EndRestore();

  size_t coming() const { return coming_.size(); }
  uint64_t bytes() const { return bytes_; }
  void WriteMetrics(core::MetricsText& text) const;

 private:
  struct Coming {
    Place place;
    uint64_t size = 0;
    uint64_t have = 0;     // given to the disk, contiguous
    uint64_t written = 0;  // of these
    uint64_t run = 0;      // of writing: what is left of a failed one is not heard
    bool alone = false;    // the last of it came for nobody else
    bool sealing = false;
    absl::Time retry_at = absl::InfinitePast();
    uint64_t swept_at = UINT64_MAX;  // what it had then
  };

  bool MakeRoom(uint64_t size);
  // False: there is none of that call.
  bool Erase(const CallId& id);
  // Whether it may come for nobody else: it is one of few.
  bool TakeTurn(const CallId& id);
  void Seal(const CallId& id, Coming& body);
  void OnAppended(const CallId& id, uint64_t run, uint64_t bytes, const absl::Status& status);
  void OnSealed(const CallId& id, uint64_t run, const absl::Status& status);
  void Fail(const CallId& id, Coming& body, const absl::Status& status);
  void SetWell();
  void TellWaiting(const CallId& id);

  Plane& plane_;
  BodyStore& store_;
  absl::AnyInvocable<void(const CallId&, const Wanted&)> written_;
  absl::AnyInvocable<void(const CallId&, const std::string&)> over_;
  std::map<CallId, Coming> coming_;
  std::map<CallId, uint64_t> kept_;    // their sizes; call ids begin with their time: oldest first
  std::map<CallId, uint64_t> loaded_;  // at start: what the store has
  std::set<CallId> turns_;             // coming for nobody else
  std::multimap<CallId, absl::AnyInvocable<void()>> waiting_;
  uint64_t bytes_ = 0;  // of all that is kept or coming
  uint64_t lost_ = 0;
  uint64_t failures_ = 0;
  uint64_t next_run_ = 1;
  absl::Status fault_;
  absl::Time failing_since_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
