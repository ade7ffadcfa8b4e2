// The door's shell: wires the flows of one control plane and answers what needs only its tables.
#include "server/flows/control_plane.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/runtime/lifetime.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"
#include "server/flows/agent_directory.h"
#include "server/flows/call_flow.h"
#include "server/flows/instance_watch.h"
#include "server/flows/plane.h"
#include "server/flows/seat_audience.h"
#include "server/flows/session_reader.h"
#include "server/flows/skill_load.h"
#include "server/flows/tool_search.h"

namespace callboard::server {
namespace {

constexpr absl::Duration kHousekeepingEvery = absl::Seconds(1);
constexpr absl::Duration kWaitMax = absl::Hours(1);
constexpr size_t kWaitsMax = 50'000;
constexpr uint32_t kListCallsDefault = 100;
constexpr uint32_t kListCallsMax = 1'000;
constexpr size_t kSessionTextMax = 64 << 10;
constexpr std::string_view kSessionKey = "session/";

uint64_t Millis(absl::Duration duration) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(duration)));
}

v1::Call ToProto(const Execution& execution, absl::Time now) {
  v1::Call call;
  call.set_call_id(execution.call_id.str());
  call.set_phase(execution.phase);
  call.set_certainty(execution.certainty);
  call.set_reason(execution.reason);
  call.set_seat_id(execution.seat_id);
  call.set_incarnation(execution.incarnation);
  call.set_method(execution.method);
  call.set_tool(execution.tool);
  call.set_session_id(execution.session_id);
  call.set_attempt(execution.attempt);
  call.set_age_ms(Millis(now - execution.created));
  call.set_queue_ms(execution.queue_ms);
  call.set_run_ms(execution.run_ms);
  call.set_ahead(execution.ahead);
  call.set_message(execution.message);
  call.set_backend_job_id(execution.backend_job_id);
  call.set_settled(execution.settled);
  call.set_orphan(execution.orphan);
  return call;
}

}  // namespace

// Members are destroyed from the last to the first: loads (which hold calls), links, flows, tables.
struct ControlPlane::Impl final : SeatObserver {
  struct Wait {
    CallId call;
    Reply<v1::Call> reply;
    core::Timer timer;
  };

  Impl(core::EventLoop& loop, core::Random& random, core::Offload& offload, Store& store,
       ControlPlaneConfig config)
      : plane(loop, random, offload, store, std::move(config)),
        watchers(plane),
        audience(plane,
                 [this](const std::string& seat_id, v1::Interest interest) {
                   agents.SendInterest(seat_id, std::move(interest));
                 }),
        flow(plane, audience, [this](const CallId& id) { OnEnded(id); }),
        agents(plane, flow, *this),
        skills(plane, flow) {
    flow.SetAgents(&agents);
    RestoreSessions();
    Housekeep();
  }

  void RestoreSessions() {
    (void)plane.store.Load([this](const StoreRecord& record) {
      v1::OpenSessionRequest request;
      if (!record.key.starts_with(kSessionKey) || !request.ParseFromString(record.value)) return;
      audience.Add(
          plane.sessions.Open(record.key.substr(kSessionKey.size()), request, plane.loop.Now()));
    });
  }

  v1::Session ToProto(const Session& session) const {
    v1::Session proto;
    proto.set_session_id(session.id);
    proto.set_control_plane_id(plane.config.control_plane_id);
    proto.set_term(plane.term);
    proto.set_revision(session.revision);
    proto.set_surface(session.surface);
    v1::SessionLimits& limits = *proto.mutable_limits();
    limits.set_streams_max(static_cast<uint32_t>(plane.config.limits.streams_per_session_max));
    limits.set_idle_ms(Millis(plane.config.budgets.session_idle));
    limits.set_grace_ms(Millis(plane.config.budgets.session_grace));
    return proto;
  }

  void EndSession(const std::string& id) {
    const Session* session = plane.sessions.Find(id);
    const std::string seat_id = session == nullptr ? "" : session->seat_id;
    flow.CloseSession(id, "session_ended");
    audience.Remove(id, seat_id);
    plane.store.Append({{std::string(kSessionKey) + id, ""}});
  }

  void Housekeep() {
    const SessionTable::Swept swept = plane.sessions.Sweep(plane.loop.Now());
    for (const std::string& id : swept.expired) EndSession(id);
    for (const std::string& id : swept.suspended) {
      if (Session* session = plane.sessions.Find(id)) flow.SuspendSession(*session);
    }
    agents.Sweep();
    flow.Sweep();
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
    std::vector<uint64_t> due;
    for (const auto& [number, wait] : waits) {
      if (wait.call == id) due.push_back(number);
    }
    const auto alive = lifetime.Watch();
    for (const uint64_t number : due) {
      EndWait(number);
      if (alive.expired()) return;
    }
    CheckDrained();
  }

  void EndWait(uint64_t number) {
    auto found = waits.find(number);
    if (found == waits.end()) return;
    Wait wait = std::move(found->second);
    waits.erase(found);
    const Execution* execution = plane.executions.Find(wait.call);
    if (execution == nullptr) {
      wait.reply(absl::NotFoundError("the receipt of that call is no longer kept"));
    } else {
      wait.reply(server::ToProto(*execution, plane.loop.Now()));
    }
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
    done();
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
  }

  absl::StatusOr<Execution*> FindCall(const v1::CallRef& ref) const {
    const auto id = CallId::From(ref.call_id());
    Execution* found =
        id ? plane.executions.Find(*id) : plane.executions.FindJob(ref.backend_job_id());
    if (found != nullptr) return found;
    return core::MakeError(absl::StatusCode::kNotFound,
                           fmt::format("no call '{}': unknown, or its receipt is older than {}",
                                       id ? id->hex() : ref.backend_job_id(),
                                       absl::FormatDuration(plane.config.budgets.receipt)));
  }

  // ---- SeatObserver ----

  void OnSeatChanged(const std::string& seat_id) override { watchers.OnSeatChanged(seat_id); }
  void OnSeatLinked(const std::string& seat_id) override { audience.OnSeatUp(seat_id); }
  void OnListArrived() override { skills.OnListArrived(); }
  void OnListChanged(const std::string& seat_id) override {
    audience.Tell(seat_id, "notifications/tools/list_changed", "");
  }
  void OnNotice(const std::string& seat_id, const std::string& method,
                const std::string& params) override {
    const SeatRecord* seat = plane.seats.Find(seat_id);
    // The digest says it better, and is known here.
    if (seat != nullptr && method == "notifications/tools/list_changed" &&
        !seat->state.catalogue_digest().empty()) {
      return;
    }
    audience.Tell(seat_id, method, params);
  }

  Plane plane;
  std::map<uint64_t, Wait> waits;
  uint64_t next_wait = 1;
  absl::AnyInvocable<void()> drained;
  core::Timer drain_timer;
  core::Timer housekeeping;
  core::Lifetime lifetime;
  InstanceWatchers watchers;
  SeatAudience audience;
  CallFlow flow;
  AgentDirectory agents;
  SkillLoads skills;
};

ControlPlane::ControlPlane(core::EventLoop& loop, core::Random& random, core::Offload& offload,
                           Store& store, ControlPlaneConfig config)
    : impl_(std::make_unique<Impl>(loop, random, offload, store, std::move(config))) {}

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
  while (const Session* victim = impl.plane.sessions.Victim()) {
    impl.EndSession(std::string(victim->id));
  }
  Session& session =
      impl.plane.sessions.Open(impl.plane.random.Hex(16), request, impl.plane.loop.Now());
  core::LogInfo(
      "session_opened",
      {{"session", session.id}, {"revision", session.revision}, {"client", request.client_info()}});
  impl.audience.Add(session);
  const uint64_t position = impl.plane.store.Append(
      {{std::string(kSessionKey) + session.id, request.SerializeAsString()}});
  impl.plane.store.WhenDurable(
      position, impl.lifetime.Wrap([&impl, id = session.id,
                                    reply = std::move(reply)](absl::Status status) mutable {
        const Session* opened = impl.plane.sessions.Find(id);
        if (!status.ok() || opened == nullptr) {
          if (opened != nullptr) impl.EndSession(id);
          return reply(status.ok() ? absl::UnavailableError("the session was evicted at once")
                                   : status);
        }
        reply(impl.ToProto(*opened));
      }));
}

absl::StatusOr<v1::Session> ControlPlane::GetSession(const std::string& session_id) {
  const Session* session = impl_->plane.sessions.Use(session_id, impl_->plane.loop.Now());
  if (session == nullptr) {
    return NoSession(session_id);
  }
  return impl_->ToProto(*session);
}

absl::Status ControlPlane::CloseSession(const std::string& session_id) {
  if (impl_->plane.sessions.Find(session_id) == nullptr) {
    return core::MakeError(absl::StatusCode::kNotFound, fmt::format("no session '{}'", session_id));
  }
  impl_->EndSession(session_id);
  return absl::OkStatus();
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
  return OpenReader(impl_->flow, request);
}

absl::StatusOr<v1::SendResponse> ControlPlane::Send(v1::SendRequest request) {
  Session* session = impl_->plane.sessions.Use(request.session_id(), impl_->plane.loop.Now());
  if (session == nullptr) {
    return NoSession(request.session_id());
  }
  v1::SendResponse response;
  switch (request.message_case()) {
    case v1::SendRequest::kAnswer:
      response.set_found(impl_->flow.Answer(session->id, request.answer()));
      break;
    case v1::SendRequest::kCancel:
      response.set_found(
          impl_->flow.CancelRequest(session->id, request.cancel().client_request_id()));
      break;
    case v1::SendRequest::kNotify:
      response.set_found(impl_->flow.Notify(*session, request.notify()));
      break;
    case v1::SendRequest::MESSAGE_NOT_SET:
      return absl::InvalidArgumentError("Send needs an answer, a cancel or a notification");
  }
  return response;
}

absl::StatusOr<v1::Call> ControlPlane::GetCall(const v1::CallRef& ref) {
  auto found = impl_->FindCall(ref);
  if (!found.ok()) return found.status();
  return ToProto(**found, impl_->plane.loop.Now());
}

void ControlPlane::WaitCall(v1::CallRef ref, Reply<v1::Call> reply) {
  Impl& impl = *impl_;
  auto found = impl.FindCall(ref);
  if (!found.ok()) return reply(found.status());
  if ((*found)->over() || ref.wait_ms() == 0) {
    return reply(ToProto(**found, impl.plane.loop.Now()));
  }
  if (impl.waits.size() >= kWaitsMax) {
    return reply(absl::ResourceExhaustedError("50000 callers wait for calls already"));
  }
  const uint64_t number = impl.next_wait++;
  const absl::Duration wait = std::min(
      kWaitMax,
      absl::Milliseconds(static_cast<int64_t>(std::min<uint64_t>(ref.wait_ms(), 1ull << 40))));
  impl.waits.emplace(
      number, Impl::Wait{(*found)->call_id, std::move(reply),
                         impl.plane.loop.After(wait, [&impl, number] { impl.EndWait(number); })});
}

absl::StatusOr<v1::Call> ControlPlane::CancelCall(const v1::CallRef& ref) {
  auto found = impl_->FindCall(ref);
  if (!found.ok()) return found.status();
  const CallId id = (*found)->call_id;
  impl_->flow.CancelById(id, v1::Cancel::ADMIN, v1::CANCELLED_BY_ADMIN);
  const Execution* execution = impl_->plane.executions.Find(id);
  if (execution == nullptr) return absl::NotFoundError("the receipt of that call is gone");
  return ToProto(*execution, impl_->plane.loop.Now());
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
  response.set_run_ms(Millis(std::min(
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
  impl.EndStreams(true);
  impl.drain_timer = impl.plane.loop.After(grace, [&impl] {
    impl.EndStreams(false);
    impl.FinishDrain();
  });
  impl.plane.loop.Post(impl.lifetime.Wrap([&impl] { impl.CheckDrained(); }));
}

absl::Status ControlPlane::Reconfigure(const Budgets& budgets, const Limits& limits) {
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
  return absl::OkStatus();
}

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
  gauges.open_asks = impl_->flow.open_asks();
  return gauges;
}

}  // namespace callboard::server
