// Implementation of the checked control plane client.
#include "tests/sim/checked_client.h"

#include <fmt/format.h>

#include <deque>
#include <utility>

#include "core/runtime/lifetime.h"

namespace callboard::sim {
namespace {

using InvokeSource = core::EventSource<v1::InvokeEvent>;
using ListenSource = core::EventSource<v1::ListenEvent>;

// A source whose reader has had all it wanted: it is asked once more, and must have nothing.
struct Aftermath {
  std::unique_ptr<InvokeSource> source;
  core::Timer end;
};

struct Shared {
  core::EventLoop& loop;
  Trace& trace;
  StoreWitness& witness;
  uint64_t ended = 0;
  std::deque<std::shared_ptr<Aftermath>> aftermaths;
};

class OutcomeCheck {
 public:
  explicit OutcomeCheck(Trace& trace) : trace_(trace) {}

  void TakeOutcome(const v1::CallOutcome& outcome) {
    if (has_outcome_) trace_.Violate("every call has exactly one outcome", "a second one came");
    has_outcome_ = true;
    left_ = outcome.body().content_case() == v1::Body::kSize ? outcome.body().size() : 0;
  }
  void TakeChunk(const v1::BodyChunk& chunk) {
    if (!has_outcome_ || chunk.bytes().size() > left_) {
      trace_.Violate("chunks belong to an outcome's body",
                     fmt::format("{} bytes where {} are due", chunk.bytes().size(), left_));
      return;
    }
    left_ -= chunk.bytes().size();
    if (chunk.last() != (left_ == 0)) {
      trace_.Violate("the last chunk says so", fmt::format("{} bytes are left", left_));
    }
  }
  void TakeOther() {
    if (has_outcome_) trace_.Violate("nothing comes after the end of a call", "an event came");
  }
  bool complete() const { return has_outcome_ && left_ == 0; }

 private:
  Trace& trace_;
  bool has_outcome_ = false;
  uint64_t left_ = 0;
};

class CheckedInvoke final : public InvokeSource {
 public:
  CheckedInvoke(std::shared_ptr<Shared> shared, std::string session,
                std::unique_ptr<InvokeSource> inner)
      : shared_(std::move(shared)),
        session_(std::move(session)),
        inner_(std::move(inner)),
        check_(shared_->trace) {}

  ~CheckedInvoke() override {
    if (size_ > 0) shared_->witness.fetches().Add(call_id_, size_, body_);
    if (!check_.complete() || waiting_ || ++shared_->ended % 2 == 0) return;
    auto& list = shared_->aftermaths;
    while (!list.empty() && !list.front()->end.pending()) list.pop_front();
    auto aftermath = std::make_shared<Aftermath>();
    aftermath->source = std::move(inner_);
    aftermath->end = shared_->loop.After(absl::Seconds(1), [weak = std::weak_ptr(aftermath)] {
      if (auto locked = weak.lock()) locked->source.reset();
    });
    list.push_back(aftermath);
    aftermath->source->Next([&trace = shared_->trace](absl::StatusOr<v1::InvokeEvent> event) {
      if (event.ok()) {
        trace.Violate("every call has exactly one outcome, always last",
                      event->ShortDebugString().substr(0, 200));
      }
    });
  }

  void Next(absl::AnyInvocable<void(absl::StatusOr<v1::InvokeEvent>)> callback) override {
    waiting_ = true;
    inner_->Next(lifetime_.Wrap(
        [this, callback = std::move(callback)](absl::StatusOr<v1::InvokeEvent> event) mutable {
          waiting_ = false;
          if (event.ok()) Check(*event);
          callback(std::move(event));
        }));
  }

 private:
  void Check(const v1::InvokeEvent& event) {
    shared_->witness.LookShown(session_, event);
    if (event.has_outcome()) {
      call_id_ = event.outcome().call_id();
      size_ = event.outcome().body().size();
      return check_.TakeOutcome(event.outcome());
    }
    if (event.has_chunk()) {
      body_.append(event.chunk().bytes());
      return check_.TakeChunk(event.chunk());
    }
    check_.TakeOther();
  }

  std::shared_ptr<Shared> shared_;
  const std::string session_;
  std::unique_ptr<InvokeSource> inner_;
  OutcomeCheck check_;
  std::string call_id_;
  uint64_t size_ = 0;  // of a body that comes in chunks
  std::string body_;
  bool waiting_ = false;
  core::Lifetime lifetime_;
};

class CheckedListen final : public ListenSource {
 public:
  CheckedListen(std::shared_ptr<Shared> shared, v1::ListenRequest request,
                std::unique_ptr<ListenSource> inner)
      : shared_(std::move(shared)), request_(std::move(request)), inner_(std::move(inner)) {
    last_ = {request_.after().term(), request_.after().n()};
  }

  void Next(absl::AnyInvocable<void(absl::StatusOr<v1::ListenEvent>)> callback) override {
    inner_->Next(lifetime_.Wrap(
        [this, callback = std::move(callback)](absl::StatusOr<v1::ListenEvent> event) mutable {
          if (event.ok()) Check(*event);
          callback(std::move(event));
        }));
  }

 private:
  void Check(const v1::ListenEvent& event) {
    if (event.has_stream_event()) CheckId(event.stream_event().id());
    if (event.has_ask()) CheckId(event.ask().id());
    if (event.has_outcome()) CheckId(event.outcome().id());
    shared_->witness.LookShown(request_.session_id(), event);
  }
  void CheckId(const v1::EventId& id) {
    const std::pair<uint64_t, uint64_t> here{id.term(), id.n()};
    if (id.stream() != request_.stream() || here <= last_) {
      shared_->trace.Violate("a stream's ids are its own and grow", id.ShortDebugString());
    }
    last_ = here;
  }

  std::shared_ptr<Shared> shared_;
  const v1::ListenRequest request_;
  std::unique_ptr<ListenSource> inner_;
  std::pair<uint64_t, uint64_t> last_;
  core::Lifetime lifetime_;
};

class CheckedClient final : public bridge::ControlPlaneClient {
 public:
  CheckedClient(core::EventLoop& loop, Trace& trace, StoreWitness& witness,
                std::unique_ptr<bridge::ControlPlaneClient> inner)
      : shared_(std::make_shared<Shared>(Shared{loop, trace, witness})), inner_(std::move(inner)) {
    witness.fetches().AddClient(inner_.get());
  }
  ~CheckedClient() override { shared_->witness.fetches().RemoveClient(inner_.get()); }

  void OpenSession(v1::OpenSessionRequest request, bridge::Reply<v1::Session> reply) override {
    inner_->OpenSession(std::move(request), std::move(reply));
  }
  void GetSession(v1::SessionRef request, bridge::Reply<v1::Session> reply) override {
    inner_->GetSession(std::move(request), std::move(reply));
  }
  void CloseSession(v1::SessionRef request,
                    bridge::Reply<v1::CloseSessionResponse> reply) override {
    inner_->CloseSession(std::move(request), std::move(reply));
  }
  std::unique_ptr<InvokeSource> Invoke(v1::InvokeRequest request) override {
    std::string session = request.session_id();
    return std::make_unique<CheckedInvoke>(shared_, std::move(session),
                                           inner_->Invoke(std::move(request)));
  }
  std::unique_ptr<ListenSource> Listen(v1::ListenRequest request) override {
    auto source = inner_->Listen(request);
    return std::make_unique<CheckedListen>(shared_, std::move(request), std::move(source));
  }
  void Send(v1::SendRequest request, bridge::Reply<v1::SendResponse> reply) override {
    inner_->Send(std::move(request), std::move(reply));
  }
  void GetCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    inner_->GetCall(std::move(request), std::move(reply));
  }
  void WaitCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    inner_->WaitCall(std::move(request), std::move(reply));
  }
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> FetchOutcome(v1::CallRef request) override {
    return inner_->FetchOutcome(std::move(request));
  }
  void CancelCall(v1::CallRef request, bridge::Reply<v1::Call> reply) override {
    inner_->CancelCall(std::move(request), std::move(reply));
  }
  void SearchTools(v1::SearchToolsRequest request,
                   bridge::Reply<v1::SearchToolsResponse> reply) override {
    inner_->SearchTools(std::move(request), std::move(reply));
  }
  void DescribeTool(v1::DescribeToolRequest request,
                    bridge::Reply<v1::DescribeToolResponse> reply) override {
    inner_->DescribeTool(std::move(request), std::move(reply));
  }
  void LoadSkill(v1::LoadSkillRequest request,
                 bridge::Reply<v1::LoadSkillResponse> reply) override {
    inner_->LoadSkill(std::move(request), std::move(reply));
  }
  void GetList(v1::GetListRequest request, bridge::Reply<v1::GetListResponse> reply) override {
    inner_->GetList(std::move(request), std::move(reply));
  }
  void ListInstances(v1::ListInstancesRequest request,
                     bridge::Reply<v1::ListInstancesResponse> reply) override {
    inner_->ListInstances(std::move(request), std::move(reply));
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<bridge::ControlPlaneClient> inner_;
};

}  // namespace

std::unique_ptr<bridge::ControlPlaneClient> MakeCheckedClient(
    core::EventLoop& loop, Trace& trace, StoreWitness& witness,
    std::unique_ptr<bridge::ControlPlaneClient> inner) {
  return std::make_unique<CheckedClient>(loop, trace, witness, std::move(inner));
}

}  // namespace callboard::sim
