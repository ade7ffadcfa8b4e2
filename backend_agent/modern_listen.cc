// Implementation of ModernListen.
#include "backend_agent/modern_listen.h"

#include <utility>

#include "core/mcp/json.h"
#include "fmt/format.h"

namespace callboard::agent {

void ModernListen::Listen(McpSession& session, std::set<std::string> uris) {
  if (session_ == &session && uris == uris_) return;
  Stop();
  session_ = &session;
  uris_ = std::move(uris);
  Ask();
}

void ModernListen::Stop() {
  again_.Cancel();
  if (session_ != nullptr && request_ != 0) session_->Forget(request_);
  request_ = 0;
  session_ = nullptr;
  uris_.clear();
}

void ModernListen::Ask() {
  std::string listed;
  for (const std::string& uri : uris_) {
    listed.append(listed.empty() ? "" : ",").append(core::QuoteJson(uri));
  }
  core::JsonObject wish;
  wish.Bool("toolsListChanged", true)
      .Bool("promptsListChanged", true)
      .Bool("resourcesListChanged", true);
  if (!listed.empty()) wish.Raw("resourceSubscriptions", fmt::format("[{}]", listed));
  request_ = session_->Request(
      "subscriptions/listen", Payload(core::JsonObject().Raw("notifications", wish.Take()).Take()),
      false,
      [this](const McpReply& reply) {
        request_ = 0;
        // An error says that there is nothing to listen to.
        if (reply.kind != McpReply::Kind::kError) OnEnd();
      },
      {}, ClientDescription());
}

void ModernListen::OnEnd() {
  again_ = loop_.After(backoff_.Next(), [this] {
    Ask();
    on_again_();
  });
}

}  // namespace callboard::agent
