// Implementation of ToolSelections.
#include "server/flows/tool_selections.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"
#include "server/flows/tool_search.h"

namespace callboard::server {
namespace {

constexpr size_t kShownBytesMax = 128;
constexpr size_t kGoneMax = 1'000;  // names of one selection that are remembered
constexpr char kListChanged[] = "notifications/tools/list_changed";

}  // namespace

ToolSelections::~ToolSelections() {
  for (const auto& [text, selection] : selections_) {
    for (NoticeWatch* watch : selection.watches) watch->PlaneGone();
  }
}

absl::StatusOr<std::string> ToolSelections::Admit(const std::string& tools) {
  CALLBOARD_ASSIGN_OR_RETURN(const core::ToolSelection wanted, core::ToolSelection::Parse(tools));
  if (wanted.pinned() && plane_.config.pinned_tools.empty()) {
    return core::MakeError(absl::StatusCode::kInvalidArgument,
                           "selector 'pinned' stands for nothing here: no tools are configured as "
                           "tools.pinned");
  }
  const Limits& limits = plane_.config.limits;
  if (selections_.contains(wanted.text())) return wanted.text();
  if (selections_.size() >= limits.selections_max) {
    auto oldest = selections_.end();
    for (auto it = selections_.begin(); it != selections_.end(); ++it) {
      if (!it->second.sessions.empty() || !it->second.watches.empty()) continue;
      if (oldest == selections_.end() || it->second.held_until < oldest->second.held_until) {
        oldest = it;
      }
    }
    if (oldest != selections_.end()) selections_.erase(oldest);
  }
  if (selections_.size() >= limits.selections_max) {
    return core::MakeError(absl::StatusCode::kResourceExhausted,
                           fmt::format("sessions show {} different selections of tools, which is "
                                       "the limit (selections_max)",
                                       selections_.size()));
  }
  return wanted.text();
}

void ToolSelections::Add(const Session& session) {
  if (session.opened.tools().empty()) return;
  Enter(session.opened.tools()).sessions.insert(session.id);
}

ToolSelections::Selection& ToolSelections::Enter(const std::string& text) {
  auto [entry, added] = selections_.try_emplace(text);
  Selection& selection = entry->second;
  if (!added) return selection;
  auto wanted = core::ToolSelection::Parse(text);
  if (wanted.ok()) {
    selection.wanted = *std::move(wanted);
  } else {
    // Stored by another build: it shows nothing.
    core::LogWarn("selection_not_read",
                  {{"tools", text}, {"reason", core::Message(wanted.status())}});
  }
  Refresh(selection);
  selection.told_digest = selection.choice.digest;
  return selection;
}

bool ToolSelections::InUse(const Selection& selection) const {
  return !selection.sessions.empty() || !selection.watches.empty() ||
         plane_.loop.Now() < selection.held_until;
}

void ToolSelections::Remove(const Session& session) {
  auto found = selections_.find(session.opened.tools());
  if (found == selections_.end()) return;
  found->second.sessions.erase(session.id);
  if (!InUse(found->second)) selections_.erase(found);
}

ToolSelections::Selection* ToolSelections::Of(const Session& session) {
  auto found = selections_.find(session.opened.tools());
  if (found == selections_.end()) return nullptr;
  if (found->second.stale) Refresh(found->second);
  return &found->second;
}

absl::StatusOr<v1::GetListResponse> ToolSelections::List(const Session& session,
                                                         std::string_view known_digest) {
  const Selection* selection = Of(session);
  if (selection == nullptr) {
    return absl::InvalidArgumentError("the session shows no selected tools: it was opened without");
  }
  return ListOf(*selection, known_digest);
}

v1::GetListResponse ToolSelections::ListOf(const Selection& selection,
                                           std::string_view known_digest) {
  v1::GetListResponse response;
  response.set_digest(selection.choice.digest);
  response.set_left_out(static_cast<uint32_t>(selection.choice.left_out));
  if (known_digest != selection.choice.digest) response.set_list(selection.choice.array);
  return response;
}

// ---- without a session --------------------------------------------------------------------------

absl::StatusOr<ToolSelections::Selection*> ToolSelections::Hold(const std::string& tools) {
  CALLBOARD_ASSIGN_OR_RETURN(const std::string text, Admit(tools));
  Selection& selection = Enter(text);
  selection.held_until = plane_.loop.Now() + kHeld;
  if (selection.stale) Refresh(selection);
  return &selection;
}

absl::StatusOr<v1::GetListResponse> ToolSelections::List(const std::string& tools,
                                                         std::string_view known_digest) {
  CALLBOARD_ASSIGN_OR_RETURN(const Selection* selection, Hold(tools));
  return ListOf(*selection, known_digest);
}

absl::StatusOr<ToolOrigin> ToolSelections::Find(const std::string& tools, const std::string& name) {
  CALLBOARD_ASSIGN_OR_RETURN(const Selection* selection, Hold(tools));
  return FindIn(*selection, name);
}

std::unique_ptr<core::EventSource<v1::ListenEvent>> ToolSelections::Watch(
    v1::ListenRequest request) {
  using Ended = EndedSource<v1::ListenEvent>;
  const auto selection = Hold(request.tools());
  if (!selection.ok()) return std::make_unique<Ended>(selection.status());
  if (watches_ >= kWatchesMax) {
    return std::make_unique<Ended>(core::MakeError(absl::StatusCode::kResourceExhausted,
                                                   fmt::format("{} listen already", watches_)));
  }
  auto watch =
      std::make_unique<NoticeWatch>(plane_.ready, static_cast<NoticeWatchOwner&>(*this),
                                    (*selection)->wanted.text(), std::move(*request.mutable_wish()),
                                    /*again=*/request.has_after());
  (*selection)->watches.insert(watch.get());
  ++watches_;
  return watch;
}

void ToolSelections::OnWatchGone(NoticeWatch& watch) {
  auto found = selections_.find(watch.subject());
  if (found == selections_.end() || found->second.watches.erase(&watch) == 0) return;
  --watches_;
  if (!InUse(found->second)) selections_.erase(found);
}

void ToolSelections::DrainWatches() {
  for (const auto& [text, selection] : selections_) {
    for (NoticeWatch* watch : selection.watches) watch->Drain();
  }
}

void ToolSelections::Sweep() {
  std::erase_if(selections_, [this](const auto& entry) { return !InUse(entry.second); });
}

absl::StatusOr<ToolOrigin> ToolSelections::Find(const Session& session, const std::string& name) {
  const Selection* selection = Of(session);
  if (selection == nullptr) return absl::InternalError("no selection of that session");
  return FindIn(*selection, name);
}

absl::StatusOr<ToolOrigin> ToolSelections::FindIn(const Selection& selection,
                                                  const std::string& name) const {
  const ToolChoice& choice = selection.choice;
  if (auto found = choice.by_name.find(name); found != choice.by_name.end()) return found->second;
  if (const auto slug = ParseSlug(name); slug.ok()) {
    auto tool = FindTool(name, plane_.seats, plane_.catalog);
    if (tool.ok()) {
      for (const auto& [shown, origin] : choice.by_name) {
        if (origin.seat_id == tool->seat_id() && origin.tool == tool->tool()) return origin;
      }
    }
  }
  const std::string_view shown = std::string_view(name).substr(0, kShownBytesMax);
  if (auto found = selection.gone.find(name); found != selection.gone.end()) {
    const ToolOrigin& origin = found->second;
    const auto seat = seats_.find(origin.seat_id);
    if (seat == seats_.end()) {
      return core::MakeError(
          absl::StatusCode::kUnavailable,
          fmt::format("tool '{}' is '{}' of '{}', which has gone; the name is good again when it "
                      "is back, tools/list has what there is now",
                      shown, origin.tool, origin.seat_name));
    }
    if (!seat->second.offers) return origin;
    return core::MakeError(
        absl::StatusCode::kNotFound,
        fmt::format("tool '{}' has gone: '{}' is no longer offered by '{}', or no longer selected; "
                    "tools/list has what there is",
                    shown, origin.tool, origin.seat_name));
  }
  return core::MakeError(
      absl::StatusCode::kNotFound,
      fmt::format("no tool '{}': of the tools that are selected here ({}) {} are there; tools/list "
                  "names them",
                  shown, std::string_view(selection.wanted.text()).substr(0, kShownBytesMax),
                  choice.by_name.size()));
}

std::vector<core::ToolSelector> ToolSelections::SelectorsOf(const Selection& selection) const {
  std::vector<core::ToolSelector> selectors = selection.wanted.selectors();
  if (selection.wanted.pinned()) {
    const auto& pinned = plane_.config.pinned_tools.selectors();
    selectors.insert(selectors.end(), pinned.begin(), pinned.end());
  }
  return selectors;
}

OfferingSeat ToolSelections::Look(const std::string& seat_id) const {
  const SeatRecord& seat = *plane_.seats.Find(seat_id);
  const std::string prefix = plane_.seats.SlugPrefix(seat);
  OfferingSeat look;
  look.app = absl::AsciiStrToLower(core::ToAbsl(prefix.substr(0, prefix.find('.'))));
  look.name = plane_.seats.DisplayName(seat);
  look.offers = seat.presence == Presence::kLinked || seat.presence == Presence::kDetached;
  look.list = plane_.catalog.Of(seat_id);
  if (auto former = seats_.find(seat_id); look.list == nullptr && former != seats_.end()) {
    look.list = former->second.list;
  }
  return look;
}

void ToolSelections::OnSeatChanged(const std::string& seat_id) {
  const bool known = plane_.seats.Find(seat_id) != nullptr;
  OfferingSeat now = known ? Look(seat_id) : OfferingSeat();
  OfferingSeat& entry = seats_[seat_id];
  const OfferingSeat former = std::exchange(entry, now);
  if (!known) seats_.erase(seat_id);
  if (former == now) return;
  for (auto& [text, selection] : selections_) {
    const auto fits = [&](const core::ToolSelector& selector) {
      return SelectsSeat(selector, seat_id, former) || SelectsSeat(selector, seat_id, now);
    };
    const auto any = [&fits](const core::ToolSelection& tools) {
      return std::any_of(tools.selectors().begin(), tools.selectors().end(), fits);
    };
    if (any(selection.wanted) || (selection.wanted.pinned() && any(plane_.config.pinned_tools))) {
      MarkStale(text, selection);
    }
  }
}

void ToolSelections::OnPinnedChanged() {
  for (auto& [text, selection] : selections_) {
    if (selection.wanted.pinned()) MarkStale(text, selection);
  }
}

void ToolSelections::MarkStale(const std::string& text, Selection& selection) {
  selection.stale = true;
  due_.insert(text);
  if (!timer_.pending()) timer_ = plane_.loop.After(kCoalesce, [this] { TellDue(); });
}

void ToolSelections::Refresh(Selection& selection) {
  selection.stale = false;
  const Limits& limits = plane_.config.limits;
  ToolChoice choice = ChooseTools(SelectorsOf(selection), seats_,
                                  {limits.selected_tools_max, limits.tool_name_characters_max});
  if (choice.left_out > 0 && selection.choice.left_out == 0) {
    core::LogWarn("selection_too_large",
                  {{"tools", selection.wanted.text()}, {"left_out", choice.left_out}});
  }
  const ToolChoice former = std::exchange(selection.choice, std::move(choice));
  RememberGone(selection, former);
}

void ToolSelections::RememberGone(Selection& selection, const ToolChoice& former) {
  const auto& now = selection.choice.by_name;
  // In an order that is the same in every run.
  std::vector<std::string> gone;
  for (const auto& [name, origin] : former.by_name) {
    if (!now.contains(name)) gone.push_back(name);
  }
  std::sort(gone.begin(), gone.end());
  for (std::string& name : gone) {
    selection.gone[name] = former.by_name.find(name)->second;
    selection.gone_order.push_back(std::move(name));
  }
  for (const auto& [name, origin] : now) selection.gone.erase(name);
  while (selection.gone_order.size() > kGoneMax) {
    selection.gone.erase(selection.gone_order.front());
    selection.gone_order.pop_front();
  }
}

void ToolSelections::TellDue() {
  // What has to wait for a turn of its own must not make the next change's wait shorter.
  telling_.merge(due_);
  due_.clear();
  TellNext();
}

void ToolSelections::TellNext() {
  while (!telling_.empty()) {
    auto found = selections_.find(telling_.extract(telling_.begin()).value());
    if (found == selections_.end()) continue;
    Selection& selection = found->second;
    if (selection.stale) Refresh(selection);
    if (selection.choice.digest == selection.told_digest) continue;
    selection.told_digest = selection.choice.digest;
    Tell(selection);
    break;
  }
  if (!telling_.empty()) {
    turn_ = plane_.loop.After(absl::ZeroDuration(), [this] { TellNext(); });
  }
}

void ToolSelections::Tell(const Selection& selection) {
  for (NoticeWatch* watch : selection.watches) watch->Tell(kListChanged, "");
  for (const std::string& id : selection.sessions) {
    Session* session = plane_.sessions.Find(id);
    if (session == nullptr) continue;
    // Of a former control plane: its client is told even if it listens only after this.
    const bool restored = std::exchange(session->owed_look_again, false);
    if (!restored && !session->streams.contains(0)) continue;
    v1::StreamEvent event;
    event.set_method(kListChanged);
    durable_.Append(*plane_.sessions.OwnStream(*session), {std::move(event), 0, 0},
                    DurableLog::Wait::kNo);
  }
}

}  // namespace callboard::server
