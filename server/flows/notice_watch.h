// Listen without a session: what one seat says by itself, or that selected tools have changed, for
// as long as somebody listens.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "callboard/v1/control.pb.h"
#include "server/flows/ready_queue.h"

namespace callboard::server {

class NoticeWatch;

// Whom a watch leaves when it is destroyed.
class NoticeWatchOwner {
 public:
  virtual ~NoticeWatchOwner() = default;
  virtual void OnWatchGone(NoticeWatch& watch) = 0;
};

// Owned by the listener. Replaying (from nowhere) and Live come first, then notices, without ids. A
// notice that waits for its reader stands for all of its kind, so memory is bounded by the wish.
// Unavailable when the control plane is gone; End when it drains. Loop thread.
class NoticeWatch final : public PulledSource<v1::ListenEvent> {
 public:
  // `again`: the listener was here before and may have missed anything: it is told of each kind.
  // `subject`: the seat's id, or the selectors.
  NoticeWatch(std::shared_ptr<ReadyQueue> ready, NoticeWatchOwner& owner, std::string subject,
              v1::NoticeWish wish, bool again);
  ~NoticeWatch() override;

  const std::string& subject() const { return subject_; }
  const v1::NoticeWish& wish() const { return wish_; }

  // Kept if it is wished.
  void Tell(const std::string& method, const std::string& params);
  void Drain();
  void PlaneGone();

 protected:
  void OnDemand() override {}
  std::optional<absl::StatusOr<v1::ListenEvent>> Take() override;

 private:
  bool Wishes(const std::string& method, const std::string& of) const;

  NoticeWatchOwner* owner_;  // nullptr: gone
  const std::string subject_;
  const v1::NoticeWish wish_;
  // Params by method and resource or task.
  std::map<std::pair<std::string, std::string>, std::string> waiting_;
  int told_ = 0;  // of Replaying and Live
  bool draining_ = false;
  bool ended_ = false;
};

}  // namespace callboard::server
