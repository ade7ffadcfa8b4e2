// Implementation of NoticeWatch.
#include "server/flows/notice_watch.h"

#include <algorithm>

#include "core/mcp/envelope.h"
#include "core/mcp/json.h"

namespace callboard::server {
namespace {

constexpr const char* kTools = "notifications/tools/list_changed";
constexpr const char* kPrompts = "notifications/prompts/list_changed";
constexpr const char* kResources = "notifications/resources/list_changed";
constexpr const char* kUpdated = "notifications/resources/updated";

}  // namespace

NoticeWatch::NoticeWatch(std::shared_ptr<ReadyQueue> ready, NoticeWatchOwner& owner,
                         std::string subject, v1::NoticeWish wish, bool again)
    : PulledSource(std::move(ready)),
      owner_(&owner),
      subject_(std::move(subject)),
      wish_(std::move(wish)) {
  if (!again) return;
  for (const char* method : {kTools, kPrompts, kResources}) Tell(method, "");
  for (const std::string& uri : wish_.resource_uris()) {
    Tell(kUpdated, core::JsonObject().String("uri", uri).Take());
  }
}

NoticeWatch::~NoticeWatch() {
  if (owner_ != nullptr) owner_->OnWatchGone(*this);
}

bool NoticeWatch::Wishes(const std::string& method, const std::string& of) const {
  if (method == kTools) return wish_.tools_list_changed();
  if (method == kPrompts) return wish_.prompts_list_changed();
  if (method == kResources) return wish_.resources_list_changed();
  const auto lists = [&of](const auto& wished) {
    return std::find(wished.begin(), wished.end(), of) != wished.end();
  };
  if (method == core::kTaskNotice) return lists(wish_.task_ids());
  return method == kUpdated && lists(wish_.resource_uris());
}

void NoticeWatch::Tell(const std::string& method, const std::string& params) {
  std::string of;
  if (method == kUpdated) of = core::FindString(params, "uri").value_or("");
  if (method == core::kTaskNotice) of = core::FindString(params, "taskId").value_or("");
  if (!Wishes(method, of)) return;
  waiting_[{method, std::move(of)}] = params;
  if (wanted()) MarkReady();
}

void NoticeWatch::Drain() {
  draining_ = true;
  MarkReady();
}

void NoticeWatch::PlaneGone() {
  owner_ = nullptr;
  MarkReady();
}

std::optional<absl::StatusOr<v1::ListenEvent>> NoticeWatch::Take() {
  if (ended_) return absl::OutOfRangeError("the stream has ended");
  if (owner_ == nullptr) return absl::UnavailableError("the control plane has ended");
  v1::ListenEvent event;
  if (draining_) {
    ended_ = true;
    event.mutable_end()->set_reason("drain");
    return event;
  }
  if (told_ < 2) {
    // Whoever names what Replaying says has been here before.
    if (told_++ == 0) {
      event.mutable_replaying()->mutable_from();
    } else {
      event.mutable_live();
    }
    return event;
  }
  if (waiting_.empty()) return std::nullopt;
  auto next = waiting_.extract(waiting_.begin());
  event.mutable_stream_event()->set_method(next.key().first);
  event.mutable_stream_event()->set_params(std::move(next.mapped()));
  return event;
}

}  // namespace callboard::server
