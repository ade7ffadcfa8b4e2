// Implementation of InstanceWatch.
#include "server/flows/instance_watch.h"

#include <utility>

namespace callboard::server {

void CompleteRow(const Plane& plane, v1::InstanceRow& row) {
  if (const auto list = plane.catalog.Of(row.seat_id())) {
    row.set_tools(static_cast<uint32_t>(list->tools.size()));
  } else if (row.status() == "available") {
    row.set_status("starting");
    row.set_advice("wait");
  }
  const SeatRecord* seat = plane.seats.Find(row.seat_id());
  if (seat == nullptr) return;
  const absl::Time now = plane.loop.Now();
  for (const std::string& id : seat->state.running()) {
    const auto call_id = CallId::From(id);
    const Execution* execution = call_id ? plane.executions.Find(*call_id) : nullptr;
    if (execution == nullptr || execution->over() || execution->started > now) continue;
    v1::RunningCall& running = *row.add_running();
    running.set_call_id(id);
    running.set_method(execution->method);
    running.set_tool(execution->tool);
    running.set_run_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(now - execution->started)));
  }
}

InstanceWatchers::~InstanceWatchers() {
  for (const auto& [number, watch] : watches_) watch->PlaneGone();
}

std::unique_ptr<core::EventSource<v1::InstanceEvent>> InstanceWatchers::Open(
    v1::ListInstancesRequest request) {
  if (watches_.size() >= kWatchersMax) {
    return std::make_unique<EndedSource<v1::InstanceEvent>>(
        absl::ResourceExhaustedError("10000 clients watch the instances already"));
  }
  const uint64_t number = next_++;
  auto watch = std::make_unique<InstanceWatch>(*this, plane_, number, std::move(request));
  watches_.insert({number, watch.get()});
  return watch;
}

void InstanceWatchers::OnSeatChanged(const std::string& seat_id) {
  for (const auto& [number, watch] : watches_) watch->OnSeatChanged(seat_id);
}

InstanceWatch::InstanceWatch(InstanceWatchers& watchers, Plane& plane, uint64_t number,
                             v1::ListInstancesRequest request)
    : PulledSource(plane.ready),
      watchers_(&watchers),
      plane_(plane),
      number_(number),
      request_(std::move(request)) {
  for (const auto& [seat_id, seat] : plane.seats.all()) changed_.insert(seat_id);
}

InstanceWatch::~InstanceWatch() {
  if (watchers_ != nullptr) watchers_->watches_.erase({number_, this});
}

void InstanceWatch::OnSeatChanged(const std::string& seat_id) {
  changed_.insert(seat_id);
  if (wanted()) MarkReady();
}

void InstanceWatch::PlaneGone() {
  watchers_ = nullptr;
  MarkReady();
}

std::optional<absl::StatusOr<v1::InstanceEvent>> InstanceWatch::Take() {
  if (watchers_ == nullptr) return absl::UnavailableError("the control plane has ended");
  while (!changed_.empty()) {
    const std::string seat_id = std::move(changed_.extract(changed_.begin()).value());
    const SeatRecord* seat = plane_.seats.Find(seat_id);
    const bool fits = seat != nullptr &&
                      (request_.app().empty() || request_.app() == seat->state.app()) &&
                      (seat->presence != Presence::kDead || request_.include_dead()) &&
                      (seat->presence != Presence::kStale || request_.include_stale());
    v1::InstanceEvent event;
    if (fits) {
      shown_.insert(seat_id);
      *event.mutable_instance() = plane_.seats.Row(*seat, plane_.loop.Now());
      CompleteRow(plane_, *event.mutable_instance());
      return event;
    }
    if (shown_.erase(seat_id) == 0) continue;
    event.mutable_instance()->set_seat_id(seat_id);
    event.set_removed(true);
    return event;
  }
  return std::nullopt;
}

}  // namespace callboard::server
