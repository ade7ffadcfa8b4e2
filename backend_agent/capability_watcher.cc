// Implementation of CapabilityWatcher.
#include "backend_agent/capability_watcher.h"

#include <algorithm>
#include <utility>

#include "core/mcp/json.h"
#include "core/mcp/mirrored_arguments.h"
#include "core/runtime/digest.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

constexpr size_t kFaultsToldMax = 1'000;

}  // namespace

CapabilityWatcher::CapabilityWatcher(core::EventLoop& loop, core::Random& random, Spool& spool,
                                     WatcherLimits limits, absl::AnyInvocable<void()> on_changed)
    : loop_(loop),
      random_(random),
      limits_(limits),
      on_changed_(std::move(on_changed)),
      builder_(spool, limits.catalogue_bytes_max) {}

void CapabilityWatcher::Attach(McpSession* session) {
  session_ = session;
  poll_ = limits_.first_poll;
  if (running_) {
    // Of a session that the backend has forgotten meanwhile.
    session_->Forget(request_);
    running_ = false;
    (void)builder_.Take();
  }
  Begin();
}

void CapabilityWatcher::Detach() {
  session_ = nullptr;
  running_ = false;
  again_ = false;
  page_timer_.Cancel();
  next_timer_.Cancel();
  next_due_ = absl::InfiniteFuture();
  (void)builder_.Take();
  Wake(UINT64_MAX);
}

void CapabilityWatcher::OnListChanged() {
  if (session_ == nullptr) return;
  // A notice during a listing may concern a page already read.
  if (running_) again_ = true;
  ScheduleNext(limits_.coalesce);
}

void CapabilityWatcher::ListNow(absl::Duration limit, absl::AnyInvocable<void()> done) {
  const uint64_t id = next_waiter_++;
  Waiter& waiter = waiters_[id];
  waiter.done = std::move(done);
  waiter.needs_run = run_ + 1;
  waiter.limit = loop_.After(session_ == nullptr ? absl::ZeroDuration() : limit, [this, id] {
    auto node = waiters_.extract(id);
    if (!node.empty()) node.mapped().done();
  });
  if (session_ == nullptr) return;
  if (running_) {
    again_ = true;
  } else {
    Begin();
  }
}

void CapabilityWatcher::ScheduleNext(absl::Duration delay) {
  const absl::Time when = loop_.Now() + delay;
  if (next_timer_.pending() && next_due_ <= when) return;
  next_due_ = when;
  next_timer_ = loop_.At(when, [this] {
    next_due_ = absl::InfiniteFuture();
    if (session_ == nullptr) return;
    if (running_) {
      again_ = true;
    } else {
      Begin();
    }
  });
}

void CapabilityWatcher::Begin() {
  next_timer_.Cancel();
  next_due_ = absl::InfiniteFuture();
  running_ = true;
  again_ = false;
  ++run_;
  pages_ = 0;
  tools_ = 0;
  mirrored_coming_.clear();
  mended_coming_.clear();
  (void)builder_.Take();
  (void)builder_.Append("{\"tools\":[");
  RequestPage("");
}

void CapabilityWatcher::RequestPage(const std::string& cursor) {
  cursor_ = cursor;
  ++pages_;
  Payload params;
  if (!cursor.empty()) params = Payload(core::JsonObject().Raw("cursor", cursor).Take());
  request_ = session_->Request("tools/list", std::move(params), false,
                               [this, weak = lifetime_.Watch(), run = run_](McpReply reply) {
                                 if (!weak.expired() && running_ && run == run_)
                                   OnPage(std::move(reply));
                               });
  page_timer_ = loop_.After(limits_.page_timeout, [this] {
    session_->Forget(request_);
    End(false, fmt::format("tools/list was not answered within {} s",
                           absl::ToInt64Seconds(limits_.page_timeout)));
  });
}

void CapabilityWatcher::OnPage(McpReply reply) {
  page_timer_.Cancel();
  if (reply.kind == McpReply::Kind::kError && pages_ == 1) {
    // No list at all (a sidecar that only takes calls): known to be empty.
    End(true);
    return;
  }
  if (reply.kind != McpReply::Kind::kResult) {
    // Without an answer the backend itself is in trouble, which is told as such.
    End(false, reply.kind == McpReply::Kind::kError ? "a page of tools/list is an error" : "");
    return;
  }
  const std::string_view page = reply.body.view();
  std::string_view tools;
  std::string next;
  absl::Status status = core::ForEachMember(page, [&](core::JsonMember member) {
    if (member.Is("tools")) {
      tools = member.value;
    } else if (member.Is("nextCursor") && core::IsString(member.value) && member.value != "\"\"") {
      next = std::string(member.value);
    }
    return true;
  });
  bool cut = false;
  if (status.ok() && core::IsArray(tools)) {
    absl::Status room;
    status = core::ForEachElement(tools, [&](std::string_view tool) {
      if (tools_ == limits_.tools_max) {
        cut = true;
        return false;
      }
      room = Take(tool);
      return room.ok();
    });
    if (!room.ok()) status = room;
  }
  if (!status.ok()) {
    End(false, fmt::format("its list of tools is not taken: {}", core::Message(status)));
    return;
  }
  // The same cursor again is a backend that would never end.
  const bool more =
      !next.empty() && next != cursor_ && pages_ < limits_.pages_max && tools_ < limits_.tools_max;
  if (more) {
    RequestPage(next);
  } else if (cut || !next.empty()) {
    End(true, fmt::format("of its list of tools only the first {} are taken{}", tools_,
                          !cut && next == cursor_ ? ": the next page is the one just read" : ""));
  } else {
    End(true);
  }
}

absl::Status CapabilityWatcher::Take(std::string_view tool) {
  std::optional<std::string> mended;
  if (core::MayMirror(tool)) {
    mended = Mend(tool);
    if (!mended) return absl::OkStatus();
    tool = *mended;
  }
  if (tools_++ > 0) (void)builder_.Append(",");
  return builder_.Append(tool);
}

std::optional<std::string> CapabilityWatcher::Mend(std::string_view tool) {
  const auto schema = core::FindMember(tool, "inputSchema");
  if (!schema) return std::string(tool);
  const std::string name = core::FindString(tool, "name").value_or("");
  const std::string fault = core::FindMirrorFault(*schema);
  if (fault.empty()) {
    mirrored_coming_[name] = std::string(*schema);
    return std::string(tool);
  }
  const bool left_out = session_->modern_only() && session_->backend().has_headers();
  std::string& told = faults_told_[name];
  if (std::exchange(told, fault) != fault) {
    core::LogWarn("tool_annotation_refused", {{"backend", session_->backend().description()},
                                              {"tool", name},
                                              {"fault", fault},
                                              {"left_out", left_out}});
  }
  if (faults_told_.size() > kFaultsToldMax) faults_told_.clear();
  if (left_out) return std::nullopt;
  std::string sound = core::RemoveMirrorFaults(*schema);
  std::string mended = core::SetMember(tool, "inputSchema", sound);
  mirrored_coming_[name] = std::move(sound);
  mended_coming_.insert(name);
  return mended;
}

std::string_view CapabilityWatcher::MirroredSchema(std::string_view tool) const {
  const auto found = mirrored_.find(tool);
  return found == mirrored_.end() ? std::string_view() : found->second;
}

void CapabilityWatcher::End(bool complete, std::string trouble) {
  running_ = false;
  page_timer_.Cancel();
  auto alive = lifetime_.Watch();
  const uint64_t finished = run_;
  bool changed = trouble_ != trouble;
  trouble_ = std::move(trouble);
  if (changed && !trouble_.empty() && session_ != nullptr) {
    core::LogWarn("tool_list_faulty",
                  {{"backend", session_->backend().description()}, {"reason", trouble_}});
  }
  if (complete && builder_.Append("]}").ok()) {
    mirrored_ = std::exchange(mirrored_coming_, {});
    mended_ = std::exchange(mended_coming_, {});
    Payload catalogue = builder_.Take();
    std::string digest = core::Sha256Hex(catalogue.view());
    if (digest != digest_) {
      poll_ = limits_.first_poll;
      catalogue_ = std::move(catalogue);
      digest_ = std::move(digest);
      changed = true;
    }
  } else {
    complete = false;
    (void)builder_.Take();
  }
  if (changed) {
    on_changed_();
    if (alive.expired()) return;
  }
  if (session_ != nullptr && !running_) {
    if (again_) {
      Begin();
    } else {
      ScheduleNext(complete ? poll_ * (0.9 + 0.2 * random_.Unit()) : limits_.retry);
      if (complete) poll_ = std::min(2 * poll_, limits_.poll);
    }
  }
  Wake(finished);
}

void CapabilityWatcher::Wake(uint64_t finished_run) {
  for (auto at = waiters_.begin(); at != waiters_.end();) {
    if (at->second.needs_run > finished_run) {
      ++at;
      continue;
    }
    // Later and in order, so that a waiter may do what it likes.
    at->second.limit = loop_.After(absl::ZeroDuration(), [this, id = at->first] {
      auto node = waiters_.extract(id);
      if (!node.empty()) node.mapped().done();
    });
    ++at;
  }
}

}  // namespace callboard::agent
