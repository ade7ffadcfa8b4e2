// SimClient: batches of the 2025-03-26 revision: one answer per request, whatever becomes of it.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/mcp/json.h"
#include "tests/sim/client_request.h"
#include "tests/sim/sim_client.h"

namespace callboard::sim {

void SimClient::MakeBatch() {
  std::string text = R"([{"jsonrpc":"2.0","method":"notifications/roots/list_changed"})";
  std::vector<uint64_t> keys;
  const uint64_t count = 1 + world_.random.Below(4);
  for (uint64_t i = 0; i < count; ++i) {
    const SeatName& seat = PickSeat();
    const uint64_t key = OpenCall(PickTool(), seat, true);
    // One answer for all has no room for progress.
    calls_[key].wants_progress = false;
    calls_[key].in_batch = true;
    text.append(",").append(ComposeCall(calls_[key], seat));
    keys.push_back(key);
  }
  world_.trace.Total("batches");
  const uint64_t request = Send(Kind::kBatch, 0, "POST", text + "]");
  for (const uint64_t key : keys) {
    calls_[key].request = request;
    MaybeCancel(key);
  }
}

void SimClient::OnBatchEnd(Request& request, const absl::Status& status) {
  std::vector<uint64_t> keys;
  for (const auto& [key, call] : calls_) {
    if (call.open && call.request == request.key) keys.push_back(key);
  }
  const bool whole = status.ok() && request.status == 200;
  if (whole) {
    const absl::Status read = core::ForEachElement(request.body, [&](std::string_view element) {
      const std::string id(core::FindMember(element, "id").value_or(""));
      TakeMessage(element, Kind::kBatch,
                  static_cast<uint64_t>(std::strtoull(id.c_str(), nullptr, 10)));
      return !world_.trace.violated();
    });
    if (!read.ok()) {
      world_.trace.Violate("a batch is answered by one array", request.body.substr(0, 200));
    }
  } else if (status.ok() && request.status != 503 && request.status != 404 && !habits_.rude) {
    world_.trace.Violate(
        "a polite request is not refused",
        fmt::format("{}: HTTP {} {}", name(), request.status, request.body.substr(0, 200)));
  }
  for (const uint64_t key : keys) {
    Call& call = calls_.at(key);
    if (whole && !call.answered) {
      world_.trace.Violate("each request of a batch has its answer", call.tag);
    }
    EndCall(call, whole ? "answered" : "broken connection");
  }
}

}  // namespace callboard::sim
