// A server stream of the control API as an EventSource: one read in flight, a little ahead of
// demand.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "bridge/grpc_client/plane_channels.h"
#include "bridge/grpc_client/rpc_status.h"
#include "core/runtime/ahead_queue.h"
#include "core/runtime/event_source.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/loop_gate.h"

namespace callboard::bridge {

// The RPC. The loop calls Start, Read and Close; gRPC the reactions, on its own threads. Owns
// itself until OnDone. Reads ahead behind notifications only, and no more than an AheadQueue holds:
// not reading is the back-pressure. While no read is in flight the end of the RPC goes unnoticed.
template <class Request, class Event>
class ReadReactor final : public grpc::ClientReadReactor<Event> {
 public:
  using Callback = absl::AnyInvocable<void(absl::StatusOr<Event>)>;
  using Method = void (v1::ControlPlane::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, grpc::ClientReadReactor<Event>*);

  ReadReactor(std::shared_ptr<core::LoopGate> gate, std::string address, Request request)
      : gate_(std::move(gate)), address_(std::move(address)), request_(std::move(request)) {}

  // ---- loop thread ----
  void Start(std::shared_ptr<ReadReactor> self, PlaneChannel& plane, Method method) {
    self_ = std::move(self);
    gate_->OnBegin();
    (plane.stub->async()->*method)(&context_, &request_, this);
    // A hold, because reads start from the loop; removed once, by a failed read or by Close.
    this->AddHold();
    this->StartCall();
  }
  void Read(Callback callback) {
    std::optional<Event> next;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!ahead_.empty()) next = ahead_.Pop();
      if (!reading_ && !failed_ && (!next || (ahead_.empty() && ahead_.has_room()))) {
        reading_ = true;
        this->StartRead(&in_);
      }
    }
    if (next) return callback(*std::move(next));
    callback_ = std::move(callback);
    if (end_.has_value()) Finish();
  }
  void Close() {
    callback_ = nullptr;
    context_.TryCancel();
    ReleaseHold();
  }

  // ---- gRPC's threads ----
  void OnReadDone(bool ok) override {
    bool post = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (ok) {
        const bool followed = in_.has_stream_event();
        ahead_.Push(std::exchange(in_, Event()), followed);
        post = !std::exchange(posted_, true);
      } else {
        failed_ = true;
      }
      reading_ = ok && ahead_.has_room();
      if (reading_) this->StartRead(&in_);
    }
    if (!ok) return ReleaseHold();
    if (post) gate_->Post([self = self_] { self->Deliver(); });
  }
  void OnDone(const grpc::Status& status) override {
    // No reference may stay here: the last one goes on the loop.
    auto gate = gate_;
    gate->Post([self = std::move(self_), status] {
      self->end_ = StreamRpcEnd(status, self->context_, self->address_);
      self->Finish();
    });
    gate->OnEnd();
  }

 private:
  void Deliver() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      posted_ = false;
      // Taken meanwhile by a consumer who asked.
      if (ahead_.empty()) return;
    }
    if (auto callback = std::exchange(callback_, nullptr)) Read(std::move(callback));
  }
  void Finish() {
    if (auto callback = std::exchange(callback_, nullptr)) callback(*end_);
  }
  void ReleaseHold() {
    if (!released_.exchange(true)) this->RemoveHold();
  }

  std::shared_ptr<core::LoopGate> gate_;
  const std::string address_;
  const Request request_;
  grpc::ClientContext context_;
  std::shared_ptr<ReadReactor> self_;  // until OnDone
  std::atomic<bool> released_ = false;
  Callback callback_;                // loop thread only
  std::optional<absl::Status> end_;  // loop thread only
  std::mutex mutex_;
  Event in_;  // of the read in flight
  core::AheadQueue<Event> ahead_;
  bool reading_ = false;
  bool failed_ = false;  // nothing is read any more
  bool posted_ = false;  // Deliver() is on its way
};

// What a consumer holds; waits for a control plane first. Loop thread.
template <class Request, class Event>
class RemoteSource final : public core::EventSource<Event> {
 public:
  using Reactor = ReadReactor<Request, Event>;

  RemoteSource(std::shared_ptr<core::LoopGate> gate, PlaneChannels& planes, Request request,
               typename Reactor::Method method) {
    planes.WhenConnected(lifetime_.Wrap([this, gate = std::move(gate), request = std::move(request),
                                         method](absl::StatusOr<PlaneChannel*> plane) mutable {
      if (!plane.ok()) {
        never_started_ = plane.status();
        if (callback_) std::exchange(callback_, nullptr)(*never_started_);
        return;
      }
      reactor_ = std::make_shared<Reactor>(std::move(gate), (*plane)->address, std::move(request));
      reactor_->Start(reactor_, **plane, method);
      if (callback_) Read(std::exchange(callback_, nullptr));
    }));
  }
  ~RemoteSource() override {
    if (reactor_ != nullptr) reactor_->Close();
  }

  void Next(absl::AnyInvocable<void(absl::StatusOr<Event>)> callback) override {
    if (never_started_) return callback(*never_started_);
    if (reactor_ != nullptr) return Read(std::move(callback));
    callback_ = std::move(callback);
  }

 private:
  void Read(absl::AnyInvocable<void(absl::StatusOr<Event>)> callback) {
    reactor_->Read(
        lifetime_.Wrap([this, callback = std::move(callback)](absl::StatusOr<Event> event) mutable {
          if (event.ok()) {
            NoteProgress(*event);
          } else if (IsLost(event.status())) {
            return callback(Lost(event.status(), accepted_));
          }
          callback(std::move(event));
        }));
  }
  void NoteProgress(const v1::InvokeEvent& event) { accepted_ |= event.accepted().has_id(); }
  void NoteProgress(const v1::ListenEvent&) {}
  // An Invoke that was lost before its stream was accepted cannot be asked for again.
  static absl::Status Lost(const absl::Status& status, bool accepted) {
    if constexpr (std::is_same_v<Request, v1::InvokeRequest>) {
      if (!accepted) return OutcomeUnknown(status);
    }
    return status;
  }

  absl::AnyInvocable<void(absl::StatusOr<Event>)> callback_;  // waits for the connection
  std::optional<absl::Status> never_started_;
  std::shared_ptr<Reactor> reactor_;
  bool accepted_ = false;
  core::Lifetime lifetime_;
};

}  // namespace callboard::bridge
