// stdin and stdout of the process as lines, on the loop.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "apps/stdio/line_output.h"
#include "apps/stdio/line_splitter.h"
#include "core/runtime/asio_event_loop.h"

namespace callboard::apps {

// Owns duplicates of both descriptors; stdout itself becomes stderr, so that nothing else can get
// between the lines. Loop thread only. What is to be written waits in memory; while more than
// `unsent_bytes_max` does, nothing is read, so a client that does not read cannot make it grow.
class ProcessStreams final : public LineOutput {
 public:
  // Called from the loop, and may destroy the streams.
  struct Callbacks {
    absl::AnyInvocable<void(std::string line)> on_line;
    absl::AnyInvocable<void(LineSplitter::TooLong line)> on_too_long;
    absl::AnyInvocable<void()> on_end;          // of stdin
    absl::AnyInvocable<void()> on_output_gone;  // nobody reads stdout any more
    absl::AnyInvocable<void()> on_written;      // some of it was taken
  };

  // Internal: a descriptor is not open.
  static absl::StatusOr<std::unique_ptr<ProcessStreams>> Take(core::AsioEventLoop& loop,
                                                              size_t line_bytes_max,
                                                              size_t unsent_bytes_max);
  ~ProcessStreams() override;

  void Start(Callbacks callbacks);
  void Write(std::string line) override;
  size_t unsent_bytes() const override;

 private:
  struct State;
  explicit ProcessStreams(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace callboard::apps
