// Implementation of AgentDirectory.
#include "server/flows/agent_directory.h"

#include <algorithm>
#include <utility>

#include "core/runtime/digest.h"
#include "core/runtime/milliseconds.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

constexpr size_t kCatalogueBytesMax = 64 << 20;
constexpr size_t kListParsedInline = 256 << 10;
constexpr absl::Duration kRetryAfter = absl::Seconds(5);
// The next process may be there at any moment.
constexpr absl::Duration kRetryAfterDrain = absl::Seconds(1);

using ParsedList = absl::StatusOr<std::shared_ptr<const ToolList>>;

// A list is known by its digest to all seats that have it: what is not that list must not pass.
ParsedList CheckList(std::string digest, std::string_view body) {
  const std::string found = core::Sha256Hex(body);
  if (found != digest) {
    return core::MakeError(absl::StatusCode::kInvalidArgument,
                           fmt::format("the list of {} bytes has the digest {}, not {} as was said",
                                       body.size(), found, digest));
  }
  return ParseToolList(std::move(digest), body);
}

}  // namespace

std::string_view LinkDropName(LinkDrop drop) {
  constexpr std::array<std::string_view, kLinkDrops> kNames = {"closed", "silent", "taken_over"};
  return kNames[static_cast<size_t>(drop)];
}

AgentDirectory::~AgentDirectory() {
  lifetime_.Renew();
  sessions_.clear();
}

void AgentDirectory::Attach(std::unique_ptr<AgentLink> link, PeerIdentity peer) {
  const uint64_t id = next_session_++;
  auto session = std::make_unique<AgentSession>(id, plane_.loop, plane_.config, plane_.term,
                                                std::move(link), std::move(peer), *this, calls_);
  AgentSession& opened = *session;
  sessions_[id] = std::move(session);
  opened.Start();
  if (sessions_.size() > 2 * plane_.config.limits.agents_max) {
    opened.Refuse(v1::Refused::TOO_MANY_AGENTS, "too many links are being opened", false,
                  kRetryAfter);
  }
}

AgentSession* AgentDirectory::LinkOf(std::string_view agent_id) const {
  const AgentInfo* info = Find(agent_id);
  return info == nullptr ? nullptr : info->link;
}

const AgentInfo* AgentDirectory::Find(std::string_view agent_id) const {
  auto found = agents_.find(agent_id);
  return found == agents_.end() ? nullptr : &found->second.info;
}

size_t AgentDirectory::pending_settles() const {
  size_t count = 0;
  for (const auto& [id, session] : sessions_) count += session->outbox().settles();
  return count;
}

uint64_t AgentDirectory::ignored_items() const {
  uint64_t count = ignored_before_;
  for (const auto& [id, session] : sessions_) count += session->ignored_items();
  return count;
}

void AgentDirectory::AddTo(ControlPlaneGauges& gauges) const {
  gauges.links_first = links_first_;
  gauges.links_again = links_again_;
  gauges.links_resumed = links_resumed_;
  gauges.links_re_registered = links_re_registered_;
  gauges.links_refused = links_refused_;
  gauges.link_drops = link_drops_;
}

void AgentDirectory::GoAway(absl::Duration grace) {
  for (auto& [id, agent] : agents_) {
    if (agent.info.link == nullptr) continue;
    v1::GoAway& away = *agent.info.link->outbox().Control().mutable_go_away();
    away.set_reason("drain");
    away.set_grace_ms(core::ToMillis(grace));
    for (const std::string& address : plane_.config.alternates) away.add_alternates(address);
    agent.info.link->ScheduleFlush();
  }
}

void AgentDirectory::Close() {
  // What is still to be written, GoAway, goes; what comes is nobody's.
  for (auto& [id, agent] : agents_) {
    if (std::exchange(agent.info.link, nullptr) != nullptr) --linked_;
  }
}

void AgentDirectory::SendInterest(const std::string& seat_id, v1::Interest interest) {
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  AgentSession* link = seat == nullptr ? nullptr : LinkOf(seat->agent_id);
  if (link == nullptr) return;
  *link->outbox().Control().mutable_interest() = std::move(interest);
  link->ScheduleFlush();
}

void AgentDirectory::AckNotices(const std::string& seat_id, const std::string& boot_id,
                                uint64_t n) {
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  const AgentInfo* agent = seat == nullptr ? nullptr : Find(seat->agent_id);
  if (agent == nullptr || agent->link == nullptr || agent->boot_id != boot_id) return;
  v1::NoticeAck& ack = *agent->link->outbox().Control().mutable_notice_ack();
  ack.set_seat_id(seat_id);
  ack.set_n(n);
  agent->link->ScheduleFlush();
}

// ---- who may link -------------------------------------------------------------------------------

void AgentDirectory::OnInventory(AgentSession& session) {
  if (plane_.draining) {
    return session.Refuse(v1::Refused::DRAINING, "the control plane is shutting down", false,
                          kRetryAfterDrain);
  }
  const std::string agent_id = session.agent_id();
  auto found = agents_.find(agent_id);
  if (found == agents_.end()) {
    if (agents_.size() >= plane_.config.limits.agents_max) {
      return session.Refuse(
          v1::Refused::TOO_MANY_AGENTS,
          fmt::format("{} agents are known, which is the limit (agents_max)", agents_.size()),
          false, kRetryAfter);
    }
    found = agents_.try_emplace(agent_id).first;
    found->second.info.agent_id = agent_id;
  }
  Decide(session, found->second);
}

void AgentDirectory::Decide(AgentSession& session, Agent& agent) {
  AgentSession* former = agent.info.link;
  if (former == nullptr) return Admit(session, agent);
  if (agent.info.boot_id == session.hello().boot_id()) {
    if (session.hello().link_epoch() > agent.info.epoch) return Admit(session, agent);
    ++agent.info.refused;
    return session.Refuse(v1::Refused::BAD_OPENING,
                          fmt::format("link epoch {} is not above {}, the one linked now",
                                      session.hello().link_epoch(), agent.info.epoch),
                          false, absl::Seconds(1));
  }
  former->Probe(
      plane_.config.budgets.fence_ping,
      lifetime_.Wrap([this, id = session.id(), agent_id = agent.info.agent_id](bool alive) {
        auto opening = sessions_.find(id);
        auto known = agents_.find(agent_id);
        if (opening == sessions_.end() || known == agents_.end()) return;
        if (!alive) return Admit(*opening->second, known->second);
        AgentInfo& owner = known->second.info;
        ++owner.refused;
        opening->second->Refuse(
            v1::Refused::IDENTITY_IN_USE,
            fmt::format("agent id '{}' is in use by {} pid {}: a cloned state folder? "
                        "Remove it on one of the two machines",
                        agent_id, owner.host, owner.pid),
            true);
      }));
}

void AgentDirectory::Admit(AgentSession& session, Agent& agent) {
  if (session.ended()) return;
  const absl::Status taken_over = absl::AbortedError("a newer link of this agent took over");
  Unlink(agent, taken_over);
  const v1::Hello& hello = session.hello();
  AgentInfo& info = agent.info;
  info.host = hello.software().host();
  info.pid = hello.software().pid();
  // Of an agent that comes back to a control plane of a later term its seats tell it.
  const std::string former_boot =
      info.links > 0 ? info.boot_id : plane_.seats.BootOf(info.agent_id);
  if (!former_boot.empty()) {
    ++(former_boot == hello.boot_id() ? links_resumed_ : links_re_registered_);
  }
  info.boot_id = hello.boot_id();
  info.epoch = hello.link_epoch();
  info.journal_id = hello.journal_id();
  info.labels = {hello.labels().begin(), hello.labels().end()};
  const auto has = [&features = hello.features()](std::string_view feature) {
    return std::find(features.begin(), features.end(), feature) != features.end();
  };
  info.keeps_notices = has(kNoticeAcksFeature);
  info.asks_sessions = has(kSessionAsksFeature);
  info.link = &session;
  info.linked_at = plane_.loop.Now();
  ++(info.links++ == 0 ? links_first_ : links_again_);
  ++linked_;

  v1::Welcome welcome;
  welcome.set_cluster_id(plane_.store.cluster_id());
  welcome.set_control_plane_id(plane_.config.control_plane_id);
  welcome.set_term(plane_.term);
  if (info.keeps_notices) welcome.add_features(kNoticeAcksFeature);
  if (info.asks_sessions) welcome.add_features(kSessionAsksFeature);
  for (const std::string& address : plane_.config.alternates) welcome.add_alternates(address);
  const Limits& limits = plane_.config.limits;
  v1::LinkLimits& told = *welcome.mutable_limits();
  told.set_max_open_calls(limits.agent_open_calls_max);
  told.set_max_queued_bytes(limits.agent_queued_bytes_max);
  told.set_window(limits.window);
  told.set_window_max(limits.window_max);
  told.set_result_bytes_max(limits.result_bytes_max);
  const Budgets& budgets = plane_.config.budgets;
  welcome.mutable_budgets()->set_queue_ms(core::ToMillis(budgets.queue));
  welcome.mutable_budgets()->set_run_ms(core::ToMillis(budgets.heavy_call));
  welcome.mutable_budgets()->set_link_read_idle_ms(core::ToMillis(budgets.link_read_idle));
  welcome.mutable_budgets()->set_connect_ms(core::ToMillis(budgets.connect));
  welcome.set_heartbeat_ms(core::ToMillis(budgets.heartbeat));
  for (const auto& [seat, incarnation] : plane_.seats.IncarnationsOf(info.agent_id)) {
    (*welcome.mutable_last_incarnation())[seat] = incarnation;
  }
  session.Accept(std::move(welcome));
  core::LogInfo("link_up", {{"agent", info.agent_id},
                            {"host", info.host},
                            {"pid", info.pid},
                            {"links", info.links},
                            {"calls", session.calls().size()}});
  // Calls first: what the agent does not hold must be known before a seat asks for its waiting
  // calls, and a new incarnation must find them where they are.
  calls_.OnLinkUp(info.agent_id, session);
  const std::vector<v1::SeatState> seats = std::move(session.seats());
  for (const v1::SeatState& state : seats) {
    UpdateSeat(agent, state);
    observer_.OnSeatLinked(state.seat_id());
  }
}

void AgentDirectory::Unlink(Agent& agent, const absl::Status& why) {
  AgentSession* link = std::exchange(agent.info.link, nullptr);
  if (link == nullptr) return;
  agent.info.last_heard = link->last_heard();
  agent.info.last_loss = std::string(core::Message(why));
  --linked_;
  const LinkDrop drop = link->silent()                             ? LinkDrop::kSilent
                        : why.code() == absl::StatusCode::kAborted ? LinkDrop::kTakenOver
                                                                   : LinkDrop::kClosed;
  ++link_drops_[static_cast<size_t>(drop)];
  agent.catalogues.clear();
  agent.wanted.clear();
  agent.refused.clear();
  agent.bases.clear();
  core::LogInfo("link_down",
                {{"agent", agent.info.agent_id},
                 {"host", agent.info.host},
                 {"reason", core::Message(why)},
                 {"duration_ms", core::ToMillis(plane_.loop.Now() - agent.info.linked_at)}});
  link->Shut(why);
  Retire(*link);
  plane_.seats.Detach(agent.info.agent_id, plane_.loop.Now());
  calls_.OnLinkDown(agent.info.agent_id);
  observer_.OnAgentUnlinked(agent.info.agent_id);
  for (const std::string& seat : plane_.seats.SeatsOf(agent.info.agent_id)) {
    seats_.Keep(seat);
    observer_.OnSeatChanged(seat);
  }
}

void AgentDirectory::Retire(AgentSession& session) {
  auto found = sessions_.find(session.id());
  if (found == sessions_.end()) return;
  if (retired_.empty()) plane_.loop.Post(lifetime_.Wrap([this] { retired_.clear(); }));
  ignored_before_ += session.ignored_items();
  retired_.push_back(std::move(found->second));
  sessions_.erase(found);
}

void AgentDirectory::OnGone(AgentSession& session, const absl::Status& status) {
  auto found = agents_.find(session.agent_id());
  if (found != agents_.end() && found->second.info.link == &session) {
    Unlink(found->second, status);
  } else {
    Retire(session);
  }
  plane_.ready->Run();
}

// ---- items --------------------------------------------------------------------------------------

void AgentDirectory::OnItem(AgentSession& session, v1::AgentItem& item) {
  auto found = agents_.find(session.agent_id());
  if (found == agents_.end() || found->second.info.link != &session) return;
  Agent& agent = found->second;
  switch (item.item_case()) {
    case v1::AgentItem::kCallEvent:
      return calls_.OnCallEvent(session, *item.mutable_call_event());
    case v1::AgentItem::kCallState:
      return calls_.OnCallState(session, item.call_state());
    case v1::AgentItem::kChunk:
      if (item.chunk().n() == 0) return OnCatalogueChunk(agent, *item.mutable_chunk());
      return calls_.OnChunk(session, *item.mutable_chunk());
    case v1::AgentItem::kCancelAck:
      return calls_.OnCancelAck(session, item.cancel_ack());
    case v1::AgentItem::kSeatState:
      return UpdateSeat(agent, item.seat_state());
    case v1::AgentItem::kSeatGone:
      if (!Owns(agent, item.seat_gone().seat_id())) return;
      return RemoveSeat(item.seat_gone().seat_id(), item.seat_gone().reason());
    case v1::AgentItem::kHeartbeat:
      return plane_.seats.Seen(agent.info.agent_id, plane_.loop.Now());
    case v1::AgentItem::kCatalogue:
      return OnCatalogue(agent, *item.mutable_catalogue());
    case v1::AgentItem::kNotice: {
      if (!Owns(agent, item.notice().seat_id())) return;
      return observer_.OnNotice(agent.info.keeps_notices ? agent.info.boot_id : "", item.notice());
    }
    case v1::AgentItem::kSessionAsk:
      if (!TakesAsk(session, agent, item.session_ask().seat_id())) return;
      return observer_.OnSessionAsk(agent.info.agent_id, *item.mutable_session_ask());
    case v1::AgentItem::kSessionAskCancel:
      return observer_.OnSessionAskCancel(agent.info.agent_id, item.session_ask_cancel());
    default:
      return;
  }
}

bool AgentDirectory::TakesAsk(AgentSession& link, const Agent& agent,
                              std::string_view seat_id) const {
  if (!agent.info.asks_sessions) {
    link.Ignore("it asks a client outside calls, which was not agreed upon");
  } else if (!Owns(agent, seat_id)) {
    link.Ignore("it is about a seat of another agent");
  } else {
    return true;
  }
  return false;
}

bool AgentDirectory::Owns(const Agent& agent, std::string_view seat_id) const {
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  return seat != nullptr && seat->agent_id == agent.info.agent_id;
}

void AgentDirectory::UpdateSeat(Agent& agent, const v1::SeatState& state) {
  const std::string& seat_id = state.seat_id();
  const SeatRecord* former = plane_.seats.Find(seat_id);
  // A seat belongs to one agent while that agent is linked.
  if (former != nullptr && former->agent_id != agent.info.agent_id &&
      LinkOf(former->agent_id) != nullptr) {
    return;
  }
  const std::string former_digest = former == nullptr ? "" : former->state.catalogue_digest();
  const bool differs = former == nullptr || former->agent_id != agent.info.agent_id ||
                       former->boot_id != agent.info.boot_id || former->host != agent.info.host ||
                       SeatKeeper::Differ(former->state, state);
  const bool was_up =
      former != nullptr && former->presence == Presence::kLinked && former->state.incarnation() > 0;
  auto change = plane_.seats.Update(state, agent.info.agent_id, agent.info.host, agent.info.labels,
                                    plane_.loop.Now());
  if (!change.ok()) return;
  plane_.seats.SetBoot(seat_id, agent.info.boot_id);
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  if (seat == nullptr) return;
  if (differs || *change == SeatRegistry::Change::kBackOnline) seats_.Keep(seat_id);
  LogPresence(*seat, was_up, *change == SeatRegistry::Change::kNewIncarnation);
  if (*change == SeatRegistry::Change::kNewIncarnation) {
    calls_.OnNewIncarnation(seat_id, seat->state.incarnation());
  }
  if (seat->state.catalogue_digest() != former_digest) {
    if (auto base = plane_.catalog.Of(seat_id)) agent.bases[seat_id] = std::move(base);
    plane_.catalog.Assign(seat_id, seat->state.catalogue_digest());
    if (!former_digest.empty()) observer_.OnListChanged(seat_id);
    observer_.OnListArrived();
  }
  // An agent that has another list by now, or none yet, does not answer what was asked before.
  const std::string& told_digest = state.catalogue_digest();
  if (told_digest != agent.wanted[seat_id]) agent.wanted.erase(seat_id);
  if (!told_digest.empty()) WantList(agent, seat_id);
  if (seat->presence == Presence::kLinked) {
    calls_.OnSeatUp(seat_id);
  } else if (seat->presence == Presence::kDead) {
    calls_.OnSeatDown(seat_id, "its DCC is not running");
  }
  if (*change != SeatRegistry::Change::kNone) observer_.OnSeatChanged(seat_id);
}

void AgentDirectory::WantList(Agent& agent, const std::string& seat_id) {
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  if (seat == nullptr || agent.info.link == nullptr) return;
  const std::string& digest = seat->state.catalogue_digest();
  if (digest.empty() || plane_.catalog.Has(digest) || agent.wanted[seat_id] == digest) return;
  agent.wanted[seat_id] = digest;
  agent.info.link->outbox().Control().mutable_catalogue_want()->set_digest(digest);
  agent.info.link->ScheduleFlush();
}

void AgentDirectory::OnCatalogue(Agent& agent, v1::Catalogue& catalogue) {
  // At most one per seat of this agent.
  if (!Owns(agent, catalogue.seat_id())) return;
  CatalogueBody body{.digest = catalogue.digest(), .size = catalogue.body().size()};
  if (!catalogue.base_digest().empty()) {
    const auto& base = agent.bases[catalogue.seat_id()];
    if (base == nullptr || base->digest != catalogue.base_digest()) {
      return WantSnapshot(agent, catalogue.seat_id(), catalogue.digest(),
                          absl::NotFoundError("its base is not at hand"));
    }
    body.base = base;
    for (const v1::CatalogueChange& change : catalogue.changes()) {
      body.changes.push_back({change.name(), change.removed(), change.after()});
    }
  }
  if (catalogue.body().has_inline_()) {
    body.bytes = std::move(*catalogue.mutable_body()->mutable_inline_());
    return TakeBody(agent, catalogue.seat_id(), std::move(body));
  }
  if (catalogue.body().size() > kCatalogueBytesMax) return;
  agent.catalogues[catalogue.seat_id()] = std::move(body);
}

void AgentDirectory::WantSnapshot(Agent& agent, const std::string& seat_id,
                                  const std::string& digest, const absl::Status& why) {
  agent.bases.erase(seat_id);
  // Whole and wrong: it stays unknown, and the seat's calls pass unchecked.
  if (std::exchange(agent.refused[seat_id], digest) == digest) return;
  core::Log(
      absl::IsNotFound(why) ? core::LogLevel::kDebug : core::LogLevel::kWarn, "list_refused",
      {{"instance", seat_id}, {"agent", agent.info.agent_id}, {"reason", core::Message(why)}});
  // The same want once more asks for the whole list.
  agent.wanted.erase(seat_id);
  WantList(agent, seat_id);
}

void AgentDirectory::TakeBody(Agent& agent, const std::string& seat_id, CatalogueBody body) {
  const std::string& agent_id = agent.info.agent_id;
  if (body.base == nullptr) {
    return TakeList(agent_id, seat_id, std::move(body.digest), std::move(body.bytes));
  }
  auto list = core::ApplyToolListDelta(fmt::format(R"({{"tools":{}}})", body.base->array),
                                       body.changes, body.bytes);
  if (!list.ok()) return WantSnapshot(agent, seat_id, body.digest, list.status());
  agent.bases.erase(seat_id);
  TakeList(agent_id, seat_id, std::move(body.digest), *std::move(list));
}

void AgentDirectory::OnCatalogueChunk(Agent& agent, v1::Chunk& chunk) {
  auto found = agent.catalogues.find(chunk.call_id());
  if (found == agent.catalogues.end() || agent.info.link == nullptr) return;
  CatalogueBody& body = found->second;
  if (chunk.offset() == body.bytes.size()) body.bytes += chunk.bytes();
  v1::AckEntry entry;
  entry.set_call_id(chunk.call_id());
  entry.set_offset(body.bytes.size());
  entry.set_window(plane_.config.limits.window_max);
  agent.info.link->outbox().AckRaw(std::move(entry));
  agent.info.link->ScheduleFlush();
  if (body.bytes.size() < body.size) return;
  CatalogueBody whole = std::move(body);
  agent.catalogues.erase(found);
  TakeBody(agent, chunk.call_id(), std::move(whole));
}

void AgentDirectory::TakeList(const std::string& agent_id, const std::string& seat_id,
                              std::string digest, std::string body) {
  auto take = [this, agent_id, seat_id, digest](const ParsedList& list) {
    if (!list.ok()) {
      auto agent = agents_.find(agent_id);
      if (agent != agents_.end()) WantSnapshot(agent->second, seat_id, digest, list.status());
      return;
    }
    plane_.catalog.Put(*list);
    for (const auto& [id, seat] : plane_.seats.all()) {
      if (seat.state.catalogue_digest() == digest) {
        plane_.catalog.Assign(id, digest);
        observer_.OnSeatChanged(id);
      }
    }
    observer_.OnListArrived();
  };
  if (body.size() <= kListParsedInline) return take(CheckList(std::move(digest), body));
  auto result = std::make_shared<ParsedList>(absl::UnknownError("not parsed"));
  plane_.offload.Run(
      [result, digest = std::move(digest), body = std::move(body)]() mutable {
        *result = CheckList(std::move(digest), body);
      },
      lifetime_.Wrap([result, take] { take(*result); }));
}

void AgentDirectory::LogPresence(const SeatRecord& seat, bool was_up, bool restarted) const {
  // Incarnation 0: announced, and no process of its DCC has been seen yet.
  const bool is_up = seat.presence == Presence::kLinked && seat.state.incarnation() > 0;
  if (is_up == was_up && !restarted) return;
  core::LogInfo(is_up ? "seat_up" : "seat_down", {{"seat", plane_.seats.DisplayName(seat)},
                                                  {"instance", seat.state.seat_id()},
                                                  {"incarnation", seat.state.incarnation()},
                                                  {"agent", seat.agent_id},
                                                  {"pid", seat.state.pid()}});
}

void AgentDirectory::RemoveSeat(const std::string& seat_id, const std::string& why) {
  core::LogInfo("seat_removed", {{"instance", seat_id}, {"reason", why}});
  calls_.OnSeatDown(seat_id, why.empty() ? "it is gone" : why);
  plane_.seats.Remove(seat_id);
  seats_.Forget(seat_id);
  observer_.OnSeatForgotten(seat_id);
  plane_.catalog.RemoveSeat(seat_id);
  observer_.OnSeatChanged(seat_id);
}

void AgentDirectory::Sweep() {
  for (const std::string& seat_id : plane_.seats.Sweep(plane_.loop.Now())) {
    const SeatRecord* seat = plane_.seats.Find(seat_id);
    if (seat == nullptr) {
      plane_.catalog.RemoveSeat(seat_id);
      seats_.Forget(seat_id);
      observer_.OnSeatForgotten(seat_id);
    }
    if (seat == nullptr || seat->presence == Presence::kDead) {
      calls_.OnSeatDown(seat_id, "its agent has been away for too long");
    }
    observer_.OnSeatChanged(seat_id);
  }
  for (auto it = agents_.begin(); it != agents_.end();) {
    const bool gone = it->second.info.link == nullptr && plane_.seats.SeatsOf(it->first).empty();
    it = gone ? agents_.erase(it) : std::next(it);
  }
}

}  // namespace callboard::server
