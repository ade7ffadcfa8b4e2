// Implementation of SimBackend.
#include "tests/sim/sim_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/sim/dcc_process.h"

namespace callboard::sim {

class SimBackend::Exchange final : public agent::BackendExchange {
 public:
  Exchange(SimBackend& backend, uint64_t id)
      : backend_(backend), alive_(backend.lifetime_.Watch()), id_(id) {}
  ~Exchange() override {
    if (!alive_.expired() && backend_.open_.erase(id_) > 0) backend_.Detach(id_);
  }

 private:
  SimBackend& backend_;
  std::weak_ptr<char> alive_;
  const uint64_t id_;
};

SimBackend::SimBackend(DccPlace& place, bool shared)
    : place_(place), serial_(++place.last_backend_), shared_(shared) {
  place_.backends_[serial_] = this;
  if (place_.kind() == DccKind::kHttp) pid_ = place_.pid();
}

SimBackend::~SimBackend() {
  place_.backends_.erase(serial_);
  for (const auto& [id, open] : open_) Detach(id);
  if (place_.dcc_ != nullptr) place_.dcc_->Left(serial_);
  if (place_.kind() == DccKind::kStdio && pid_ == place_.pid()) place_.Kill("its agent ended");
}

std::unique_ptr<agent::Backend> SimBackend::OpenAnother() {
  if (!place_.has_sessions_) return nullptr;
  auto another = std::make_unique<SimBackend>(place_, false);
  another->pid_ = pid_;
  return another;
}

void SimBackend::Start(Events* events) {
  events_ = events;
  Spawn(absl::Milliseconds(1 + static_cast<int64_t>(place_.random_.Below(100))));
}

void SimBackend::Spawn(absl::Duration delay) {
  spawn_timer_ = place_.loop_.After(delay, [this] {
    if (place_.kind() == DccKind::kStdio) {
      place_.Start();
      pid_ = place_.pid();
      Up();
    } else if (pid_ != 0 && place_.pid() == pid_) {
      Up();
    } else {
      events_->OnDown({.detail = place_.name() + " does not answer"});
    }
  });
}

void SimBackend::Up() {
  up_ = true;
  events_->OnUp();
}

void SimBackend::Later(absl::AnyInvocable<void()> fn) {
  const absl::Time now = place_.loop_.Now();
  const auto hop = absl::Microseconds(20 + static_cast<int64_t>(place_.random_.Below(500)));
  last_event_ = std::max(last_event_, now + hop);
  while (!timers_.empty() && !timers_.front().pending()) timers_.pop_front();
  timers_.push_back(place_.loop_.At(last_event_, std::move(fn)));
}

std::unique_ptr<agent::BackendExchange> SimBackend::Send(uint64_t id, std::string text,
                                                         bool expects_reply,
                                                         const core::TraceContext&) {
  open_[id] = {.expects_reply = expects_reply};
  Later([this, id, text = std::move(text), expects_reply] {
    const auto at = open_.find(id);
    SimDcc* dcc = place_.dcc_.get();
    if (!up_ || dcc == nullptr || dcc->pid() != pid_) {
      if (at != open_.end()) {
        EndExchange(id, absl::UnavailableError("connection refused"), at->second.reached);
      }
      return;
    }
    if (at != open_.end()) at->second.reached = true;
    const auto alive = lifetime_.Watch();
    dcc->Receive(serial_, id, text);
    if (!alive.expired() && !expects_reply) EndExchange(id, absl::OkStatus(), true);
  });
  return std::make_unique<Exchange>(*this, id);
}

void SimBackend::Detach(uint64_t id) {
  if (place_.dcc_ != nullptr) place_.dcc_->Detach(serial_, id);
}

void SimBackend::EndExchange(uint64_t id, absl::Status status, bool reached) {
  if (!status.ok()) Detach(id);
  if (open_.erase(id) > 0) events_->OnExchangeEnd(id, std::move(status), reached);
}

void SimBackend::Deliver(uint64_t exchange, std::string text, bool last,
                         absl::AnyInvocable<void()> arrived) {
  Later([this, exchange, text = std::move(text), last, arrived = std::move(arrived)]() mutable {
    const bool http = place_.kind() == DccKind::kHttp;
    // Over HTTP what belongs to no open connection has nowhere to go.
    const bool has_way =
        !http || (exchange == 0 ? place_.has_sessions_ : open_.count(exchange) > 0);
    if (!up_ || !has_way) return;
    const auto alive = lifetime_.Watch();
    if (arrived != nullptr) arrived();
    if (!text.empty()) events_->OnMessage(agent::Payload(std::move(text)), http ? exchange : 0);
    if (alive.expired() || !http || !last) return;
    EndExchange(exchange, absl::OkStatus(), true);
  });
}

void SimBackend::Tell(absl::AnyInvocable<std::string(int64_t n)> make) {
  Later([this, make = std::move(make)]() mutable {
    if (!up_) return;
    const bool alone = std::none_of(open_.begin(), open_.end(),
                                    [](const auto& entry) { return entry.second.expects_reply; });
    events_->OnMessage(agent::Payload(make(alone ? ++told_alone_ : 0)), 0);
  });
}

void SimBackend::ProcessEnded() {
  if (!up_) return;
  Later([this, ended = pid_] {
    if (!up_ || pid_ != ended) return;
    up_ = false;
    const auto alive = lifetime_.Watch();
    BreakAll();
    if (alive.expired()) return;
    const bool known = place_.kind() == DccKind::kStdio || place_.random_.Below(2) == 0;
    // Of the process' end the shared session alone tells.
    agent::BackendExit exit{.process_ended = known && shared_,
                            .exit_signal = known ? 9 : 0,
                            .detail = fmt::format("{} (pid {}) ended", place_.name(), ended)};
    events_->OnDown(std::move(exit));
    if (alive.expired() || place_.kind() != DccKind::kStdio) return;
    Spawn(absl::Milliseconds(100 + static_cast<int64_t>(place_.random_.Below(2'000))));
  });
}

void SimBackend::BreakExchanges() {
  if (place_.kind() != DccKind::kHttp || !up_) return;
  Later([this] { BreakAll(); });
}

void SimBackend::BreakAll() {
  const auto alive = lifetime_.Watch();
  std::vector<std::pair<uint64_t, bool>> broken;
  for (const auto& [id, open] : open_) broken.emplace_back(id, open.reached);
  for (const auto& [id, reached] : broken) {
    EndExchange(id, absl::UnavailableError("connection reset by peer"), reached);
    if (alive.expired()) return;
  }
}

void SimBackend::Probe(absl::AnyInvocable<void(bool alive)> callback) {
  Later([this, callback = std::move(callback)]() mutable {
    callback(up_ && place_.pid() == pid_ && pid_ != 0);
  });
}

}  // namespace callboard::sim
