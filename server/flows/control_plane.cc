// The door's shell: wires the flows of one control plane and answers what needs only its tables.
#include "server/flows/control_plane.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "core/mcp/elicitation.h"
#include "core/mcp/look_again.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/milliseconds.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"
#include "server/flows/agent_directory.h"
#include "server/flows/call_flow.h"
#include "server/flows/durable_log.h"
#include "server/flows/instance_watch.h"
#include "server/flows/kept_bodies.h"
#include "server/flows/notice_intake.h"
#include "server/flows/outcome_source.h"
#include "server/flows/plane.h"
#include "server/flows/plane_metrics.h"
#include "server/flows/receipts.h"
#include "server/flows/restore.h"
#include "server/flows/seat_audience.h"
#include "server/flows/seat_keeper.h"
#include "server/flows/session_asks.h"
#include "server/flows/session_reader.h"
#include "server/flows/skill_load.h"
#include "server/flows/tool_search.h"
#include "server/flows/tool_selections.h"

namespace callboard::server {
namespace {

constexpr absl::Duration kHousekeepingEvery = absl::Seconds(1);
constexpr absl::Duration kWaitMax = absl::Hours(1);
constexpr size_t kWaitsMax = 50'000;
constexpr uint32_t kListCallsDefault = 100;
constexpr uint32_t kListCallsMax = 1'000;
constexpr size_t kSessionTextMax = 64 << 10;
constexpr char kToolsSurface[] = "tools";

}  // namespace

// Members are destroyed from the last to the first: loads (which hold calls), links, flows, tables.
struct ControlPlane::Impl final : SeatObserver {
  struct Wait {
    CallId call;
    bool with_outcome;
    // Also for another set of requests to its client than these.
    std::optional<std::set<std::string>> known_input;
    Reply<v1::Call> reply;
    core::Timer timer;
  };

  Impl(core::EventLoop& loop, core::Random& random, core::Offload& offload, Store& store,
       BodyStore& body_store, ControlPlaneConfig config)
      : plane(loop, random, offload, store, std::move(config)),
        durable(plane),
        bodies(plane, body_store),
        receipts(plane, durable, bodies),
        watchers(plane),
        audience(plane, durable,
                 [this](const std::string& seat_id, v1::Interest interest) {
                   agents.SendInterest(seat_id, std::move(interest));
                 }),
        selections(plane, durable),
        seats(plane, durable),
        notices(plane, durable,
                [this](const std::string& seat_id, const std::string& boot_id, uint64_t n) {
                  agents.AckNotices(seat_id, boot_id, n);
                }),
        flow(
            plane, durable, bodies, receipts, audience, selections,
            [this](const CallId& id) { OnEnded(id); }, [this](const CallId& id) { OnAsked(id); }),
        agents(plane, seats, flow, *this),
        session_asks(flow, audience, agents),
        skills(plane, flow) {
    flow.SetAgents(&agents);
    const absl::Status status = RestoreTables(
        {plane, durable, bodies, receipts, audience, selections, seats, notices, flow});
    if (!status.ok()) {
      core::LogError("store_not_loaded", {{"reason", core::Message(status)}});
    }
    Housekeep();
  }

  v1::Session ToProto(const Session& session) const {
    v1::Session proto;
    proto.set_session_id(session.id);
    proto.set_control_plane_id(plane.config.control_plane_id);
    proto.set_term(plane.term);
    proto.set_revision(session.revision);
    proto.set_surface(session.surface);
    proto.set_tools(session.opened.tools());
    v1::SessionLimits& limits = *proto.mutable_limits();
    limits.set_streams_max(static_cast<uint32_t>(plane.config.limits.streams_per_session_max));
    limits.set_idle_ms(core::ToMillis(plane.config.budgets.session_idle));
    limits.set_grace_ms(core::ToMillis(plane.config.budgets.session_grace));
    return proto;
  }

  void EndSession(const std::string& id) {
    const Session* session = plane.sessions.Find(id);
    const std::string seat_id = session == nullptr ? "" : session->seat_id;
    if (session != nullptr) selections.Remove(*session);
    session_asks.EndSession(id);
    flow.CloseSession(id, "session_ended");
    audience.Remove(id, seat_id);
    durable.EraseSession(id);
  }

  void Housekeep() {
    const SessionTable::Swept swept = plane.sessions.Sweep(plane.loop.Now());
    for (const std::string& id : swept.expired) EndSession(id);
    for (const std::string& id : swept.suspended) {
      if (Session* session = plane.sessions.Find(id)) flow.SuspendSession(*session);
    }
    for (const std::string& id : swept.used) {
      if (const Session* session = plane.sessions.Find(id)) durable.TouchSession(*session);
    }
    durable.Sweep();
    agents.Sweep();
    flow.Sweep();
    selections.Sweep();
    plane.executions.Sweep(plane.loop.Now());
    housekeeping = plane.loop.After(kHousekeepingEvery, [this] { Housekeep(); });
  }

  // ---- waiting for calls, draining ----

  void OnEnded(const CallId& id) {
    if (!waits.empty() || drained != nullptr) {
      plane.loop.Post(lifetime.Wrap([this, id] { AfterEnd(id); }));
    }
  }

  void AfterEnd(const CallId& id) {
    if (EndWaits([&](const Wait& wait) { return wait.call == id; })) CheckDrained();
  }

  void OnAsked(const CallId& id) {
    if (waits.empty()) return;
    plane.loop.Post(lifetime.Wrap([this, id] { AfterAsked(id); }));
  }

  void AfterAsked(const CallId& id) {
    EndWaits([&](const Wait& wait) {
      return wait.call == id && wait.known_input && AsksOtherThan(id, *wait.known_input);
    });
  }

  bool AsksOtherThan(const CallId& id, const std::set<std::string>& known) const {
    const std::map<std::string, std::string> asked = flow.InputRequests(id);
    return !std::equal(asked.begin(), asked.end(), known.begin(), known.end(),
                       [](const auto& request, const auto& key) { return request.first == key; });
  }

  // False: one of those that waited has destroyed this.
  bool EndWaits(absl::FunctionRef<bool(const Wait&)> is_due) {
    std::vector<uint64_t> due;
    for (const auto& [number, wait] : waits) {
      if (is_due(wait)) due.push_back(number);
    }
    const auto alive = lifetime.Watch();
    for (const uint64_t number : due) {
      EndWait(number);
      if (alive.expired()) return false;
    }
    return true;
  }

  void EndWait(uint64_t number) {
    auto found = waits.find(number);
    if (found == waits.end()) return;
    Wait wait = std::move(found->second);
    waits.erase(found);
    ReplyWith(wait.call, wait.with_outcome, std::move(wait.reply));
  }

  void ReplyWith(const CallId& id, bool with_outcome, Reply<v1::Call> reply) {
    const Execution* execution = plane.executions.Find(id);
    if (execution == nullptr) {
      return reply(absl::NotFoundError("the receipt of that call is no longer kept"));
    }
    v1::Call call = server::ToProto(*execution, plane.loop.Now());
    for (auto& [key, request] : flow.InputRequests(id)) {
      (*call.mutable_input_requests())[key] = request;
    }
    if (!with_outcome || !execution->over()) return reply(std::move(call));
    receipts.ReadOutcome(id, [call = std::move(call), reply = std::move(reply)](
                                 std::optional<v1::CallOutcome> outcome) mutable {
      if (outcome) *call.mutable_outcome() = *std::move(outcome);
      reply(std::move(call));
    });
  }

  // Accepted is what a restart does not lose. A failing store delays nobody.
  void ReplyOnceStored(bool found, Reply<v1::SendResponse> reply) {
    durable.WhenDurable([found, reply = std::move(reply)](const absl::Status&) mutable {
      v1::SendResponse response;
      response.set_found(found);
      reply(std::move(response));
    });
  }

  void TakeInput(const v1::TaskInput& input, Reply<v1::SendResponse> reply) {
    const auto id = CallId::From(input.call_id());
    absl::StatusOr<bool> found = false;
    if (id) found = flow.TakeInput(*id, input.responses());
    if (!found.ok()) return reply(found.status());
    ReplyOnceStored(*found, std::move(reply));
  }

  void CheckDrained() {
    if (drained == nullptr || plane.executions.open() > 0) return;
    FinishDrain();
  }

  void FinishDrain() {
    if (drained == nullptr) return;
    drain_timer.Cancel();
    auto done = std::move(drained);
    drained = nullptr;
    // Nothing comes any more that could be shown and not stored.
    agents.Close();
    flow.PutAll();
    receipts.Write();
    durable.WhenDurable([done = std::move(done)](const absl::Status& status) mutable {
      if (!status.ok()) core::LogWarn("not_all_stored", {{"reason", core::Message(status)}});
      done();
    });
  }

  void EndStreams(bool own_only) {
    std::vector<StreamReader*> readers;
    for (const auto& [id, session] : plane.sessions.all()) {
      for (const auto& [number, stream] : session->streams) {
        if (stream->reader == nullptr || (own_only && number != 0)) continue;
        readers.push_back(std::exchange(stream->reader, nullptr));
      }
    }
    for (StreamReader* reader : readers) reader->EndReading("drain");
    audience.DrainWatches();
    selections.DrainWatches();
  }

  // Of an own call, or one of the same principal; whoever names no session may ask for any.
  bool MayAsk(const Execution& execution, const std::string& session_id) const {
    if (session_id.empty() || execution.session_id == session_id) return true;
    const Session* session = plane.sessions.Find(session_id);
    return session != nullptr && !session->principal.empty() &&
           session->principal == execution.principal;
  }

  absl::StatusOr<Execution*> FindCall(const v1::CallRef& ref) const {
    const auto id = CallId::From(ref.call_id());
    Execution* found =
        id ? plane.executions.Find(*id) : plane.executions.FindJob(ref.backend_job_id());
    if (found != nullptr && MayAsk(*found, ref.session_id())) return found;
    return core::MakeError(absl::StatusCode::kNotFound,
                           fmt::format("no call '{}': unknown, or its receipt is older than {}",
                                       id ? id->hex() : ref.backend_job_id(),
                                       absl::FormatDuration(plane.config.budgets.receipt)));
  }

  // ---- SeatObserver ----

  void OnSeatChanged(const std::string& seat_id) override {
    watchers.OnSeatChanged(seat_id);
    audience.OnSeatChanged(seat_id);
    selections.OnSeatChanged(seat_id);
  }
  void OnSeatLinked(const std::string& seat_id) override { audience.OnSeatUp(seat_id); }
  void OnListArrived() override { skills.OnListArrived(); }
  void OnListChanged(const std::string& seat_id) override {
    audience.Tell(seat_id, "notifications/tools/list_changed", "");
  }
  void OnNotice(const std::string& boot_id, const v1::Notice& notice) override {
    if (boot_id.empty() || core::SaysLookAgain(notice.method())) {
      TellNotice(notice);
      return;
    }
    const std::optional<uint64_t> lost = notices.Take(boot_id, notice);
    if (!lost) return;
    const bool told_lost = *lost > 0 && audience.TellLost(notice.seat_id(), *lost);
    const bool told = TellNotice(notice);
    notices.OnTold(notice.seat_id(), told || told_lost);
  }
  void OnSeatForgotten(const std::string& seat_id) override { notices.Forget(seat_id); }

  void OnSessionAsk(const std::string& agent_id, v1::SessionAsk& ask) override {
    session_asks.Take(agent_id, ask);
  }
  void OnSessionAskCancel(const std::string& agent_id,
                          const v1::SessionAskCancel& cancelled) override {
    session_asks.TakeBack(agent_id, cancelled);
  }
  void OnAgentUnlinked(const std::string& agent_id) override { session_asks.OnLinkDown(agent_id); }

  // True: it is in a stream, and durable with it.
  bool TellNotice(const v1::Notice& notice) {
    const SeatRecord* seat = plane.seats.Find(notice.seat_id());
    // The digest says it better, and is known here.
    if (seat != nullptr && notice.method() == "notifications/tools/list_changed" &&
        !seat->state.catalogue_digest().empty()) {
      audience.TellWatches(notice.seat_id(), notice.method());
      return false;
    }
    if (notice.method() == core::kElicitationComplete) {
      return flow.TellElicited(notice.seat_id(), notice.params().inline_());
    }
    return audience.Tell(notice.seat_id(), notice.method(), notice.params().inline_());
  }

  Plane plane;
  DurableLog durable;
  KeptBodies bodies;
  Receipts receipts;
  std::map<uint64_t, Wait> waits;
  uint64_t next_wait = 1;
  uint64_t sessions_opened = 0;
  absl::AnyInvocable<void()> drained;
  core::Timer drain_timer;
  core::Timer housekeeping;
  core::Lifetime lifetime;
  InstanceWatchers watchers;
  SeatAudience audience;
  ToolSelections selections;
  SeatKeeper seats;
  NoticeIntake notices;
  CallFlow flow;
  AgentDirectory agents;
  SessionAsks session_asks;
  SkillLoads skills;
};

ControlPlane::ControlPlane(core::EventLoop& loop, core::Random& random, core::Offload& offload,
                           Store& store, BodyStore& bodies, ControlPlaneConfig config)
    : impl_(std::make_unique<Impl>(loop, random, offload, store, bodies, std::move(config))) {}

ControlPlane::~ControlPlane() = default;

void ControlPlane::AttachAgent(std::unique_ptr<AgentLink> link, PeerIdentity peer) {
  impl_->agents.Attach(std::move(link), std::move(peer));
}

// ---- sessions -----------------------------------------------------------------------------------

void ControlPlane::OpenSession(v1::OpenSessionRequest request, Reply<v1::Session> reply) {
  Impl& impl = *impl_;
  if (impl.plane.draining) {
    return reply(absl::UnavailableError("the control plane is shutting down; try again shortly"));
  }
  if (request.ByteSizeLong() > kSessionTextMax) {
    return reply(absl::InvalidArgumentError(
        "client info, capabilities and labels of a session may have 64 KiB together"));
  }
  if (request.surface() == kToolsSurface || !request.tools().empty()) {
    auto tools = impl.selections.Admit(request.tools());
    if (!tools.ok()) return reply(tools.status());
    request.set_surface(kToolsSurface);
    request.set_tools(*std::move(tools));
  }
  if (auto status = impl.durable.status(); !status.ok()) return reply(std::move(status));
  while (const Session* victim = impl.plane.sessions.Victim()) {
    impl.EndSession(std::string(victim->id));
  }
  Session& session =
      impl.plane.sessions.Open(impl.plane.random.Hex(16), request, impl.plane.loop.Now());
  ++impl.sessions_opened;
  core::LogInfo(
      "session_opened",
      {{"session", session.id}, {"revision", session.revision}, {"client", request.client_info()}});
  impl.audience.Add(session);
  impl.selections.Add(session);
  impl.durable.TouchSession(session);
  impl.durable.WhenDurable(
      [&impl, id = session.id, reply = std::move(reply)](const absl::Status& status) mutable {
        const Session* opened = impl.plane.sessions.Find(id);
        if (status.ok() && opened != nullptr) return reply(impl.ToProto(*opened));
        if (opened != nullptr) impl.EndSession(id);
        if (status.ok()) return reply(absl::UnavailableError("the session was evicted at once"));
        absl::Status why = impl.durable.status();
        reply(why.ok() ? status : why);
      });
}

absl::StatusOr<v1::Session> ControlPlane::GetSession(const std::string& session_id) {
  const Session* session = impl_->plane.sessions.Use(session_id, impl_->plane.loop.Now());
  if (session == nullptr) {
    return NoSession(session_id);
  }
  return impl_->ToProto(*session);
}

void ControlPlane::CloseSession(v1::SessionRef ref, Reply<v1::CloseSessionResponse> reply) {
  if (impl_->plane.sessions.Find(ref.session_id()) == nullptr) {
    return reply(core::MakeError(absl::StatusCode::kNotFound,
                                 fmt::format("no session '{}'", ref.session_id())));
  }
  impl_->EndSession(ref.session_id());
  impl_->durable.WhenDurable([reply = std::move(reply)](const absl::Status&) mutable {
    reply(v1::CloseSessionResponse());
  });
}

// ---- calls --------------------------------------------------------------------------------------

std::unique_ptr<core::EventSource<v1::InvokeEvent>> ControlPlane::Invoke(
    v1::InvokeRequest request) {
  return impl_->flow.Invoke(std::move(request));
}

std::unique_ptr<core::EventSource<v1::ListenEvent>> ControlPlane::Listen(
    v1::ListenRequest request) {
  if (impl_->plane.draining && request.stream() == 0) {
    return std::make_unique<EndedSource<v1::ListenEvent>>(
        absl::UnavailableError("the control plane is shutting down"));
  }
  if (request.session_id().empty()) {
    return request.tools().empty() ? impl_->audience.Watch(std::move(request))
                                   : impl_->selections.Watch(std::move(request));
  }
  return OpenReader(impl_->flow, request);
}

void ControlPlane::Send(v1::SendRequest request, Reply<v1::SendResponse> reply) {
  Impl& impl = *impl_;
  if (request.has_input()) return impl.TakeInput(request.input(), std::move(reply));
  Session* session = impl.plane.sessions.Use(request.session_id(), impl.plane.loop.Now());
  if (session == nullptr) return reply(NoSession(request.session_id()));
  v1::SendResponse response;
  switch (request.message_case()) {
    case v1::SendRequest::kAnswer:
      response.set_found(impl.flow.Answer(session->id, request.answer()) ||
                         impl.session_asks.Answer(session->id, request.answer()));
      break;
    case v1::SendRequest::kCancel:
      response.set_found(
          impl.flow.CancelRequest(session->id, request.cancel().client_request_id()));
      break;
    case v1::SendRequest::kNotify:
      response.set_found(impl.flow.Notify(*session, request.notify()));
      return reply(std::move(response));
    case v1::SendRequest::kInput:
    case v1::SendRequest::MESSAGE_NOT_SET:
      return reply(absl::InvalidArgumentError("Send needs an answer, a cancel or a notification"));
  }
  if (!response.found()) return reply(std::move(response));
  impl.ReplyOnceStored(/*found=*/true, std::move(reply));
}

void ControlPlane::GetCall(v1::CallRef ref, Reply<v1::Call> reply) {
  Impl& impl = *impl_;
  auto found = impl.FindCall(ref);
  if (!found.ok()) return reply(found.status());
  const CallId id = (*found)->call_id;
  if (ref.as_task()) impl.flow.MakeTask(id);
  impl.flow.Keep(id, [&impl, id, with_outcome = ref.with_outcome(),
                      reply = std::move(reply)](const absl::Status& kept) mutable {
    if (kept.ok()) return impl.ReplyWith(id, with_outcome, std::move(reply));
    // A job that a kill would lose is none.
    reply(core::MakeError(absl::StatusCode::kUnavailable,
                          fmt::format("the control plane's store fails ({}), so that the call, "
                                      "which goes on, is not kept as a job; ask again later",
                                      core::Message(kept))));
  });
}

void ControlPlane::WaitCall(v1::CallRef ref, Reply<v1::Call> reply) {
  Impl& impl = *impl_;
  auto found = impl.FindCall(ref);
  if (!found.ok()) return reply(found.status());
  std::optional<std::set<std::string>> known;
  if (ref.watch_input()) known.emplace(ref.known_input().begin(), ref.known_input().end());
  const bool asks_else = known && impl.AsksOtherThan((*found)->call_id, *known);
  if ((*found)->over() || ref.wait_ms() == 0 || asks_else) {
    return impl.ReplyWith((*found)->call_id, ref.with_outcome(), std::move(reply));
  }
  if (impl.waits.size() >= kWaitsMax) {
    return reply(absl::ResourceExhaustedError("50000 callers wait for calls already"));
  }
  const uint64_t number = impl.next_wait++;
  const absl::Duration wait = std::min(kWaitMax, core::FromMillis(ref.wait_ms()));
  impl.waits.emplace(
      number, Impl::Wait{(*found)->call_id, ref.with_outcome(), std::move(known), std::move(reply),
                         impl.plane.loop.After(wait, [&impl, number] { impl.EndWait(number); })});
}

void ControlPlane::CancelCall(v1::CallRef ref, Reply<v1::Call> reply) {
  Impl& impl = *impl_;
  auto found = impl.FindCall(ref);
  if (!found.ok()) return reply(found.status());
  const CallId id = (*found)->call_id;
  if (!impl.flow.CancelById(id, v1::Cancel::ADMIN, v1::CANCELLED_BY_ADMIN)) {
    return impl.ReplyWith(id, ref.with_outcome(), std::move(reply));
  }
  impl.durable.WhenDurable([&impl, id, with_outcome = ref.with_outcome(),
                            reply = std::move(reply)](const absl::Status&) mutable {
    impl.ReplyWith(id, with_outcome, std::move(reply));
  });
}

std::unique_ptr<core::EventSource<v1::InvokeEvent>> ControlPlane::FetchOutcome(v1::CallRef ref) {
  auto found = impl_->FindCall(ref);
  if (!found.ok()) return std::make_unique<EndedSource<v1::InvokeEvent>>(found.status());
  return std::make_unique<OutcomeSource>(impl_->flow, (*found)->call_id, std::nullopt);
}

v1::ListCallsResponse ControlPlane::ListCalls(const v1::ListCallsRequest& request) {
  v1::ListCallsResponse response;
  const uint32_t limit =
      request.limit() == 0 ? kListCallsDefault : std::min(request.limit(), kListCallsMax);
  const auto& all = impl_->plane.executions.all();
  for (auto it = all.rbegin(); it != all.rend(); ++it) {  // newest first
    if (response.calls_size() >= static_cast<int>(limit)) break;
    const Execution& execution = *it->second;
    if (request.live_only() && execution.over()) continue;
    if (!request.seat_id().empty() && request.seat_id() != execution.seat_id) continue;
    if (!impl_->MayAsk(execution, request.session_id())) continue;
    *response.add_calls() = ToProto(execution, impl_->plane.loop.Now());
  }
  return response;
}

// ---- catalogue and seats ------------------------------------------------------------------------

v1::SearchToolsResponse ControlPlane::SearchTools(const v1::SearchToolsRequest& request) {
  v1::SearchToolsResponse response =
      server::SearchTools(request, impl_->plane.seats, impl_->plane.catalog);
  response.set_index_generation(
      fmt::format("{}.{}", impl_->plane.term, impl_->plane.catalog.generation()));
  return response;
}

absl::StatusOr<v1::DescribeToolResponse> ControlPlane::DescribeTool(
    const v1::DescribeToolRequest& request) {
  const Plane& plane = impl_->plane;
  auto hit = FindTool(request.slug(), plane.seats, plane.catalog);
  if (!hit.ok()) return hit.status();
  const auto list = plane.catalog.Of(hit->seat_id());
  const ToolInfo* tool = list == nullptr ? nullptr : list->Find(hit->tool());
  if (tool == nullptr) {
    return core::MakeError(absl::StatusCode::kNotFound,
                           fmt::format("no tool '{}'", request.slug()));
  }
  v1::DescribeToolResponse response;
  *response.mutable_hit() = *std::move(hit);
  response.set_definition(tool->definition);
  response.set_idempotent(tool->idempotent);
  response.set_read_only(tool->read_only);
  response.set_marking_source("annotations");
  const Budgets& budgets = plane.config.budgets;
  response.set_run_ms(core::ToMillis(std::min(
      budgets.call_max,
      tool->timeout_hint.value_or(tool->read_only ? budgets.quick_call : budgets.heavy_call))));
  return response;
}

void ControlPlane::LoadSkill(v1::LoadSkillRequest request, Reply<v1::LoadSkillResponse> reply) {
  impl_->skills.Start(std::move(request), std::move(reply));
}

absl::StatusOr<v1::GetListResponse> ControlPlane::GetList(const v1::GetListRequest& request) {
  if (request.kind() != "tools") {
    return core::MakeError(
        absl::StatusCode::kInvalidArgument,
        fmt::format("only the list 'tools' is prepared, not '{}'", request.kind()));
  }
  if (!request.session_id().empty()) {
    const Session* session =
        impl_->plane.sessions.Use(request.session_id(), impl_->plane.loop.Now());
    if (session == nullptr) return NoSession(request.session_id());
    return impl_->selections.List(*session, request.known_digest());
  }
  if (!request.tools().empty()) {
    return impl_->selections.List(request.tools(), request.known_digest());
  }
  auto seat = impl_->plane.seats.Resolve(request.target());
  if (!seat.ok()) return seat.status();
  const std::string& seat_id = (*seat)->state.seat_id();
  const auto list = impl_->plane.catalog.Of(seat_id);
  if (list == nullptr) {
    return core::MakeError(absl::StatusCode::kUnavailable,
                           fmt::format("the tools of '{}' are not known yet; try again shortly",
                                       impl_->plane.seats.DisplayName(**seat)));
  }
  v1::GetListResponse response;
  response.set_seat_id(seat_id);
  response.set_digest(list->digest);
  if (request.known_digest() != list->digest) response.set_list(list->array);
  return response;
}

v1::ListInstancesResponse ControlPlane::ListInstances(const v1::ListInstancesRequest& request) {
  Plane& plane = impl_->plane;
  v1::ListInstancesRequest all = request;
  all.clear_limit();
  all.clear_offset();
  std::vector<v1::InstanceRow> rows = plane.seats.Rows(all, plane.loop.Now());
  v1::ListInstancesResponse response;
  response.set_total(static_cast<uint32_t>(rows.size()));
  response.set_cluster_id(plane.store.cluster_id());
  response.set_control_plane_id(plane.config.control_plane_id);
  response.set_term(plane.term);
  response.set_server_version(CALLBOARD_VERSION);
  if (const absl::Status store = store_status(); !store.ok()) {
    response.set_store_fault(std::string(core::Message(store)));
  }
  const size_t end =
      request.limit() == 0
          ? rows.size()
          : std::min<size_t>(rows.size(), size_t{request.offset()} + request.limit());
  for (size_t i = request.offset(); i < end; ++i) {
    CompleteRow(plane, rows[i]);
    *response.add_instances() = std::move(rows[i]);
  }
  return response;
}

std::unique_ptr<core::EventSource<v1::InstanceEvent>> ControlPlane::WatchInstances(
    v1::ListInstancesRequest request) {
  return impl_->watchers.Open(std::move(request));
}

// ---- the end ------------------------------------------------------------------------------------

void ControlPlane::Drain(absl::Duration grace, absl::AnyInvocable<void()> done) {
  Impl& impl = *impl_;
  impl.plane.draining = true;
  impl.drained = std::move(done);
  impl.agents.GoAway(grace);
  impl.session_asks.EndAll();
  impl.EndStreams(true);
  impl.drain_timer = impl.plane.loop.After(grace, [&impl] {
    impl.EndStreams(false);
    impl.FinishDrain();
  });
  impl.plane.loop.Post(impl.lifetime.Wrap([&impl] { impl.CheckDrained(); }));
}

absl::Status ControlPlane::Reconfigure(const Budgets& budgets, const Limits& limits,
                                       const core::ToolSelection& pinned_tools) {
  ControlPlaneConfig& config = impl_->plane.config;
  Budgets next = config.budgets;
  next.quick_call = budgets.quick_call;
  next.heavy_call = budgets.heavy_call;
  next.call_max = budgets.call_max;
  next.queue = budgets.queue;
  next.upper_wait_margin = budgets.upper_wait_margin;
  next.skill_relist = budgets.skill_relist;
  if (absl::Status order = CheckOrder(next); !order.ok()) return order;
  config.budgets = next;
  config.limits.agents_max = limits.agents_max;
  config.limits.calls_per_session_max = limits.calls_per_session_max;
  config.limits.params_bytes_max = limits.params_bytes_max;
  config.pinned_tools = pinned_tools;
  impl_->selections.OnPinnedChanged();
  return absl::OkStatus();
}

absl::Status ControlPlane::store_status() const { return impl_->plane.store.status(); }

uint64_t ControlPlane::term() const { return impl_->plane.term; }

ControlPlaneGauges ControlPlane::gauges() const {
  const Plane& plane = impl_->plane;
  ControlPlaneGauges gauges;
  gauges.agents = impl_->agents.linked();
  gauges.seats = plane.seats.size();
  gauges.sessions = plane.sessions.size();
  gauges.streams = plane.sessions.streams();
  gauges.open_executions = plane.executions.open();
  gauges.ended_executions = plane.executions.ended();
  gauges.requests = plane.requests.size();
  gauges.replay_bytes = plane.sessions.replay_bytes();
  gauges.pending_settles = impl_->agents.pending_settles();
  gauges.ignored_items = impl_->agents.ignored_items();
  gauges.open_asks = impl_->flow.open_asks() + impl_->session_asks.open();
  gauges.bodies_coming = impl_->bodies.coming();
  gauges.sessions_opened = impl_->sessions_opened;
  const SessionTable::TakenOver& taken_over = plane.sessions.taken_over();
  gauges.sessions_awaited = taken_over.awaited;
  gauges.sessions_taken_up = taken_over.taken_up;
  gauges.sessions_lost = taken_over.ended;
  impl_->agents.AddTo(gauges);
  return gauges;
}

void ControlPlane::WriteMetrics(core::MetricsText& text) const {
  server::WriteMetrics(impl_->plane, gauges(), text);
  impl_->bodies.WriteMetrics(text);
}

}  // namespace callboard::server
