// The tower's door: one agent, its seats, and its links to control planes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backend_agent/seat.h"
#include "backend_agent/spool.h"
#include "callboard/v1/agent.pb.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/link.h"
#include "core/runtime/random.h"
#include "core/telemetry/metrics_text.h"

namespace callboard::agent {

// The agent's end of one Attach.
using ControlPlaneLink = core::Link<v1::AgentFrame, v1::ServerFrame>;

// Dials control planes. The link reports a failed dial through OnClosed.
class LinkDialer {
 public:
  virtual ~LinkDialer() = default;
  virtual std::unique_ptr<ControlPlaneLink> Dial(const std::string& address) = 0;
};

// Append-only bytes of the journal. Implementations: storage/posix_journal_file (product),
// MemoryJournalFile in tests/support. Loop thread only.
class JournalFile {
 public:
  virtual ~JournalFile() = default;
  // Everything that was written before, read once at start.
  virtual absl::StatusOr<std::string> ReadAll() = 0;
  // One write(2). An error means nothing may be relied upon from this record on.
  virtual absl::Status Append(std::string_view record) = 0;
  // Replaces the whole content atomically (compaction).
  virtual absl::Status Replace(std::string_view content) = 0;
  // Differs after each boot of the machine (/proc/sys/kernel/random/boot_id); empty: not known.
  virtual std::string machine_boot_id() const = 0;
  // Differs for a copy of the file on the same machine.
  virtual std::string place_id() const = 0;
};

// Said in Hello and Welcome: notices are kept until the control plane acknowledges them.
inline constexpr char kNoticeAcksFeature[] = "notice_acks";

// Likewise: requests of backends to the client of a session outside its calls are passed on.
inline constexpr char kSessionAsksFeature[] = "session_asks";

struct AgentLimits {
  uint32_t open_calls_max = 4'096;  // that wait or run
  // Calls that have ended and wait to be settled. Beyond the bytes of their results in memory the
  // oldest results go to the spool; while either bound is reached no further call is taken.
  uint32_t ended_calls_max = 32'768;
  uint64_t ended_bytes_max = 16ull << 20;  // well below what makes the journal give bodies up
  uint64_t queued_bytes_max = 64ull << 20;
  uint32_t window = 64 << 10;
  uint32_t window_max = 1 << 20;
  uint64_t result_bytes_max = 256ull << 20;
  size_t link_unreceived_max = 256 << 10;
  size_t link_unreceived_most = 4 << 20;  // where bandwidth times delay asks for it
  size_t frame_bytes_max = 256 << 10;
  uint64_t journal_bytes_max = 64ull << 20;
  size_t tombstones_max = 65'536;
  absl::Duration tombstone_age = absl::Hours(24);
  size_t logs_per_call_max = 256;
  size_t notices_max = 256;
  size_t addresses_max = 16;  // of control planes, configured and learned
};

struct AgentConfig {
  std::string agent_id;  // 32 hex digits, stable
  // "host:port" each; planes name further ones (see PlaneLinks).
  std::vector<std::string> control_planes;
  v1::Software software;
  std::map<std::string, std::string> labels;
  AgentLimits limits;
  absl::Duration backoff_first = absl::Milliseconds(100);
  absl::Duration backoff_max = absl::Seconds(10);
  absl::Duration permanent_refusal_wait = absl::Seconds(60);
  absl::Duration welcome_timeout = absl::Seconds(10);
};

// Counts for tests, the simulation's bounds check and metrics.
struct AgentGauges {
  size_t calls = 0;  // not settled
  size_t running = 0;
  size_t held = 0;           // of `calls`: those that have ended
  uint64_t held_bytes = 0;   // their results in memory
  uint64_t bodies_lost = 0;  // results given up for want of room, so far
  size_t outbox_events = 0;
  uint64_t coalesced = 0;     // progress that a newer one replaced before it was sent, so far
  size_t notices = 0;         // that wait to be written
  uint64_t notices_lost = 0;  // given up before a control plane had them, so far
  uint64_t spool_bytes = 0;
  uint64_t journal_bytes = 0;
  bool linked = false;         // to any control plane: Welcome received
  size_t links = 0;            // control planes dialled or linked
  uint64_t ignored_items = 0;  // of a newer protocol, which must not come
  uint64_t attaches = 0;
  uint64_t welcomes = 0;
  uint64_t links_resumed = 0;  // Welcomes behind the first of a control plane: of the same process
  uint64_t links_re_registered = 0;  // of another one, which takes over
  uint64_t link_drops = 0;           // after a Welcome
  // Openings that failed, by what was said; nothing was: CODE_UNSPECIFIED.
  std::array<uint64_t, v1::Refused::Code_ARRAYSIZE> link_failures = {};
  std::map<std::string, bool> link_up;  // by address
  bool journal_writable = true;
  uint64_t queued_bytes = 0;
  uint64_t started = 0;  // calls, so far, as are all below
  uint64_t tool_errors = 0;
  std::map<std::pair<v1::OutcomeClass, v1::Reason>, uint64_t> ended;  // all others
};

// Loop thread only. Everything passed in outlives it. Destroying it is what a kill is to a
// process: the journal keeps what was written, nothing is said to anybody.
class Agent final {
 public:
  Agent(core::EventLoop& loop, core::Random& random, LinkDialer& dialer, JournalFile& journal,
        Spool& spool, AgentConfig config);
  ~Agent();

  // Reads the journal. One that cannot be read or written is begun anew under a new journal id: the
  // error says why, for the log, and never keeps the agent from serving. Before AddSeat and Start.
  absl::Status Recover();
  // Begins to dial all control planes.
  void Start();

  // For the constructors of seats.
  CallObserver& call_observer();
  SeatObserver& seat_observer();
  void AddSeat(std::unique_ptr<Seat> seat);
  // The seat's place is gone for good; its open calls end as LOST.
  void RemoveSeat(const std::string& seat_id, const std::string& reason);
  // Never below what a control plane has reported for that seat (Welcome.last_incarnation).
  uint64_t known_incarnation(const std::string& seat_id) const;

  // The first step of an orderly end: takes no further calls and lets those go that wait, which
  // their control planes send again to whoever comes after us. What runs, runs on (gauges()).
  void Drain();
  // Orderly end: closes the links after what is queued has been written, bounded by `grace`.
  void Stop(absl::Duration grace, absl::AnyInvocable<void()> done);

  AgentGauges gauges() const;
  void WriteMetrics(core::MetricsText& text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace callboard::agent
