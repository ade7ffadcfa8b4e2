// What waits to be written to one agent, and in which order it leaves.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "callboard/v1/agent.pb.h"
#include "server/domain/ids.h"
#include "server/domain/limits.h"

namespace callboard::server {

// Pure, loop thread. Items without credit (control) go first, then dispatches in order, then bodies
// round robin over calls, 64 KiB a turn, each within its call's window. Dispatches and acks are
// made when they are written, so that what changed meanwhile never leaves. Bounds: one dispatch and
// one ack per open call; control items are few per call; bodies are held by reference.
class AgentOutbox {
 public:
  // What a dispatch or an ack says at the moment of writing. False: nothing any more.
  class Source {
   public:
    virtual ~Source() = default;
    // `body` is set when the parameters do not fit inline.
    virtual bool FillDispatch(const CallId& call, v1::Dispatch& dispatch,
                              std::shared_ptr<const std::string>& body) = 0;
    virtual bool FillAck(const CallId& call, v1::AckEntry& entry) = 0;
  };

  AgentOutbox(const Limits& limits, uint64_t term, Source& source)
      : limits_(limits), term_(term), source_(source) {}

  // The agent's limits from its Hello.
  void SetWindow(uint32_t window) { window_ = window; }

  v1::ServerItem& Control() { return control_.emplace_back(); }
  void Dispatch(const CallId& call) { dispatches_.push_back(call); }
  // Takes a dispatch back. False: it has been written already.
  bool Withdraw(const CallId& call);
  // A body whose announcement is an item of its own.
  void AddBody(const CallId& call, uint32_t attempt, uint64_t n,
               std::shared_ptr<const std::string> bytes);
  void DropBodies(const CallId& call);
  void OnAck(const v1::AckEntry& entry);

  // One entry per call waits; the caller sees to that.
  void AckCall(const CallId& call) { acks_.push_back(call); }
  // For what no open call stands behind.
  void AckRaw(v1::AckEntry entry) { raw_acks_.push_back(std::move(entry)); }
  // Goes with the next frame, or when SettlesDue() is called.
  void Settle(const CallId& call) { settles_.push_back(call.str()); }
  void SettlesDue() { settles_due_ = true; }
  size_t settles() const { return settles_.size(); }

  // Whether there is something to write now, with `credit` bytes for what needs credit.
  bool HasWork(size_t credit) const;
  // Fills a frame up to frame_bytes_max, with at most `share` bytes of what needs credit.
  void Fill(v1::ServerFrame& frame, size_t credit, size_t share);

 private:
  struct OutBody {
    CallId call;
    uint32_t attempt;
    uint64_t n;
    std::shared_ptr<const std::string> bytes;
    uint64_t sent = 0;
    uint64_t acked = 0;
    uint64_t window;

    bool Sendable() const { return sent < bytes->size() && sent < acked + window; }
  };

  size_t FillControl(v1::ServerFrame& frame);
  size_t FillDispatches(v1::ServerFrame& frame, size_t room, size_t used);
  void FillBodies(v1::ServerFrame& frame, size_t room, size_t used);

  const Limits& limits_;
  const uint64_t term_;
  Source& source_;
  uint32_t window_ = 64 << 10;
  std::deque<v1::ServerItem> control_;
  std::deque<CallId> dispatches_;
  std::deque<OutBody> bodies_;
  std::vector<CallId> acks_;
  std::vector<v1::AckEntry> raw_acks_;
  std::vector<std::string> settles_;
  bool settles_due_ = false;
};

}  // namespace callboard::server
