// Which sessions hear what a seat says by itself, and what its agent is asked to have said.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "callboard/v1/agent.pb.h"
#include "core/runtime/event_loop.h"
#include "server/flows/durable_log.h"
#include "server/flows/notice_watch.h"
#include "server/flows/plane.h"

namespace callboard::server {

// Whether the session has asked for log messages as severe as this one (MCP logging/setLevel; a
// session that has not asked gets all).
bool WantsLog(const Session& session, std::string_view raw_params);
// The same of one call, which hears of none unless it names a level.
bool WantsLog(std::string_view level, std::string_view raw_params);

// Loop thread, owned by ControlPlane::Impl. The wishes of all sessions about a seat (log level,
// subscribed resources) make one Interest: the most verbose level, each resource once. The agent
// renews it whenever its backend forgets. list_changed is told at most once in kCoalesce, with the
// last change in it. Bounds: sessions_max sessions, kSubscriptionsMax resources a session.
// Who listens without a session counts in the same way, for as long as the listening lasts.
class SeatAudience final : private NoticeWatchOwner {
 public:
  static constexpr absl::Duration kCoalesce = absl::Milliseconds(250);
  static constexpr size_t kSubscriptionsMax = 256;
  static constexpr size_t kWatchesMax = 20'000;

  using SendFn = absl::AnyInvocable<void(const std::string& seat_id, v1::Interest interest)>;

  SeatAudience(Plane& plane, DurableLog& durable, SendFn send)
      : plane_(plane), durable_(durable), send_(std::move(send)) {}
  ~SeatAudience() override;

  // Listen without a session. What Resolve says of a seat that is not there, InvalidArgument for
  // too many resources and ResourceExhausted end the source at once.
  std::unique_ptr<core::EventSource<v1::ListenEvent>> Watch(v1::ListenRequest request);
  // Ends them all with End{drain}.
  void DrainWatches();

  // A session about one seat has been opened or restored; one has ended.
  void Add(Session& session);
  void Remove(const std::string& session_id, const std::string& seat_id);

  // A request of the session has had a result: what it wishes from now on. True: that is new, and
  // to be durable before the client is told.
  bool OnResult(Session& session, std::string_view method, std::string_view raw_params);
  // True: the backend need not hear of this resources/unsubscribe, as others are subscribed.
  bool KeepsSubscription(Session& session, std::string_view raw_params);
  // The seat's agent is linked: it is told what is wished. Sessions of a former control plane are
  // told once that lists and resources may have changed: it may have lost such a notice.
  void OnSeatUp(const std::string& seat_id);
  void OnSeatChanged(const std::string& seat_id);

  // True: it has been put into a stream and is to be durable before it is shown.
  bool Tell(const std::string& seat_id, const std::string& method, const std::string& params);
  // The same, of what concerns one session: goes to its own stream, if it has ever listened to
  // that.
  bool TellSession(Session& session, std::string_view method, const std::string& params);
  // The same: so many messages of the seat could not be kept for them.
  bool TellLost(const std::string& seat_id, uint64_t count);
  // The backend says that its list has changed, though nothing of it has: for those only who listen
  // without a session, as they are told what the backend says.
  void TellWatches(const std::string& seat_id, const std::string& method);

 private:
  struct Audience {
    std::set<std::string> sessions;
    std::set<NoticeWatch*> watches;
    uint64_t version = 0;
    bool owes = false;  // some session is to be told that all may have changed
    std::map<std::string, core::Timer> waiting;  // list_changed by method
  };

  // NoticeWatchOwner
  void OnWatchGone(NoticeWatch& watch) override;

  // Tells the agent, or forgets the audience if nobody is left that ever had a wish.
  void OnLeft(const std::string& seat_id);
  void Send(const std::string& seat_id, Audience& audience);
  void TellChanges(const std::string& seat_id, Session& session);
  // True: it is to be durable.
  bool Append(Stream& own, const std::string& method, const std::string& params);
  bool Deliver(const std::string& seat_id, const std::string& method, const std::string& params);

  Plane& plane_;
  DurableLog& durable_;
  SendFn send_;
  std::map<std::string, Audience> seats_;
  size_t watches_ = 0;
};

}  // namespace callboard::server
