// What every program of Callboard does the same way: state folder, signals, small files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/random.h"
#include "core/runtime/watchdog.h"

namespace callboard::apps {

// To be the first statement of every main(): Debian's Abseil aborts on a suspected lock-order
// cycle, and gRPC takes locks in both orders; a peer that hangs up must not end the process.
void PrepareProcess();

// As many open files as this user may have: each stream holds one, and the usual soft limit is
// 1024.
void RaiseFileLimit();

// Creates the folder (and its parents) with mode 0700 if it is not there.
absl::Status EnsureFolder(const std::string& path);

// Writes a small file so that a reader sees the old or the new content, never a part.
absl::Status WriteFileAtomically(const std::string& path, std::string_view content);
// Tells in `folder`/ports.json which ports were taken: {"http":9765,...}.
absl::Status WritePorts(const std::string& folder,
                        const std::vector<std::pair<std::string_view, uint16_t>>& ports);
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

// The identity (32 hex digits) kept in that file, made at the first call: for as long as the state
// folder lives.
absl::StatusOr<std::string> StableId(const std::string& path, core::Random& random);

// "HOST:PORT,HOST:PORT..." as a list; `option` is named in the error. Not one is an error too.
absl::StatusOr<std::vector<std::string>> ParseAddresses(std::string_view option,
                                                        const std::string& text);

// $XDG_STATE_HOME/callboard/<program>, or ~/.local/state/callboard/<program>.
std::string DefaultStateFolder(std::string_view program);

// Calls `on_signal` on the loop at each SIGHUP. Keep the returned object as long as it matters.
std::shared_ptr<void> OnHangup(core::AsioEventLoop& loop, std::function<void()> on_signal);

// Calls `on_signal` on the loop at the first SIGINT or SIGTERM; the second ends the process at
// once with status 130. Keep the returned object as long as signals matter.
std::shared_ptr<void> OnTermination(core::AsioEventLoop& loop, std::function<void()> on_signal);

// Ends the process (SIGABRT, for a supervisor to start it anew) when the loop hangs for `limit`; 0:
// never. To be made just before loop.Run().
std::unique_ptr<core::Watchdog> WatchLoop(core::EventLoop& loop, absl::Duration limit);

}  // namespace callboard::apps
