// The three layers of a seat's health (D8): process, endpoint, main thread.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "callboard/v1/types.pb.h"

namespace callboard::agent {

// A plain table. Each setter returns whether the layer has changed.
class SeatHealth {
 public:
  bool SetProcess(v1::HealthState state, absl::Time now) { return process_.Set(state, now); }
  bool SetEndpoint(v1::HealthState state, absl::Time now) { return endpoint_.Set(state, now); }
  bool SetMainThread(v1::HealthState state, absl::Time now) { return main_thread_.Set(state, now); }

  // Why it is not well; "" once it is.
  bool SetReason(std::string reason) {
    if (reason == reason_) return false;
    reason_ = std::move(reason);
    return true;
  }

  v1::HealthState endpoint() const { return endpoint_.state; }

  v1::SeatHealth Report(absl::Time now) const {
    v1::SeatHealth report;
    report.set_process(process_.state);
    report.set_endpoint(endpoint_.state);
    report.set_main_thread(main_thread_.state);
    report.set_reason(reason_);
    const Layer* worst = &process_;
    for (const Layer* layer : {&endpoint_, &main_thread_}) {
      if (Badness(layer->state) > Badness(worst->state)) worst = layer;
    }
    report.set_since_ms(worst->since == absl::InfinitePast()
                            ? 0
                            : static_cast<uint64_t>(std::max<int64_t>(
                                  0, (now - worst->since) / absl::Milliseconds(1))));
    return report;
  }

 private:
  struct Layer {
    v1::HealthState state = v1::NOT_KNOWN;
    absl::Time since = absl::InfinitePast();

    bool Set(v1::HealthState next, absl::Time now) {
      if (next == state) return false;
      state = next;
      since = now;
      return true;
    }
  };

  static int Badness(v1::HealthState state) {
    switch (state) {
      case v1::GONE:
        return 4;
      case v1::UNRESPONSIVE:
        return 3;
      case v1::NOT_KNOWN:
        return 2;
      case v1::BUSY:
        return 1;
      default:
        return 0;
    }
  }

  Layer process_;
  Layer endpoint_;
  Layer main_thread_;
  std::string reason_;
};

}  // namespace callboard::agent
