// Port through which a request tells its client something: a stream of its own, or a shared one.
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "bridge/config.h"

namespace callboard::bridge {

// Whole JSON-RPC messages, one after another. Loop thread; data need not be one line.
class MessageStream {
 public:
  using Written = absl::AnyInvocable<void()>;
  // There is room for another event.
  using More = absl::AnyInvocable<void()>;

  virtual ~MessageStream() = default;

  virtual bool open() const = 0;
  // Whether the client has seen an id it can come back with.
  virtual bool resumable() const = 0;

  // `more` runs when the next may come, also inline.
  virtual void Event(std::string_view id, std::string_view data, More more) = 0;

  // One event whose data comes in pieces: Begin, any number of Piece, Finish.
  virtual void BeginEvent(std::string_view id, std::string_view data) = 0;
  virtual void Piece(std::string data, Written written) = 0;
  virtual void FinishEvent(std::string_view data) = 0;

  // All is told.
  virtual void End() = 0;
  // What was begun cannot be completed, and the reader must see that.
  virtual void Cut(StreamEnd why = StreamEnd::kBroken) = 0;
};

}  // namespace callboard::bridge
