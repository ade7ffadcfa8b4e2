// Checks that the layered budgets keep their order.
#include "server/domain/limits.h"

#include <string_view>
#include <vector>

#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::server {
namespace {

absl::Status Below(std::string_view inner_name, absl::Duration inner, std::string_view outer_name,
                   absl::Duration outer, bool equal_allowed = false) {
  if (inner < outer || (equal_allowed && inner == outer)) return absl::OkStatus();
  return core::MakeError(
      absl::StatusCode::kInvalidArgument,
      fmt::format("{} ({}) must be {} {} ({}): every outer budget exceeds the inner one",
                  inner_name, absl::FormatDuration(inner), equal_allowed ? "at most" : "less than",
                  outer_name, absl::FormatDuration(outer)));
}

}  // namespace

absl::Status CheckOrder(const Budgets& budgets) {
  const absl::Status checks[] = {
      Below("0", absl::ZeroDuration(), "connect", budgets.connect),
      Below("connect", budgets.connect, "link_read_idle", budgets.link_read_idle),
      Below("twice heartbeat", 2 * budgets.heartbeat, "link_read_idle", budgets.link_read_idle),
      Below("link_read_idle", budgets.link_read_idle, "quick_call", budgets.quick_call),
      Below("quick_call", budgets.quick_call, "heavy_call", budgets.heavy_call, true),
      Below("heavy_call", budgets.heavy_call, "call_max", budgets.call_max, true),
      Below("0", absl::ZeroDuration(), "queue", budgets.queue),
      Below("0", absl::ZeroDuration(), "upper_wait_margin", budgets.upper_wait_margin),
      Below("fence_ping", budgets.fence_ping, "welcome", budgets.welcome),
      Below("session_grace", budgets.session_grace, "session_idle", budgets.session_idle),
  };
  std::vector<std::string_view> violations;
  for (const absl::Status& status : checks) {
    if (!status.ok()) violations.push_back(core::Message(status));
  }
  if (violations.empty()) return absl::OkStatus();
  return core::MakeError(absl::StatusCode::kInvalidArgument,
                         fmt::format("{}", fmt::join(violations, "\n")));
}

}  // namespace callboard::server
