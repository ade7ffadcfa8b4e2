// SimDcc: what it tells by itself: resources that somebody has subscribed to, lists, logs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/log_levels.h"
#include "tests/sim/dcc_process.h"
#include "tests/sim/sim_backend.h"

namespace callboard::sim {
namespace {

constexpr int kExtraToolsMax = 6;
constexpr std::string_view kPromptsChanged = "notifications/prompts/list_changed";
constexpr std::string_view kToolsChanged = "notifications/tools/list_changed";

}  // namespace

bool SimDcc::TakeWish(uint64_t serial, uint64_t exchange, const core::JsonRpcMessage& message) {
  Peer& peer = peers_[serial];
  if (message.method == "resources/subscribe") {
    peer.subscriptions.insert(core::FindString(message.params, "uri").value_or(""));
  } else if (message.method == "resources/unsubscribe") {
    peer.subscriptions.erase(core::FindString(message.params, "uri").value_or(""));
  } else if (message.method == "logging/setLevel") {
    peer.level = core::McpSeverity(core::FindString(message.params, "level").value_or(""));
  } else {
    return false;
  }
  const auto work = absl::Milliseconds(static_cast<int64_t>(place_.random_.Below(40)));
  Run run;
  run.serial = serial;
  run.exchange = exchange;
  run.raw_id = std::string(message.id);
  run.main_thread = false;
  const uint64_t number = ++last_run_;
  run.timer = place_.loop_.After(work, [this, number] {
    const Run& at = runs_.at(number);
    Reply(at.serial, at.exchange, core::MakeResult(at.raw_id, "{}"), true);
    Forget(number);
  });
  runs_.emplace(number, std::move(run));
  return true;
}

void SimDcc::Tick() {
  core::Random& random = place_.random_;
  const auto wait = absl::Milliseconds(200 + static_cast<int64_t>(random.Below(4'000)));
  tick_timer_ = place_.loop_.After(wait, [this, &random] {
    Tick();
    if (!place_.changes_ || frozen_until_ > place_.loop_.Now()) return;
    const uint64_t dice = random.Below(20);
    if (dice < 11) {
      std::set<std::string> all = {"res://a", "res://b"};
      for (const auto& [serial, peer] : peers_) {
        all.insert(peer.subscriptions.begin(), peer.subscriptions.end());
      }
      Touch(*std::next(all.begin(), static_cast<int64_t>(random.Below(all.size()))));
    } else if (dice < 14) {
      Log(nullptr);
    } else if (dice < 16) {
      TellOfJob();
    } else if (dice < 19) {
      // Sometimes many at once, as when a file is opened.
      for (uint64_t i = 0; i < 1 + random.Below(3); ++i) ChangeList(kPromptsChanged);
    } else if (extra_tools_ < kExtraToolsMax) {
      ChangeList(kToolsChanged);
    }
  });
}

// A stateless HTTP server has no connection to say anything on.
bool SimDcc::Pushes() const { return place_.kind() == DccKind::kStdio || place_.has_sessions_; }

void SimDcc::Touch(const std::string& uri) {
  bool told = false;
  for (const auto& [serial, peer] : peers_) {
    const auto at = place_.backends_.find(serial);
    if (at == place_.backends_.end() || !peer.subscriptions.contains(uri)) continue;
    told = told || (at->second->shared() && Pushes());
    at->second->Deliver(0,
                        core::MakeNotification("notifications/resources/updated",
                                               core::JsonObject().String("uri", uri).Take()),
                        false);
  }
  if (!told) return;
  place_.trace_.Add(fmt::format("{} has changed {}", place_.name(), uri));
  place_.ledger_.Changed(place_.name(), uri, place_.loop_.Now());
}

void SimDcc::ChangeList(std::string_view method) {
  if (method == kToolsChanged) {
    tools_.push_back(
        fmt::format(R"({{"name":"extra_{}","inputSchema":{{"type":"object"}}}})", ++extra_tools_));
  }
  Notify(method);
  if (peers_.empty() || !Pushes()) return;
  place_.trace_.Add(fmt::format("{} says {}", place_.name(), method));
  place_.ledger_.Changed(place_.name(), std::string(method), place_.loop_.Now());
}

// Of a call's own log the connection tells whose it is; on stdio nothing does.
void SimDcc::Log(const Run* run) {
  const size_t level = place_.random_.Below(core::kMcpLogLevels.size());
  const bool of_call = run != nullptr && place_.kind() == DccKind::kHttp;
  if (run != nullptr && run->tag.empty()) return;
  for (auto& [serial, peer] : peers_) {
    const auto at = place_.backends_.find(serial);
    if (at == place_.backends_.end() || level < peer.level) continue;
    if (run != nullptr && serial != run->serial) continue;
    core::JsonObject data;
    data.String("from", place_.name());
    if (of_call) data.String("nonce", run->nonce).String("call", run->tag);
    const auto say = [level](core::JsonObject of) {
      return core::MakeNotification("notifications/message",
                                    core::JsonObject()
                                        .String("level", core::kMcpLogLevels[level])
                                        .Raw("data", of.Take())
                                        .Take());
    };
    if (place_.kind() != DccKind::kStdio || !at->second->shared()) {
      at->second->Deliver(of_call ? run->exchange : 0, say(std::move(data)), false);
      continue;
    }
    data.String("connection", fmt::format("{}#{}", place_.name(), peer.connection));
    at->second->Tell([say, data = std::move(data)](int64_t n) mutable {
      if (n > 0) data.Int("n", n);
      return say(std::move(data));
    });
  }
}

// A notification of the application's own kind, outside any call; numbered as logs are.
void SimDcc::TellOfJob() {
  for (auto& [serial, peer] : peers_) {
    const auto at = place_.backends_.find(serial);
    if (at == place_.backends_.end() || place_.kind() != DccKind::kStdio) continue;
    if (!at->second->shared()) continue;
    core::JsonObject data;
    data.String("connection", fmt::format("{}#{}", place_.name(), peer.connection));
    at->second->Tell([data = std::move(data)](int64_t n) mutable {
      if (n > 0) data.Int("n", n);
      return core::MakeNotification("notifications/$/dcc.jobUpdated",
                                    core::JsonObject().Raw("data", data.Take()).Take());
    });
  }
}

void SimDcc::ChangeAll() {
  std::set<std::string> all;
  for (const auto& [serial, peer] : peers_) {
    all.insert(peer.subscriptions.begin(), peer.subscriptions.end());
  }
  for (const std::string& uri : all) Touch(uri);
  ChangeList(kPromptsChanged);
  ChangeList(kToolsChanged);
}

bool SimDcc::TellsShared(const std::string& uri) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const auto at = place_.backends_.find(entry.first);
    return at != place_.backends_.end() && at->second->shared() &&
           entry.second.subscriptions.contains(uri);
  });
}

}  // namespace callboard::sim
