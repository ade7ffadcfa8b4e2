// Requests of backends to clients outside their calls: on their way to the clients' control planes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "backend_agent/frame_builder.h"
#include "backend_agent/seat.h"

namespace callboard::agent {

// Every request it is given is answered at its seat exactly once: as the control plane says, or by
// itself: at once where nobody can be asked, and when the link ends. Loop thread only; owned by a
// SeatFeed. Bounds: those of the seats (SeatLimits::asks_max); 64 KiB a request.
class SessionAsks final {
 public:
  // A control plane, as far as it takes such requests.
  class Port {
   private:
    friend class SessionAsks;
    bool linked_ = false;
    bool takes_ = false;
    std::string control_plane_;
    std::deque<v1::AgentItem> waiting_;  // to be written
  };
  using FindSeatFn = absl::AnyInvocable<Seat*(const std::string& seat_id)>;

  explicit SessionAsks(FindSeatFn find_seat) : find_seat_(std::move(find_seat)) {}

  static void OnLinked(Port& port, const v1::Welcome& welcome);
  void OnUnlinked(Port& port);
  // Whether the client is to be asked there.
  static bool IsAt(const Port& port, std::string_view control_plane) {
    return port.linked_ && port.control_plane_ == control_plane;
  }

  // `port`: where the client is; nullptr: its control plane is away.
  void Ask(Port* port, const std::string& seat_id, uint64_t incarnation, SeatAsk ask);
  // The seat has no use for the answer any more. True: the control plane is to be told.
  bool EndOne(const std::string& seat_id, uint64_t ask, std::string raw_params);
  // There is no such seat any more.
  void EndAllOf(const std::string& seat_id);
  void OnAnswer(const Port& port, v1::SessionAnswer answer);

  // Writes what the frame has room for.
  static void Fill(Port& port, FrameBuilder& frame);
  static bool HasData(const Port& port) { return !port.waiting_.empty(); }
  size_t open() const { return open_.size(); }

 private:
  struct Open {
    Port* port;
    std::string seat_id;
    std::string backend_session;
    uint64_t ask;  // the seat's number
  };

  // Nothing happens if the seat is no more.
  void Answer(const std::string& seat_id, uint64_t ask, bool is_error, std::string text);
  void Withdraw(uint64_t id, const Open& open, std::string raw_params);

  FindSeatFn find_seat_;
  std::map<uint64_t, Open> open_;  // by ask_id
  uint64_t last_id_ = 0;
};

}  // namespace callboard::agent
