// The product's face on /mcp: serves tools/call for advertised tools and tools called directly.
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "bridge/bridge_core.h"
#include "bridge/endpoints/request_exchange.h"
#include "bridge/facade/arguments.h"
#include "bridge/facade/tools.h"
#include "bridge/translator.h"

namespace callboard::bridge {

// Stateless; owned by the bridge, outlives its exchanges. Loop thread.
class Facade {
 public:
  explicit Facade(BridgeCore& core) : core_(core) {}

  // Answers `exchange`, now or later, with what `params` of tools/call ask for.
  void Call(RequestExchange& exchange, std::string_view params);

 private:
  // A tool that was named but not yet found, and what to do with it.
  struct Wanted {
    std::string name;
    std::string app;
    std::string instance;
    std::string arguments;
    std::string meta;
    // Called by its name as if it were advertised: an unknown name is then a protocol error.
    bool direct = false;
  };
  using OnTool = absl::AnyInvocable<void(const v1::ToolHit&)>;

  void Search(RequestExchange& exchange, const FacadeArguments& arguments);
  void Describe(RequestExchange& exchange, const FacadeArguments& arguments);
  void DescribeSlug(RequestExchange& exchange, std::string slug);
  void ListInstances(RequestExchange& exchange, const FacadeArguments& arguments);
  void LoadSkill(RequestExchange& exchange, const FacadeArguments& arguments);
  void CallTool(RequestExchange& exchange, Wanted wanted);
  // jobs_get_status, jobs_wait, jobs_cancel.
  void Job(RequestExchange& exchange, FacadeTool tool, const FacadeArguments& arguments);
  void AnswerJob(RequestExchange& exchange, const v1::Call& call, bool waits);

  // Finds the one tool of that name, first as a backend's own name, then as <app>__<tool>; answers
  // with an error if there is none or more than one.
  void Resolve(RequestExchange& exchange, Wanted wanted, OnTool then);
  void ResolveWith(RequestExchange& exchange, Wanted wanted, bool with_app_prefix, OnTool then);

  void AnswerDocument(RequestExchange& exchange, std::string_view document, bool is_error = false);
  void AnswerStatus(RequestExchange& exchange, const absl::Status& status);

  BridgeCore& core_;
};

}  // namespace callboard::bridge
