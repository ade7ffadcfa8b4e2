// Selected tools of many seats, as sessions and clients without one show them: what each selection
// shows now, and where its names lead.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/mcp/tool_selection.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/event_source.h"
#include "server/domain/tool_choice.h"
#include "server/flows/durable_log.h"
#include "server/flows/notice_watch.h"
#include "server/flows/plane.h"

namespace callboard::server {

// Loop thread, owned by ControlPlane::Impl. Sessions with the same selectors share one selection,
// which exists as long as any of them, as long as somebody listens to it, or for kHeld after a
// client without a session has asked for it. It is made anew when it is asked for after a change of
// a seat that it fits; kCoalesce after the first such change its sessions are told list_changed if
// its text is another. A seat whose next list is on its way shows the former one.
//
// Bounds: selections_max selections (beyond: the one that is only held and was asked for longest
// ago goes, or the session is refused), watches_max listeners, selected_tools_max tools of each, as
// many names of tools that have gone, to say what became of them. One selection is made a turn of
// the loop.
class ToolSelections final : private NoticeWatchOwner {
 public:
  static constexpr absl::Duration kCoalesce = absl::Milliseconds(250);
  static constexpr absl::Duration kHeld = absl::Minutes(15);
  static constexpr size_t kWatchesMax = 20'000;

  ToolSelections(Plane& plane, DurableLog& durable) : plane_(plane), durable_(durable) {}
  ~ToolSelections() override;

  // The one spelling of the selectors a session is to be opened with. InvalidArgument: they are
  // wrong, or "pinned" and nothing is. ResourceExhausted: selections_max.
  absl::StatusOr<std::string> Admit(const std::string& tools);
  // A session has been opened or restored; one ends. Those of other surfaces are nothing here.
  void Add(const Session& session);
  void Remove(const Session& session);

  // What the session shows. InvalidArgument if it is of another surface.
  absl::StatusOr<v1::GetListResponse> List(const Session& session, std::string_view known_digest);
  // Where a call by that name (or by the tool's slug) goes. Unavailable: its seat has gone;
  // NotFound: it has gone, or never was. A seat that is only not there now is found: whoever calls
  // it learns why it cannot be.
  absl::StatusOr<ToolOrigin> Find(const Session& session, const std::string& name);

  // The same without a session, and Listen: that its list has changed, if that is wished. What
  // Admit says of the selectors comes first.
  absl::StatusOr<v1::GetListResponse> List(const std::string& tools, std::string_view known_digest);
  absl::StatusOr<ToolOrigin> Find(const std::string& tools, const std::string& name);
  std::unique_ptr<core::EventSource<v1::ListenEvent>> Watch(v1::ListenRequest request);
  // Ends them all with End{drain}.
  void DrainWatches();
  // Forgets what nobody has asked for in kHeld.
  void Sweep();

  void OnSeatChanged(const std::string& seat_id);
  // What "pinned" stands for has changed in the plane's configuration.
  void OnPinnedChanged();

  size_t size() const { return selections_.size(); }

 private:
  struct Selection {
    core::ToolSelection wanted;
    std::set<std::string> sessions;
    std::set<NoticeWatch*> watches;
    absl::Time held_until = absl::InfinitePast();
    ToolChoice choice;
    bool stale = true;  // seats have changed since choice was made
    std::string told_digest;
    core::StringMap<ToolOrigin> gone;    // names it has had
    std::deque<std::string> gone_order;  // the oldest first; may name some that have come back
  };
  using SelectionMap = std::map<std::string, Selection, std::less<>>;

  bool InUse(const Selection& selection) const;
  Selection& Enter(const std::string& text);
  Selection* Of(const Session& session);
  absl::StatusOr<Selection*> Hold(const std::string& tools);
  static v1::GetListResponse ListOf(const Selection& selection, std::string_view known_digest);
  absl::StatusOr<ToolOrigin> FindIn(const Selection& selection, const std::string& name) const;
  void OnWatchGone(NoticeWatch& watch) override;
  std::vector<core::ToolSelector> SelectorsOf(const Selection& selection) const;
  OfferingSeat Look(const std::string& seat_id) const;
  void Refresh(Selection& selection);
  void RememberGone(Selection& selection, const ToolChoice& former);
  void MarkStale(const std::string& text, Selection& selection);
  void TellDue();
  // Tells the sessions of one selection whose text has changed, then the others in turns of their
  // own.
  void TellNext();
  void Tell(const Selection& selection);

  Plane& plane_;
  DurableLog& durable_;
  OfferingSeats seats_;
  SelectionMap selections_;        // by their text
  std::set<std::string> due_;      // to be looked at when the timer fires
  std::set<std::string> telling_;  // it has fired; one a turn
  size_t watches_ = 0;
  core::Timer timer_;
  core::Timer turn_;
};

}  // namespace callboard::server
