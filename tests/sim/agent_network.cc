// Implementation of AgentNetwork.
#include "tests/sim/agent_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace callboard::sim {
namespace {

constexpr double kBytesPerSecond = 50e6;
// What a sender's kernel still takes of a connection that leads nowhere.
constexpr size_t kSwallowedMax = 256 * 1024;

}  // namespace

// What one end of a wire is told.
class WireEnd {
 public:
  virtual ~WireEnd() = default;
  virtual void TakeBytes(const std::string& bytes) = 0;
  virtual void OnBytesWritten() = 0;
  virtual void TakeClosed(absl::Status status) = 0;
};

// Both directions of one Attach; kept alive by its two links. Side 0 is the agent's.
class Wire final : public std::enable_shared_from_this<Wire> {
 public:
  Wire(AgentNetwork& network, std::string agent) : network_(network), agent_(std::move(agent)) {}

  void Open(int side, WireEnd* end) {
    sides_[side].end = end;
    sides_[side].opened = true;
    if (side == 0) {
      const absl::Duration wait = 2 * network_.Latency();
      sides_[1].last_arrival = network_.loop_.Now() + wait;
      Later(wait, [](Wire& self) { self.Connect(); });
    } else {
      Later(absl::ZeroDuration(), [](Wire& self) { self.DrainInbox(1); });
    }
  }

  void Write(int side, std::string bytes) {
    Side& from = sides_[side];
    if (from.end == nullptr || broken_) return;
    if (network_.agents_[agent_].clogged) {
      from.held = std::move(bytes);
      from.holds = true;
      return;
    }
    Transmit(side, std::move(bytes));
  }

  void Close(int side, absl::Status status) {
    Side& from = sides_[side];
    if (from.end == nullptr) return;
    from.end = nullptr;
    from.holds = false;
    if (!broken_) Send(side, {{}, true, std::move(status)}, absl::ZeroDuration());
  }

  // The process is gone: its kernel resets the connection, which may overtake what was under way.
  void Drop(int side) {
    if (sides_[side].end == nullptr && sides_[side].opened) return;
    sides_[side].end = nullptr;
    sides_[side].holds = false;
    if (broken_) return;
    if (network_.random_.Below(2) == 0) ++sides_[1 - side].lost_before;
    Send(side, {{}, true, absl::UnavailableError("the peer's process is gone")},
         absl::ZeroDuration());
  }

  void Break(std::string_view why) {
    if (broken_) return;
    broken_ = true;
    for (int side : {0, 1}) {
      sides_[side].holds = false;
      Later(absl::ZeroDuration(), [side, text = std::string(why)](Wire& self) {
        self.Deliver(side, {{}, true, absl::UnavailableError(text)});
      });
    }
  }
  void HalfOpen() { half_open_ = true; }
  bool printing() const { return network_.trace_.printing(); }
  void Print(int to, const std::string& item) const {
    network_.trace_.Print(
        fmt::format("{} {} {}", to == 0 ? ">" : "<", agent_, item.substr(0, 250)));
  }
  void Unclog() {
    for (int side : {0, 1}) {
      if (!std::exchange(sides_[side].holds, false)) continue;
      Transmit(side, std::exchange(sides_[side].held, {}));
    }
  }

 private:
  struct Packet {
    std::string bytes;
    bool closes = false;
    absl::Status status;
  };
  struct Side {
    WireEnd* end = nullptr;
    bool opened = false;
    bool holds = false;
    std::string held;  // written while clogged
    size_t swallowed = 0;
    absl::Time last_arrival = absl::InfinitePast();
    uint64_t lost_before = 0;  // packets of an earlier count are lost
    std::deque<Packet> inbox;  // arrived before Open()
  };

  template <class Fn>
  void Later(absl::Duration delay, Fn fn) {
    while (!timers_.empty() && !timers_.front().pending()) timers_.pop_front();
    timers_.push_back(
        network_.loop_.After(delay, [weak = weak_from_this(), fn = std::move(fn)]() mutable {
          if (auto self = weak.lock()) fn(*self);
        }));
  }

  void Connect() {
    if (sides_[0].end == nullptr) return;
    const auto dials = network_.agents_[agent_].dials;
    if (dials == AgentNetwork::Dials::kSwallowed) {
      half_open_ = true;
      return;
    }
    if (dials == AgentNetwork::Dials::kRefused || network_.accept_ == nullptr) {
      broken_ = true;
      Deliver(0, {{}, true, absl::UnavailableError("connection refused")});
      return;
    }
    auto accept = network_.accept_;
    auto self = shared_from_this();
    (*accept)(MakeServerLink(), {"sim:" + agent_, "", ""});
  }
  std::unique_ptr<server::AgentLink> MakeServerLink();

  void Transmit(int side, std::string bytes) {
    const auto duration = absl::Seconds(static_cast<double>(bytes.size()) / kBytesPerSecond);
    Side& from = sides_[side];
    if (half_open_) {
      from.swallowed += bytes.size();
      if (from.swallowed > kSwallowedMax) return;
    }
    Later(duration, [side](Wire& self) {
      if (self.sides_[side].end != nullptr && !self.broken_)
        self.sides_[side].end->OnBytesWritten();
    });
    if (!half_open_) Send(side, {std::move(bytes), false, {}}, duration);
  }

  void Send(int from, Packet packet, absl::Duration duration) {
    if (half_open_) return;
    Side& to = sides_[1 - from];
    const absl::Time now = network_.loop_.Now();
    to.last_arrival = std::max(to.last_arrival, now + duration + network_.Latency());
    Later(to.last_arrival - now,
          [side = 1 - from, lost = to.lost_before, packet = std::move(packet)](Wire& self) mutable {
            if (self.half_open_ || self.broken_ || lost < self.sides_[side].lost_before) return;
            self.Deliver(side, std::move(packet));
          });
  }

  void Deliver(int side, Packet packet) {
    Side& to = sides_[side];
    if (!to.opened) {
      to.inbox.push_back(std::move(packet));
      return;
    }
    if (to.end == nullptr) return;
    auto self = shared_from_this();
    if (packet.closes) {
      WireEnd* end = std::exchange(to.end, nullptr);
      network_.trace_.Add(fmt::format("link of {} ends for the {}: {}", agent_,
                                      side == 0 ? "agent" : "control plane",
                                      packet.status.ToString()));
      end->TakeClosed(std::move(packet.status));
    } else {
      network_.trace_.Count(packet.bytes.size());
      to.end->TakeBytes(packet.bytes);
    }
  }

  void DrainInbox(int side) {
    auto self = shared_from_this();
    while (!sides_[side].inbox.empty()) {
      Packet packet = std::move(sides_[side].inbox.front());
      sides_[side].inbox.pop_front();
      Deliver(side, std::move(packet));
    }
  }

  AgentNetwork& network_;
  const std::string agent_;
  Side sides_[2];
  bool broken_ = false;
  bool half_open_ = false;
  std::deque<core::Timer> timers_;
};

namespace {

template <class Out, class In>
class SimLink final : public core::Link<Out, In>, private WireEnd {
 public:
  using Handler = typename core::Link<Out, In>::Handler;

  SimLink(std::shared_ptr<Wire> wire, int side) : wire_(std::move(wire)), side_(side) {}
  ~SimLink() override { wire_->Drop(side_); }

  void Open(Handler* handler) override {
    handler_ = handler;
    wire_->Open(side_, this);
  }
  void Write(Out message) override {
    written_ = asked_ = false;
    wire_->Write(side_, message.SerializeAsString());
  }
  // As lean as gRPC's adapters: who does not ask is not told.
  bool TakeWritten() override {
    asked_ = !written_;
    return written_;
  }
  void Close(absl::Status status) override { wire_->Close(side_, std::move(status)); }

 private:
  void TakeBytes(const std::string& bytes) override {
    In message;
    if (!message.ParseFromString(bytes)) return;
    if (wire_->printing()) {
      for (const auto& item : message.items()) wire_->Print(side_, item.ShortDebugString());
    }
    handler_->OnMessage(std::move(message));
  }
  void OnBytesWritten() override {
    written_ = true;
    if (asked_) handler_->OnWritten();
  }
  void TakeClosed(absl::Status status) override { handler_->OnClosed(std::move(status)); }

  std::shared_ptr<Wire> wire_;
  const int side_;
  Handler* handler_ = nullptr;
  bool written_ = false;
  bool asked_ = false;
};

}  // namespace

std::unique_ptr<server::AgentLink> Wire::MakeServerLink() {
  return std::make_unique<SimLink<v1::ServerFrame, v1::AgentFrame>>(shared_from_this(), 1);
}

class AgentNetwork::Dialer final : public agent::LinkDialer {
 public:
  Dialer(AgentNetwork& network, std::string agent) : network_(network), agent_(std::move(agent)) {}

  std::unique_ptr<agent::ControlPlaneLink> Dial(const std::string&) override {
    auto wire = std::make_shared<Wire>(network_, agent_);
    auto& wires = network_.agents_[agent_].wires;
    std::erase_if(wires, [](const auto& weak) { return weak.expired(); });
    wires.push_back(wire);
    network_.trace_.Add(fmt::format("{} dials", agent_));
    return std::make_unique<SimLink<v1::AgentFrame, v1::ServerFrame>>(std::move(wire), 0);
  }

 private:
  AgentNetwork& network_;
  const std::string agent_;
};

AgentNetwork::AgentNetwork(core::EventLoop& loop, core::Random& random, Trace& trace)
    : loop_(loop),
      random_(random),
      trace_(trace),
      base_latency_(absl::Microseconds(100 + static_cast<int64_t>(random.Below(20'000)))) {}
AgentNetwork::~AgentNetwork() = default;

absl::Duration AgentNetwork::Latency() {
  return base_latency_ + base_latency_ * (random_.Unit() * 0.5);
}

void AgentNetwork::Listen(Accept accept) { accept_ = std::make_shared<Accept>(std::move(accept)); }
void AgentNetwork::StopListening() { accept_ = nullptr; }

std::unique_ptr<agent::LinkDialer> AgentNetwork::MakeDialer(std::string agent) {
  return std::make_unique<Dialer>(*this, std::move(agent));
}

std::vector<std::shared_ptr<Wire>> AgentNetwork::WiresOf(const std::string& agent) {
  std::vector<std::shared_ptr<Wire>> result;
  for (const auto& weak : agents_[agent].wires) {
    if (auto wire = weak.lock()) result.push_back(std::move(wire));
  }
  return result;
}

void AgentNetwork::Break(const std::string& agent) {
  for (const auto& wire : WiresOf(agent)) wire->Break("the network broke the link");
}
void AgentNetwork::HalfOpen(const std::string& agent) {
  for (const auto& wire : WiresOf(agent)) wire->HalfOpen();
}
void AgentNetwork::Clog(const std::string& agent, bool clogged) {
  agents_[agent].clogged = clogged;
  if (clogged) return;
  for (const auto& wire : WiresOf(agent)) wire->Unclog();
}
void AgentNetwork::SetDials(const std::string& agent, Dials dials) { agents_[agent].dials = dials; }

}  // namespace callboard::sim
