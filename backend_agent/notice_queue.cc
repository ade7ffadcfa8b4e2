// Implementation of NoticeQueue.
#include "backend_agent/notice_queue.h"

#include <algorithm>
#include <utility>

#include "backend_agent/payload.h"

namespace callboard::agent {

void NoticeQueue::Add(const std::string& seat_id, uint64_t n, const std::string& method,
                      const std::string& params) {
  const bool look_again = n == 0;
  if (params.size() > kInlineBodyMax) {
    if (look_again) return;
    ++lost_total_;
    ++lost_[seat_id];
    return;
  }
  size_t others = 0;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const Kept& kept = kept_[i];
    if (i >= written_ && look_again && kept.look_again() && kept.seat_id == seat_id &&
        kept.method == method && kept.params == params) {
      return;
    }
    if (kept.look_again() == look_again) ++others;
  }
  if (others >= notices_max_) {
    const auto oldest = std::find_if(kept_.begin(), kept_.end(), [look_again](const Kept& kept) {
      return kept.look_again() == look_again;
    });
    Lose(static_cast<size_t>(oldest - kept_.begin()));
  }
  kept_.push_back({seat_id, n, 0, method, params});
  if (look_again) return;
  if (auto before = lost_.extract(seat_id)) kept_.back().lost = before.mapped();
}

// It is the oldest of its kind.
void NoticeQueue::Lose(size_t index) {
  const Kept gone = kept_[index];
  Erase(index);
  if (gone.look_again()) return;
  ++lost_total_;
  const auto next = std::find_if(kept_.begin(), kept_.end(), [&gone](const Kept& kept) {
    return kept.seat_id == gone.seat_id && !kept.look_again();
  });
  (next == kept_.end() ? lost_[gone.seat_id] : next->lost) += gone.lost + 1;
}

void NoticeQueue::Erase(size_t index) {
  kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(index));
  if (index < written_) --written_;
}

void NoticeQueue::RemoveSeat(const std::string& seat_id) {
  for (size_t i = kept_.size(); i > 0; --i) {
    if (kept_[i - 1].seat_id == seat_id) Erase(i - 1);
  }
  lost_.erase(seat_id);
}

void NoticeQueue::OnLinked(bool acknowledges) {
  acknowledges_ = acknowledges;
  if (acknowledges) return;
  // It would take again what it has had.
  std::erase_if(kept_, [](const Kept& kept) { return kept.was_written && !kept.look_again(); });
}

void NoticeQueue::OnUnlinked() {
  written_ = 0;
  for (size_t i = 0; i < kept_.size();) {
    const Kept& kept = kept_[i];
    const bool again =
        kept.look_again() && std::any_of(kept_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                         kept_.end(), [&kept](const Kept& later) {
                                           return later.seat_id == kept.seat_id &&
                                                  later.method == kept.method &&
                                                  later.params == kept.params;
                                         });
    if (again) {
      Erase(i);
    } else {
      ++i;
    }
  }
}

void NoticeQueue::OnAllReceived() {
  for (size_t i = written_; i > 0; --i) {
    if (kept_[i - 1].look_again()) Erase(i - 1);
  }
}

void NoticeQueue::OnAck(std::string_view seat_id, uint64_t n) {
  for (size_t i = written_; i > 0; --i) {
    const Kept& kept = kept_[i - 1];
    const bool told = !kept.look_again() && kept.n <= n;
    if (told && kept.seat_id == seat_id) Erase(i - 1);
  }
}

void NoticeQueue::Fill(FrameBuilder& frame,
                       absl::FunctionRef<uint64_t(const std::string&)> incarnation_of) {
  while (written_ < kept_.size()) {
    Kept& kept = kept_[written_];
    if (frame.room() < kItemOverhead + kept.params.size() + kept.method.size()) return;
    v1::Notice* notice = frame.Add()->mutable_notice();
    notice->set_seat_id(kept.seat_id);
    notice->set_incarnation(incarnation_of(kept.seat_id));
    notice->set_n(kept.n);
    notice->set_lost(kept.lost);
    notice->set_method(kept.method);
    notice->mutable_params()->set_inline_(kept.params);
    kept.was_written = true;
    ++written_;
    if (!acknowledges_ && !kept.look_again()) Erase(written_ - 1);
  }
}

}  // namespace callboard::agent
