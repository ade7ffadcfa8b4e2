// Implementation of SessionCheck.
#include "backend_agent/backends/session_check.h"

#include <utility>

#include "core/mcp/jsonrpc.h"

namespace callboard::agent {
namespace {

// Who refuses a session does it in a sentence.
constexpr size_t kTextMax = 512;

}  // namespace

bool SessionCheck::MaySaySo(int status, std::string_view text) {
  return status == 400 && text.size() <= kTextMax &&
         (text.find("session") != std::string_view::npos ||
          text.find("Session") != std::string_view::npos);
}

SessionCheck::SessionCheck(core::EventLoop& loop, net::HttpClient& client, std::string target,
                           net::HeaderList headers, absl::Duration timeout,
                           absl::AnyInvocable<void(bool forgotten)> on_end)
    : loop_(loop), on_end_(std::move(on_end)) {
  headers.emplace_back("Content-Type", "application/json");
  headers.emplace_back("Accept", "application/json, text/event-stream");
  http_ = client.Send("POST", std::move(target), std::move(headers),
                      core::MakeRequest(R"("session-check")", "ping", ""), this);
  timer_ = loop_.After(timeout, [this] { Report(false); });
}

void SessionCheck::OnHead(net::HttpResponseHead head) {
  status_ = head.status;
  if (status_ == 404) return Report(true);
  if (status_ != 400) Report(false);
}

void SessionCheck::OnBody(std::string_view piece) {
  text_.append(piece.substr(0, kTextMax + 1 - text_.size()));
}

void SessionCheck::OnEnd(absl::Status status, bool) {
  Report(status.ok() && MaySaySo(status_, text_));
}

void SessionCheck::Report(bool forgotten) {
  if (std::exchange(reported_, true)) return;
  // Later: the listener may destroy this.
  loop_.Post(lifetime_.Wrap([this, forgotten] {
    auto on_end = std::move(on_end_);
    on_end(forgotten);
  }));
}

}  // namespace callboard::agent
