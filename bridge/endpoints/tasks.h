// The methods of the tasks extension of MCP 2026-07-28, for calls of ours that have become tasks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/visit.h"
#include "bridge/modern_request.h"
#include "callboard/v1/control.pb.h"

namespace callboard::bridge {

// A task is the record of a call, which the control plane keeps: nothing is kept here. Owned by the
// endpoint of the revision; loop thread.
class TasksEndpoint {
 public:
  explicit TasksEndpoint(BridgeCore& core) : core_(core) {}

  // Answers a client that does not declare the extension; false: it does.
  static bool RefuseUndeclared(const VisitPtr& visit, const ModernRequest& request);

  // The calls behind the tasks of ours that a listener wants to be told of; they go from the wish.
  static std::vector<std::string> TakeOurs(v1::NoticeWish* wish);

  // Those of these calls that are tasks here, and those of a Callboard behind the seat.
  using Parted = absl::AnyInvocable<void(const std::vector<std::string>& ours,
                                         const std::vector<std::string>& strangers)>;
  // `then` runs inline or later, not if the client goes meanwhile.
  void TellApart(const VisitPtr& visit, std::vector<std::string> call_ids, Parted then);

  // Asks the seat.
  using PassOn = absl::AnyInvocable<void(ModernRequest)>;
  // Answers a method of the extension. False: it is another method, or a task of the seat's own.
  // `pass_on` runs later for one that has our name and is none of ours: of a Callboard behind it.
  bool Take(const VisitPtr& visit, const ModernRequest& request, PassOn pass_on);

 private:
  using Stranger = absl::AnyInvocable<void()>;
  struct Parting;

  void TellNextApart(const std::shared_ptr<Parting>& parting);

  void Get(const VisitPtr& visit, const v1::CallRef& call, Stranger stranger);
  void Cancel(const VisitPtr& visit, const v1::CallRef& call, Stranger stranger);
  // What the client answers to what its task has asked.
  void Update(const VisitPtr& visit, const v1::CallRef& call, Stranger stranger);
  // Runs `then` if the call is a task.
  void WithTask(const VisitPtr& visit, const v1::CallRef& call, Stranger stranger,
                absl::AnyInvocable<void()> then);
  void AnswerStranger(const VisitPtr& visit, ModernRequest request, PassOn pass_on);
  void Answer(const VisitPtr& visit, const std::string& result);
  void AnswerLarge(const VisitPtr& visit, const v1::Call& call);
  // Of a call that is none, or no task of this client.
  void AnswerUnknown(const VisitPtr& visit);

  BridgeCore& core_;
};

}  // namespace callboard::bridge
