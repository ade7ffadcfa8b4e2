// Implementation of NoticeIntake.
#include "server/flows/notice_intake.h"

#include <algorithm>
#include <utility>

#include "server/flows/store_key.h"

namespace callboard::server {

std::optional<uint64_t> NoticeIntake::Take(const std::string& boot_id, const v1::Notice& notice) {
  Mark& mark = marks_[notice.seat_id()];
  uint64_t lost = notice.lost();
  if (mark.boot_id != boot_id) {
    mark = {.boot_id = boot_id};
  } else if (notice.n() <= mark.taken) {
    AckSoon(notice.seat_id());
    return std::nullopt;
  } else {
    // What the agent gave up after it had been told is not lost.
    lost = std::min(lost, notice.n() - mark.taken - 1);
  }
  mark.taken = notice.n();
  return lost;
}

void NoticeIntake::OnTold(const std::string& seat_id, bool stored) {
  auto found = marks_.find(seat_id);
  if (found == marks_.end()) return;
  Mark& mark = found->second;
  if (!stored) return AckSoon(seat_id);
  mark.put = mark.taken;
  v1::NoticeMark record;
  record.set_boot_id(mark.boot_id);
  record.set_n(mark.taken);
  durable_.Put(StoreKey::OfNotices(seat_id), record.SerializeAsString());
  Ask(seat_id, mark);
}

void NoticeIntake::Ask(const std::string& seat_id, Mark& mark) {
  if (std::exchange(mark.asked, true)) return;
  durable_.OnceDurable(lifetime_.Wrap([this, seat_id, boot_id = mark.boot_id, put = mark.put] {
    auto found = marks_.find(seat_id);
    if (found == marks_.end() || found->second.boot_id != boot_id) return;
    Mark& kept = found->second;
    kept.asked = false;
    kept.durable = std::max(kept.durable, put);
    if (kept.put > put) Ask(seat_id, kept);
    AckSoon(seat_id);
  }));
}

void NoticeIntake::AckSoon(const std::string& seat_id) {
  if (!due_.insert(seat_id).second || due_.size() > 1) return;
  plane_.loop.Post(lifetime_.Wrap([this] {
    for (const std::string& due : std::exchange(due_, {})) {
      auto found = marks_.find(due);
      if (found == marks_.end()) continue;
      const Mark& mark = found->second;
      ack_(due, mark.boot_id, mark.put > mark.durable ? mark.durable : mark.taken);
    }
  }));
}

void NoticeIntake::Forget(const std::string& seat_id) {
  marks_.erase(seat_id);
  durable_.Put(StoreKey::OfNotices(seat_id), "");
}

void NoticeIntake::Restore(const std::string& seat_id, const v1::NoticeMark& stored) {
  if (plane_.seats.Find(seat_id) == nullptr) return Forget(seat_id);
  Mark& mark = marks_[seat_id];
  mark.boot_id = stored.boot_id();
  mark.taken = mark.put = mark.durable = stored.n();
}

}  // namespace callboard::server
