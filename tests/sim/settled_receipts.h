// Between control plane and agents: nothing may be settled that is not in the store.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "callboard/v1/store.pb.h"
#include "server/flows/control_plane.h"
#include "tests/sim/sim_store.h"
#include "tests/sim/trace.h"

namespace callboard::sim {

// What the disk has ever held of receipts, and what agents were told to forget. Outlives links and
// processes. Loop thread only.
class SettledReceipts {
 public:
  SettledReceipts(Trace& trace, SimDisk& disk) : trace_(trace) {
    disk.on_durable = [this](const server::StoreRecord& record) {
      v1::ReceiptBlock block;
      if (!record.key.starts_with("receipts/") || !block.ParseFromString(record.value)) return;
      for (const v1::Receipt& receipt : block.receipts()) kept_.insert(receipt.call().call_id());
    };
  }

  std::unique_ptr<server::AgentLink> Watch(std::unique_ptr<server::AgentLink> link) {
    return std::make_unique<Watched>(*this, std::move(link));
  }

 private:
  class Watched final : public server::AgentLink {
   public:
    Watched(SettledReceipts& owner, std::unique_ptr<server::AgentLink> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    void Open(Handler* handler) override { inner_->Open(handler); }
    void Write(v1::ServerFrame message) override {
      for (const v1::ServerItem& item : message.items()) owner_.Look(item);
      inner_->Write(std::move(message));
    }
    bool TakeWritten() override { return inner_->TakeWritten(); }
    void Close(absl::Status status) override { inner_->Close(std::move(status)); }

   private:
    SettledReceipts& owner_;
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
    if (!requests_.contains(call) || kept_.contains(call)) return;
    trace_.Violate("nothing is settled that is not in the store", absl::BytesToHexString(call));
  }

  Trace& trace_;
  std::set<std::string> requests_;
  std::set<std::string> kept_;
};

}  // namespace callboard::sim
