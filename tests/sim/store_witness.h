// Around the control plane: nothing may be settled or shown that is not in the store.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "callboard/v1/store.pb.h"
#include "core/mcp/look_again.h"
#include "core/runtime/event_loop.h"
#include "server/flows/control_plane.h"
#include "server/flows/store_key.h"
#include "tests/sim/later_fetches.h"
#include "tests/sim/sim_store.h"
#include "tests/sim/trace.h"

namespace callboard::sim {

// What the disk has ever held of receipts and events, what agents were told to forget and readers
// were shown. Outlives links and processes. Loop thread only.
class StoreWitness {
 public:
  StoreWitness(core::EventLoop& loop, Trace& trace, SimDisk& disk)
      : loop_(loop), trace_(trace), disk_(disk), fetches_(loop, trace) {
    disk.on_durable = [this](const server::StoreRecord& record) {
      const auto key = server::StoreKey::Parse(record.key);
      if (!key) return;
      if (key->kind == server::StoreKey::Kind::kOutcome) {
        v1::CallOutcome outcome;
        (void)outcome.ParseFromString(record.value);
        if (outcome.body().has_size()) {
          with_body_.insert(*key->call);
        } else {
          with_body_.erase(*key->call);
        }
      }
      if (record.value.empty()) return;
      v1::CallRecord call;
      v1::ReceiptBlock block;
      if (key->kind == server::StoreKey::Kind::kCall && call.ParseFromString(record.value)) {
        if (!call.has_ended()) {
          streams_[*key->call] = StreamName(call.request().session_id(), call.stream());
          Hold(streams_[*key->call], call.stream_term());
          return;
        }
        const v1::EventRecord& last = call.ended().event();
        const v1::EventId& id = last.outcome().id();
        Hold(StreamName(last.session_id(), id.stream()), call.ended().stream_term());
        events_.insert(EventName(StreamName(last.session_id(), id.stream()), {id.term(), id.n()}));
      } else if (key->kind == server::StoreKey::Kind::kEvent) {
        events_.insert(EventName(key->call ? streams_[*key->call] : StreamName(key->session_id, 0),
                                 key->position));
      } else if (key->kind == server::StoreKey::Kind::kReceipts &&
                 block.ParseFromString(record.value)) {
        for (const v1::Receipt& receipt : block.receipts()) kept_.insert(receipt.call().call_id());
      }
    };
  }

  LaterFetches& fetches() { return fetches_; }

  std::unique_ptr<server::AgentLink> Watch(std::unique_ptr<server::AgentLink> link) {
    return std::make_unique<Watched>(*this, std::move(link));
  }

  // Whether the disk has ever held the call whose stream an event of that id (stream.term.n) is of.
  // A number may be given again when it has not.
  bool HasHeld(const std::string& session, const std::string& event_id) const {
    const size_t dot = event_id.find('.');
    const auto held = ever_stored_.find(fmt::format("{}/{}", session, event_id.substr(0, dot)));
    return held != ever_stored_.end() &&
           held->second <= std::strtoull(event_id.c_str() + dot + 1, nullptr, 10);
  }

  // An event of Invoke or Listen. Progress waits for nothing, and what only says that something has
  // changed is issued once more.
  template <class Event>
  void LookShown(const std::string& session, const Event& event) {
    if (event.has_stream_event() && IsDurable(event.stream_event().method())) {
      CheckShown(session, event.stream_event().id());
    }
    if (event.has_ask()) CheckShown(session, event.ask().id());
    // Whoever ends its session has no stream to come back to.
    if (event.has_outcome() && event.outcome().reason() != v1::CANCELLED_SESSION_ENDED) {
      CheckShown(session, event.outcome().id());
    }
  }

 private:
  static bool IsDurable(std::string_view method) {
    return method != "notifications/progress" && !core::SaysLookAgain(method);
  }
  static std::string StreamName(const std::string& session, uint64_t stream) {
    return fmt::format("{}/{}", session, stream);
  }
  static std::string EventName(const std::string& stream, server::StreamPosition position) {
    return fmt::format("{}/{}.{}", stream, position.term, position.n);
  }

  void Hold(const std::string& stream, uint64_t first_term) {
    ever_stored_.try_emplace(stream, first_term);
  }

  void CheckShown(const std::string& session, const v1::EventId& id) {
    if (session.empty() || id.term() == 0) return;
    // While the store fails all is shown from memory.
    if (disk_.failing || loop_.Now() <= disk_.sound_since) return;
    const std::string name =
        EventName(StreamName(session, id.stream()), {.term = id.term(), .n = id.n()});
    if (!events_.contains(name)) trace_.Violate("nothing is shown that is not in the store", name);
  }

  class Watched final : public server::AgentLink {
   public:
    Watched(StoreWitness& owner, std::unique_ptr<server::AgentLink> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    void Open(Handler* handler) override { inner_->Open(handler); }
    void Write(v1::ServerFrame message) override {
      for (const v1::ServerItem& item : message.items()) owner_.Look(item);
      inner_->Write(std::move(message));
    }
    bool TakeWritten() override { return inner_->TakeWritten(); }
    void Close(absl::Status status) override { inner_->Close(std::move(status)); }

   private:
    StoreWitness& owner_;
    std::unique_ptr<server::AgentLink> inner_;
  };

  void Look(const v1::ServerItem& item) {
    if (item.has_dispatch() && item.dispatch().kind() == v1::Dispatch::REQUEST) {
      requests_.insert(item.dispatch().call_id());
    }
    for (const std::string& call : item.settle().call_id()) Check(call);
    if (item.verdict().decision() == v1::Verdict::SETTLE) Check(item.verdict().call_id());
  }
  void Check(const std::string& call) {
    if (!requests_.contains(call)) return;
    if (const auto id = server::CallId::From(call);
        with_body_.contains(*id) && !disk_.bodies_done.contains(*id)) {
      trace_.Violate("nothing is settled whose large result is not kept", id->hex());
    }
    if (kept_.contains(call)) return;
    trace_.Violate("nothing is settled that is not in the store", absl::BytesToHexString(call));
  }

  core::EventLoop& loop_;
  Trace& trace_;
  const SimDisk& disk_;
  std::set<std::string> requests_;
  std::set<std::string> kept_;
  std::set<server::CallId> with_body_;             // outcomes in the store that have one beside it
  std::map<server::CallId, std::string> streams_;  // of calls, by name
  std::map<std::string, uint64_t> ever_stored_;    // the first term of calls' streams, by name
  std::set<std::string> events_;
  LaterFetches fetches_;
};

}  // namespace callboard::sim
