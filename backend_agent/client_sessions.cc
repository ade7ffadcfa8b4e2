// Implementation of ClientSessions.
#include "backend_agent/client_sessions.h"

#include <algorithm>
#include <utility>

namespace callboard::agent {

class ClientSessions::Entry final : private McpSession::Events {
 public:
  Entry(ClientSessions& owner, std::string key, std::unique_ptr<Backend> backend,
        ClientDescription client)
      : owner_(owner),
        key_(std::move(key)),
        session_(owner.loop_, owner.random_, std::move(backend), this, owner.session_limits_,
                 std::move(client)) {
    session_.StartUp();
  }

  McpSession& session() { return session_; }
  void Use(const std::string& control_plane) {
    last_use_ = owner_.loop_.Now();
    if (control_plane_ != control_plane) control_plane_ = control_plane;
  }
  const std::string& control_plane() const { return control_plane_; }
  absl::Time last_use() const { return last_use_; }
  std::string& level() { return level_; }

 private:
  void OnBackendUp() override {}
  void OnSessionReady() override { level_.clear(); }
  void OnInitializeFailed(std::string) override {}
  void OnBackendRejoined() override {}
  // The shared session sees it too, and tells what it means.
  void OnBackendDown(BackendExit) override { owner_.End(std::string(key_)); }
  void OnProgress(uint64_t request, std::string raw_params) override {
    owner_.events_.OnProgress(key_, request, std::move(raw_params));
  }
  void OnServerNotification(uint64_t request, std::string method, std::string params) override {
    owner_.events_.OnServerNotification(key_, request, std::move(method), std::move(params));
  }
  void OnServerRequest(uint64_t request, std::string raw_id, std::string method,
                       std::string params) override {
    owner_.events_.OnServerRequest(key_, request, std::move(raw_id), std::move(method),
                                   std::move(params));
  }

  ClientSessions& owner_;
  const std::string key_;
  McpSession session_;
  std::string level_;
  std::string control_plane_;
  absl::Time last_use_;
};

ClientSessions::ClientSessions(core::EventLoop& loop, core::Random& random, Events& events,
                               SessionLimits session_limits, ClientSessionLimits limits)
    : loop_(loop),
      random_(random),
      events_(events),
      session_limits_(session_limits),
      limits_(limits) {}

ClientSessions::~ClientSessions() = default;

McpSession* ClientSessions::Find(const std::string& key) const {
  auto found = sessions_.find(key);
  return found == sessions_.end() ? nullptr : &found->second->session();
}

std::string ClientSessions::ControlPlaneOf(const std::string& key) const {
  auto found = sessions_.find(key);
  return found == sessions_.end() ? "" : found->second->control_plane();
}

std::string* ClientSessions::LevelOf(const std::string& key) {
  auto found = sessions_.find(key);
  return found == sessions_.end() ? nullptr : &found->second->level();
}

McpSession* ClientSessions::Open(McpSession& shared, const std::string& key,
                                 const ClientDescription& client,
                                 const std::string& control_plane) {
  auto found = sessions_.find(key);
  if (found == sessions_.end()) {
    if (!shared.ready() || !MakeRoom()) return nullptr;
    auto backend = shared.backend().OpenAnother();
    if (backend == nullptr) return nullptr;
    auto entry = std::make_unique<Entry>(*this, key, std::move(backend), client);
    found = sessions_.emplace(key, std::move(entry)).first;
    if (!idle_timer_.pending()) idle_timer_ = loop_.After(limits_.idle, [this] { EndIdle(); });
  }
  found->second->Use(control_plane);
  return &found->second->session();
}

bool ClientSessions::MakeRoom() {
  if (sessions_.size() < limits_.sessions_max) return true;
  auto oldest = sessions_.end();
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    if (!it->second->session().idle()) continue;
    if (oldest == sessions_.end() || it->second->last_use() < oldest->second->last_use()) {
      oldest = it;
    }
  }
  if (oldest == sessions_.end()) return false;
  End(std::string(oldest->first));
  return true;
}

void ClientSessions::EndIdle() {
  const absl::Time limit = loop_.Now() - limits_.idle;
  std::vector<std::string> idle;
  for (const auto& [key, entry] : sessions_) {
    if (entry->last_use() <= limit && entry->session().idle()) idle.push_back(key);
  }
  for (const std::string& key : idle) End(key);
  if (!sessions_.empty()) idle_timer_ = loop_.After(limits_.idle / 4, [this] { EndIdle(); });
}

void ClientSessions::End(const std::string& key) {
  auto node = sessions_.extract(key);
  if (node.empty()) return;
  Entry* const entry = node.mapped().get();
  ending_.push_back(std::move(node.mapped()));
  events_.OnSessionOver(key);
  entry->session().backend().Stop([this, entry, alive = lifetime_.Watch()] {
    if (alive.expired()) return;
    // Later: this comes from inside it.
    loop_.Post(lifetime_.Wrap([this, entry] {
      std::erase_if(ending_, [entry](const auto& ended) { return ended.get() == entry; });
    }));
  });
}

void ClientSessions::Clear() {
  idle_timer_.Cancel();
  for (auto& [key, entry] : std::exchange(sessions_, {})) {
    ending_.push_back(std::move(entry));
    events_.OnSessionOver(key);
  }
  loop_.Post(lifetime_.Wrap([this] { ending_.clear(); }));
}

}  // namespace callboard::agent
