// Implementation of DccPlace.
#include "tests/sim/sim_dcc.h"

#include <fmt/format.h>

#include <utility>

#include "tests/sim/dcc_process.h"
#include "tests/sim/sim_backend.h"

namespace callboard::sim {

DccPlace::DccPlace(core::EventLoop& loop, core::Random& random, Trace& trace, Ledger& ledger,
                   std::string name, DccKind kind)
    : loop_(loop),
      random_(random),
      trace_(trace),
      ledger_(ledger),
      name_(std::move(name)),
      kind_(kind),
      has_sessions_(kind == DccKind::kHttp && random.Below(3) != 0) {}
DccPlace::~DccPlace() = default;

int64_t DccPlace::pid() const { return dcc_ == nullptr ? 0 : dcc_->pid(); }

void DccPlace::Start() {
  if (dcc_ != nullptr) return;
  dcc_ = std::make_unique<SimDcc>(*this, ++last_pid_);
  trace_.Add(fmt::format("{} starts with pid {}", name_, last_pid_));
  Changed();
}

void DccPlace::Kill(std::string_view why) {
  if (dcc_ == nullptr) return;
  trace_.Add(fmt::format("{} ends: {}", name_, why));
  dcc_.reset();
  for (const auto& [serial, backend] : backends_) backend->ProcessEnded();
  if (kind_ == DccKind::kHttp) {
    restart_timer_ = loop_.After(
        absl::Milliseconds(300 + static_cast<int64_t>(random_.Below(6'000))), [this] { Start(); });
  }
  Changed();
}

void DccPlace::Freeze(absl::Duration duration) {
  if (dcc_ != nullptr) dcc_->Freeze(duration);
}

void DccPlace::BreakExchanges() {
  for (const auto& [serial, backend] : backends_) backend->BreakExchanges();
}

void DccPlace::ChangeAll() {
  if (dcc_ != nullptr) dcc_->ChangeAll();
}

std::string DccPlace::OpenAsks() const { return dcc_ == nullptr ? "" : dcc_->OpenAsks(); }

bool DccPlace::TellsShared(const std::string& uri) const {
  return dcc_ != nullptr && dcc_->TellsShared(uri);
}

void DccPlace::Changed() {
  change_timer_ =
      loop_.After(absl::Milliseconds(50 + static_cast<int64_t>(random_.Below(1'000))), [this] {
        if (on_change_ != nullptr) on_change_();
      });
}

std::unique_ptr<agent::Backend> DccPlace::MakeBackend() {
  return std::make_unique<SimBackend>(*this);
}

}  // namespace callboard::sim
