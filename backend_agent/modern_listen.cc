// Implementation of ModernListen.
#include "backend_agent/modern_listen.h"

#include <utility>

#include "core/mcp/envelope.h"
#include "core/mcp/json.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

std::string ArrayOf(const std::set<std::string>& texts) {
  std::string listed;
  for (const std::string& text : texts) {
    listed.append(listed.empty() ? "" : ",").append(core::QuoteJson(text));
  }
  return fmt::format("[{}]", listed);
}

}  // namespace

void ModernListen::Listen(McpSession& session, Wish wish) {
  if (session_ == &session && wish == wish_) return;
  Stop();
  session_ = &session;
  wish_ = std::move(wish);
  Ask();
}

void ModernListen::Stop() {
  again_.Cancel();
  if (session_ != nullptr && request_ != 0) {
    // Over a pipe it stays open until the backend is told; else hanging up tells.
    session_->CancelRequest(request_, "no longer listened to");
    session_->Forget(request_);
  }
  request_ = 0;
  session_ = nullptr;
  wish_ = {};
}

bool ModernListen::Hears(uint64_t request, std::string_view params) {
  if (request_ == 0) return false;
  const bool named = request == 0 && core::FindPath(params, {"_meta", core::kMetaSubscriptionId}) ==
                                         fmt::format("{}", request_);
  if (request != request_ && !named) return false;
  backoff_.Reset();
  return true;
}

bool ModernListen::EndedBy(std::string_view raw_id) {
  if (request_ == 0 || raw_id != fmt::format("{}", request_)) return false;
  session_->Forget(request_);
  request_ = 0;
  OnEnd();
  return true;
}

void ModernListen::Ask() {
  core::JsonObject wish;
  wish.Bool("toolsListChanged", true)
      .Bool("promptsListChanged", true)
      .Bool("resourcesListChanged", true);
  if (!wish_.uris.empty()) wish.Raw("resourceSubscriptions", ArrayOf(wish_.uris));
  ModernContext context;
  if (!wish_.task_ids.empty()) {
    wish.Raw("taskIds", ArrayOf(wish_.task_ids));
    context.client.capabilities = fmt::format(R"({{"extensions":{{"{}":{{}}}}}})", core::kTasks);
  }
  request_ = session_->Request(
      "subscriptions/listen", Payload(core::JsonObject().Raw("notifications", wish.Take()).Take()),
      false,
      [this](const McpReply& reply) {
        request_ = 0;
        // An error says that there is nothing to listen to.
        if (reply.kind != McpReply::Kind::kError) OnEnd();
      },
      {}, std::move(context));
}

void ModernListen::OnEnd() {
  again_ = loop_.After(backoff_.Next(), [this] {
    Ask();
    on_again_();
  });
}

}  // namespace callboard::agent
