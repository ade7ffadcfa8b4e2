// LoadSkill: one call of load_skill, then the wait for the list that shows what it brought.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/runtime/lifetime.h"
#include "server/flows/call_flow.h"

namespace callboard::server {

// Loop thread, owned by ControlPlane::Impl. Each load ends with its call, at the latest
// skill_relist after it. Bound: kLoadsMax at a time, beyond it ResourceExhausted.
class SkillLoads {
 public:
  SkillLoads(Plane& plane, CallFlow& flow) : plane_(plane), flow_(flow) {}

  void Start(v1::LoadSkillRequest request, Reply<v1::LoadSkillResponse> reply);
  // Some seat's list has changed or has come.
  void OnListArrived();

 private:
  struct Load {
    std::string skill;
    std::string seat_id;
    std::string digest_before;
    std::shared_ptr<const ToolList> list_before;
    bool change_expected = false;
    std::unique_ptr<core::EventSource<v1::InvokeEvent>> source;
    v1::CallOutcome outcome;
    bool has_outcome = false;
    bool called = false;  // the call is over, the list is awaited
    std::string body;
    core::Timer timer;
    Reply<v1::LoadSkillResponse> reply;
  };

  absl::StatusOr<const SeatRecord*> FindSeat(const v1::LoadSkillRequest& request) const;
  void Pull(uint64_t number);
  void OnEvent(uint64_t number, absl::StatusOr<v1::InvokeEvent> event);
  void OnCalled(uint64_t number);
  bool ListIsThere(const Load& load) const;
  void Finish(uint64_t number);
  void Fail(uint64_t number, absl::Status status);

  static constexpr size_t kLoadsMax = 1'000;

  Plane& plane_;
  CallFlow& flow_;
  std::map<uint64_t, std::unique_ptr<Load>> loads_;
  uint64_t next_ = 1;
  core::Lifetime lifetime_;
};

}  // namespace callboard::server
