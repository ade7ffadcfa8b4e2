// Implementation of SkillLoads.
#include "server/flows/skill_load.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "server/flows/tool_search.h"

namespace callboard::server {
namespace {

constexpr size_t kResultBytesMax = 4 << 20;
constexpr size_t kNamesMax = 10;

bool HasStub(const ToolList* list, std::string_view skill) {
  return list != nullptr &&
         std::any_of(list->tools.begin(), list->tools.end(),
                     [&](const ToolInfo& tool) { return tool.unloaded_skill == skill; });
}

// Whether it is the control plane that cannot serve, not the seat.
bool IsOurs(v1::Reason reason) {
  return reason == v1::DRAINING || reason == v1::STORE_UNAVAILABLE ||
         reason == v1::CONTROL_PLANE_RESTARTED;
}

// What the outcome of a call that brought no result means to whoever asked for the skill.
absl::Status StatusOf(const v1::CallOutcome& outcome, const std::string& body) {
  const std::string what = fmt::format("load_skill: {}", outcome.message().empty()
                                                             ? std::string_view(body)
                                                             : std::string_view(outcome.message()));
  switch (outcome.class_()) {
    case v1::EXPIRED:
      return core::MakeError(absl::StatusCode::kDeadlineExceeded, what);
    case v1::CANCELLED:
      return core::MakeError(absl::StatusCode::kCancelled, what);
    case v1::RPC_ERROR:
      return core::MakeError(absl::StatusCode::kFailedPrecondition, what);
    case v1::REJECTED:
      return core::MakeError(IsOurs(outcome.reason()) ? absl::StatusCode::kUnavailable
                                                      : absl::StatusCode::kFailedPrecondition,
                             what);
    default:
      return core::MakeError(absl::StatusCode::kAborted, what);
  }
}

}  // namespace

absl::StatusOr<const SeatRecord*> SkillLoads::FindSeat(const v1::LoadSkillRequest& request) const {
  const v1::Target& target = request.target();
  if (!target.seat_id().empty() || !target.instance().empty() || !target.labels().empty()) {
    return plane_.seats.Resolve(target);
  }
  std::vector<const SeatRecord*> fitting;
  std::vector<const SeatRecord*> with_skill;
  for (const auto& [seat_id, seat] : plane_.seats.all()) {
    if (seat.presence != Presence::kLinked) continue;
    if (!request.app().empty() && seat.state.app() != request.app()) continue;
    fitting.push_back(&seat);
    if (HasStub(plane_.catalog.Of(seat_id).get(), request.skill())) with_skill.push_back(&seat);
  }
  if (with_skill.size() == 1) return with_skill.front();
  if (with_skill.empty() && fitting.size() == 1 && !request.app().empty()) return fitting.front();
  const std::vector<const SeatRecord*>& candidates = with_skill.empty() ? fitting : with_skill;
  if (candidates.empty()) {
    return core::MakeError(
        absl::StatusCode::kNotFound,
        fmt::format("no live instance{} to load skill '{}' in",
                    request.app().empty() ? "" : " of " + request.app(), request.skill()));
  }
  std::vector<std::string> names;
  for (const SeatRecord* seat : candidates) {
    if (names.size() == kNamesMax) break;
    names.push_back(plane_.seats.DisplayName(*seat));
  }
  if (with_skill.empty()) {
    return core::MakeError(
        absl::StatusCode::kNotFound,
        fmt::format("no live instance lists an unloaded skill '{}': it is misspelt, or loaded "
                    "already; search_tools finds skills and tools (instances: {})",
                    request.skill(), fmt::join(names, ", ")));
  }
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("several instances offer skill '{}'; name one of: {}",
                                     request.skill(), fmt::join(names, ", ")));
}

void SkillLoads::Start(v1::LoadSkillRequest request, Reply<v1::LoadSkillResponse> reply) {
  if (request.skill().empty()) {
    return reply(absl::InvalidArgumentError("load_skill needs the name of a skill"));
  }
  if (loads_.size() >= kLoadsMax) {
    return reply(absl::ResourceExhaustedError("1000 skills are being loaded already"));
  }
  const auto seat = FindSeat(request);
  if (!seat.ok()) return reply(seat.status());
  const uint64_t number = next_++;
  Load& load = *(loads_[number] = std::make_unique<Load>());
  load.skill = request.skill();
  load.seat_id = (*seat)->state.seat_id();
  load.digest_before = (*seat)->state.catalogue_digest();
  load.list_before = plane_.catalog.Of(load.seat_id);
  load.change_expected = load.list_before == nullptr || HasStub(load.list_before.get(), load.skill);
  load.reply = std::move(reply);

  v1::InvokeRequest call;
  call.set_session_id(request.session_id());
  call.set_principal(request.principal());
  call.mutable_target()->set_seat_id(load.seat_id);
  call.set_method("tools/call");
  call.set_params(fmt::format(R"({{"name":"load_skill","arguments":{{"skill_name":{}}}}})",
                              core::QuoteJson(load.skill)));
  call.set_never_open_stream(true);
  load.source = flow_.Invoke(std::move(call));
  Pull(number);
}

void SkillLoads::Pull(uint64_t number) {
  loads_.at(number)->source->Next(
      lifetime_.Wrap([this, number](absl::StatusOr<v1::InvokeEvent> event) {
        OnEvent(number, std::move(event));
      }));
}

void SkillLoads::OnEvent(uint64_t number, absl::StatusOr<v1::InvokeEvent> event) {
  auto found = loads_.find(number);
  if (found == loads_.end()) return;
  Load& load = *found->second;
  if (!event.ok()) {
    if (load.has_outcome && absl::IsOutOfRange(event.status())) return OnCalled(number);
    return Fail(number, event.status());
  }
  if (event->has_outcome()) {
    load.has_outcome = true;
    load.outcome = std::move(*event->mutable_outcome());
    load.body = load.outcome.body().inline_();
  } else if (event->has_chunk()) {
    load.body += event->chunk().bytes();
    if (load.body.size() > kResultBytesMax) {
      return Fail(number, absl::AbortedError("the answer to load_skill is larger than 4 MiB"));
    }
  }
  Pull(number);
}

void SkillLoads::OnCalled(uint64_t number) {
  Load& load = *loads_.at(number);
  if (load.outcome.class_() != v1::RESULT) return Fail(number, StatusOf(load.outcome, load.body));
  load.called = true;
  if (load.outcome.facts().is_error()) return Finish(number);
  load.change_expected = load.change_expected || load.outcome.facts().list_changed_hint();
  if (ListIsThere(load)) return Finish(number);
  load.timer =
      plane_.loop.After(plane_.config.budgets.skill_relist, [this, number] { Finish(number); });
}

bool SkillLoads::ListIsThere(const Load& load) const {
  const SeatRecord* seat = plane_.seats.Find(load.seat_id);
  if (seat == nullptr) return true;  // nothing will come any more
  const std::string& digest = seat->state.catalogue_digest();
  if (load.change_expected && digest == load.digest_before) return false;
  return plane_.catalog.Has(digest);
}

void SkillLoads::OnListArrived() {
  std::vector<uint64_t> there;
  for (const auto& [number, load] : loads_) {
    if (load->called && ListIsThere(*load)) there.push_back(number);
  }
  for (const uint64_t number : there) {
    // Not from inside the flow that told us.
    loads_.at(number)->timer =
        plane_.loop.After(absl::ZeroDuration(), [this, number] { Finish(number); });
  }
}

void SkillLoads::Finish(uint64_t number) {
  auto found = loads_.find(number);
  if (found == loads_.end()) return;
  const std::unique_ptr<Load> load = std::move(found->second);
  loads_.erase(found);
  v1::LoadSkillResponse response;
  response.set_seat_id(load->seat_id);
  response.set_backend_result(std::move(load->body));
  const auto list = plane_.catalog.Of(load->seat_id);
  if (const SeatRecord* seat = plane_.seats.Find(load->seat_id)) {
    response.set_seat_name(plane_.seats.DisplayName(*seat));
    for (const ToolInfo& tool : list == nullptr ? std::vector<ToolInfo>() : list->tools) {
      if (load->list_before != nullptr && load->list_before->Find(tool.name) != nullptr) continue;
      *response.add_new_tools() = MakeHit(*seat, tool, plane_.seats);
    }
  }
  load->reply(std::move(response));
}

void SkillLoads::Fail(uint64_t number, absl::Status status) {
  const std::unique_ptr<Load> load = std::move(loads_.at(number));
  loads_.erase(number);
  load->reply(std::move(status));
}

}  // namespace callboard::server
