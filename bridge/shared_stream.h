// One event stream that many requests write to, message by message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "bridge/message_stream.h"
#include "bridge/sse_writer.h"

namespace callboard::bridge {

// The stream of HTTP+SSE (MCP 2024-11-05), which has no ids: what is written carries none. While
// one message comes in pieces all others wait, in the order they came. Loop thread; owned by
// whoever owns `writer`; branches may outlive it and then write to nobody. Bounds: a request waits
// with one message, or with the head, one piece and the tail of one; waiting_bytes() says how much
// all of that is.
class SharedStream : public std::enable_shared_from_this<SharedStream> {
 public:
  // `writer` is open and outlives this.
  explicit SharedStream(SseWriter& writer) : writer_(writer) {}

  // What one request writes to. Destroyed before End(), it takes back what still waits, and cuts
  // the stream in the middle of its message.
  std::unique_ptr<MessageStream> Branch();
  // A message of no request.
  void Event(std::string data, MessageStream::More more);

  size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  class BranchStream;
  struct Part {
    enum class Kind { kWhole, kBegin, kPiece, kFinish };
    uint64_t branch;
    Kind kind;
    std::string text;
    MessageStream::Written then;
  };

  void Put(Part part);
  bool MayGo(const Part& part) const { return holder_ == 0 || holder_ == part.branch; }
  void Write(Part part);
  void Leave(uint64_t branch);
  void GoOn();

  SseWriter& writer_;
  std::deque<Part> waiting_;
  size_t waiting_bytes_ = 0;
  uint64_t holder_ = 0;  // the branch that is in the middle of a message; 0: none
  uint64_t branches_ = 0;
};

}  // namespace callboard::bridge
