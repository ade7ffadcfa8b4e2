// Watches processes by pidfd, and by /proc where the kernel has none.
#pragma once

#include <memory>

#include "backend_agent/process_watch.h"
#include "core/runtime/asio_event_loop.h"

namespace callboard::agent {

// The exit status is told if the kernel still has it when the end is noticed.
class LinuxProcessWatcher final : public ProcessWatcher {
 public:
  explicit LinuxProcessWatcher(core::AsioEventLoop& loop) : loop_(loop) {}

  std::unique_ptr<ProcessWatch> Watch(int64_t pid,
                                      absl::AnyInvocable<void(ProcessEnd)> on_end) override;

 private:
  core::AsioEventLoop& loop_;
};

}  // namespace callboard::agent
