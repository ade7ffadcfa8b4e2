// A store of bodies that takes its time, fails, and loses at a kill what is not whole.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime/event_loop.h"
#include "server/flows/body_store.h"
#include "tests/sim/sim_store.h"

namespace callboard::sim {

// One per process of the control plane, on the disk of its store, whose delay and failing are its
// own. Destroying it is what a kill is to the process. Loop thread only.
class SimBodies final : public server::BodyStore {
 public:
  SimBodies(core::EventLoop& loop, SimDisk& disk) : loop_(loop), disk_(disk) {}

  absl::StatusOr<std::vector<Whole>> Load() override {
    std::vector<Whole> whole;
    for (const auto& [call, body] : disk_.bodies) whole.push_back({call, body.size()});
    return whole;
  }
  void Append(const server::CallId& call, uint64_t offset, std::string bytes, Done done) override {
    InTurn([this, call, offset, bytes = std::move(bytes), done = std::move(done)]() mutable {
      if (disk_.failing) return done(absl::UnavailableError("the disk is full"));
      std::string& part = parts_[call];
      if (part.size() < offset) return done(absl::FailedPreconditionError("a hole"));
      part.resize(offset);
      part.append(bytes);
      done(absl::OkStatus());
    });
  }
  void Seal(const server::CallId& call, uint64_t size, Done done) override {
    InTurn([this, call, size, done = std::move(done)]() mutable {
      if (disk_.failing) return done(absl::UnavailableError("the disk is full"));
      std::string& part = parts_[call];
      if (part.size() != size) return done(absl::FailedPreconditionError("of another size"));
      disk_.bodies[call] = std::move(part);
      disk_.bodies_done.insert(call);
      parts_.erase(call);
      done(absl::OkStatus());
    });
  }
  void Read(const server::CallId& call, uint64_t offset, size_t bytes_max,
            absl::AnyInvocable<void(absl::StatusOr<std::string>)> callback) override {
    InTurn([this, call, offset, bytes_max, callback = std::move(callback)]() mutable {
      auto body = disk_.bodies.find(call);
      if (body == disk_.bodies.end()) return callback(absl::NotFoundError("no such file"));
      callback(body->second.substr(std::min<uint64_t>(offset, body->second.size()), bytes_max));
    });
  }
  void Remove(const server::CallId& call) override {
    disk_.bodies_done.insert(call);
    InTurn([this, call] {
      parts_.erase(call);
      disk_.bodies.erase(call);
    });
  }

 private:
  void InTurn(absl::AnyInvocable<void()> work) {
    while (!waiting_.empty() && !waiting_.front().pending()) waiting_.pop_front();
    if (waiting_.empty() && disk_.delay == absl::ZeroDuration()) return work();
    last_due_ = std::max(last_due_, loop_.Now() + disk_.delay);
    waiting_.push_back(loop_.At(last_due_, std::move(work)));
  }

  core::EventLoop& loop_;
  SimDisk& disk_;
  std::map<server::CallId, std::string> parts_;
  absl::Time last_due_ = absl::InfinitePast();
  std::deque<core::Timer> waiting_;
};

}  // namespace callboard::sim
