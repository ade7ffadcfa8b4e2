// An ordered message port between two processes: what a flow sees of a gRPC stream.
#pragma once

#include "absl/status/status.h"

namespace callboard::core {

// One end of a bidirectional stream of messages. In production a gRPC reactor that posts to the
// loop; in the simulation a queue of the virtual network. Loop thread only.
//
// Contract: at most one Write is in flight; OnWritten follows each, in order (see TakeWritten).
// OnClosed comes at most once and is the last event. After Close() no further event comes.
// Destroying a Link closes it. The handler must outlive the link or call Close() first. No event is
// delivered from inside Open, Write or Close.
template <class Out, class In>
class Link {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(In message) = 0;
    virtual void OnWritten() = 0;
    // The peer or the network ended the stream; `status` says why (OK: the peer's orderly end).
    virtual void OnClosed(absl::Status status) = 0;
  };

  virtual ~Link() = default;
  virtual void Open(Handler* handler) = 0;
  virtual void Write(Out message) = 0;
  // For an owner with more to write: true if the write in flight has been taken, so the next may
  // follow and no OnWritten comes for it; false: OnWritten will tell. An adapter may leave
  // OnWritten out for a write that nobody has asked about, because waking a sleeping loop costs
  // more than a small write.
  virtual bool TakeWritten() { return false; }
  virtual void Close(absl::Status status) = 0;
};

}  // namespace callboard::core
