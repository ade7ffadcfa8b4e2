// Implementation of SeatKeeper.
#include "server/flows/seat_keeper.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "server/flows/store_key.h"

namespace callboard::server {
namespace {

// Beyond it the texts for clients are left out: the agent tells them again.
constexpr size_t kKeptBytesMax = 32 << 10;

bool IsGone(const v1::SeatState& state) { return state.health().process() == v1::GONE; }

}  // namespace

bool SeatKeeper::Differ(const v1::SeatState& a, const v1::SeatState& b) {
  const auto kept = [](const v1::SeatState& state) {
    return std::tuple(
        state.incarnation(), state.pid(), IsGone(state), std::string_view(state.name()),
        std::string_view(state.app()), std::string_view(state.version()),
        std::string_view(state.scene()), std::string_view(state.capabilities()),
        std::string_view(state.local_mcp_url()), std::string_view(state.server_info()),
        std::string_view(state.instructions()), std::string_view(state.instance_id()),
        std::string_view(state.description_rest()));
  };
  const auto& labels = b.labels();
  return kept(a) != kept(b) || a.labels_size() != b.labels_size() ||
         std::any_of(a.labels().begin(), a.labels().end(), [&labels](const auto& label) {
           const auto other = labels.find(label.first);
           return other == labels.end() || other->second != label.second;
         });
}

void SeatKeeper::Keep(const std::string& seat_id) {
  const SeatRecord* seat = plane_.seats.Find(seat_id);
  if (seat == nullptr) return;
  const v1::SeatState& state = seat->state;
  v1::StoredSeat stored;
  v1::SeatState& kept = *stored.mutable_state();
  kept.set_incarnation(state.incarnation());
  kept.set_name(state.name());
  kept.set_app(state.app());
  kept.set_version(state.version());
  kept.set_pid(state.pid());
  kept.set_scene(state.scene());
  if (IsGone(state)) kept.mutable_health()->set_process(v1::GONE);
  kept.set_capabilities(state.capabilities());
  kept.set_local_mcp_url(state.local_mcp_url());
  kept.set_server_info(state.server_info());
  kept.set_instructions(state.instructions());
  kept.set_instance_id(state.instance_id());
  kept.set_description_rest(state.description_rest());
  stored.mutable_labels()->insert(seat->labels.begin(), seat->labels.end());
  if (stored.ByteSizeLong() > kKeptBytesMax) {
    kept.clear_instructions();
    kept.clear_capabilities();
    kept.clear_server_info();
    kept.clear_description_rest();
  }
  stored.set_agent_id(seat->agent_id);
  stored.set_boot_id(seat->boot_id);
  stored.set_host(seat->host);
  stored.set_display_name(seat->display_name);
  stored.set_last_seen_unix_ms(plane_.UnixMs(seat->last_seen));
  if (seat->presence != Presence::kLinked) {
    stored.set_detached_unix_ms(std::max<int64_t>(1, plane_.UnixMs(seat->detached_at)));
  }
  durable_.Put(StoreKey::OfSeat(seat_id), stored.SerializeAsString());
}

void SeatKeeper::Forget(const std::string& seat_id) { durable_.Put(StoreKey::OfSeat(seat_id), ""); }

void SeatKeeper::Restore(const std::string& seat_id, const v1::StoredSeat& stored) {
  const absl::Time now = plane_.loop.Now();
  const auto at = [&](int64_t unix_ms) { return std::min(now, plane_.FromUnixMs(unix_ms)); };
  const bool was_linked = stored.detached_unix_ms() == 0;
  SeatRecord record;
  record.state = stored.state();
  record.state.set_seat_id(seat_id);
  record.agent_id = stored.agent_id();
  record.boot_id = stored.boot_id();
  record.host = stored.host();
  record.labels = {stored.labels().begin(), stored.labels().end()};
  record.display_name = stored.display_name();
  record.presence = IsGone(record.state) ? Presence::kDead : Presence::kDetached;
  record.last_seen = at(stored.last_seen_unix_ms());
  record.detached_at = was_linked ? now : at(stored.detached_unix_ms());
  plane_.seats.Restore(std::move(record));
  if (was_linked) Keep(seat_id);
}

}  // namespace callboard::server
