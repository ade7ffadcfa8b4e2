// The store on one SQLite file: changes are collected on the loop and committed on a thread of its
// own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"
#include "core/runtime/offload.h"
#include "core/telemetry/metrics_text.h"
#include "server/flows/store.h"
#include "server/store/sqlite_file.h"

namespace callboard::server {

struct SqliteStoreConfig {
  std::string path;
  // Of an installation whose store is made now.
  std::string new_cluster_id;
  bool sync_full = false;
  // What may wait for the disk. Beyond: the store fails until the process is started anew, and what
  // does not fit is lost then.
  uint64_t pending_bytes_max = 256 << 20;
  // Changes that nobody waits for are collected for so long.
  absl::Duration hold_max = absl::Milliseconds(50);
  // While several wait at a time, a commit begins no sooner after the one before, so that they
  // share it. Who waits alone has it at once.
  absl::Duration spacing = absl::Milliseconds(1);
  // A commit that takes longer counts as a failure until it is done.
  absl::Duration stall_max = absl::Seconds(10);
};

struct StoreGauges {
  uint64_t file_bytes = 0;  // as of the last time it was tended
  uint64_t log_bytes = 0;   // in the write-ahead log, not yet in the file
  size_t pending_records = 0;
  uint64_t pending_bytes = 0;
  uint64_t commits = 0;  // so far
  uint64_t failures = 0;
  uint64_t lost_records = 0;     // beyond pending_bytes_max
  absl::Duration last_commit{};  // from handing over to hearing of it
};

// Loop thread. Owns the file and the thread that works on it; its destruction waits for what that
// thread is at and drops the rest, as a kill would. At most one commit is under way; when it is
// done the next takes all that has come meanwhile, at once if somebody waits or it is much. A
// failed commit is tried again every second, with the newest value of each key.
class SqliteStore final : public Store {
 public:
  // `disk` runs this store's work alone, so that nothing else waits for the disk. The errors are
  // those of SqliteFile::Open. Blocks: for the start of a program only.
  static absl::StatusOr<std::unique_ptr<SqliteStore>> Open(core::EventLoop& loop,
                                                           std::unique_ptr<core::Offload> disk,
                                                           SqliteStoreConfig config);

  uint64_t term() const override { return file_->term(); }
  const std::string& cluster_id() const override { return file_->cluster_id(); }
  uint64_t Append(std::vector<StoreRecord> records) override;
  void WhenDurable(uint64_t position, absl::AnyInvocable<void(absl::Status)> callback) override;
  // Before anything else is asked of the store.
  absl::Status Load(absl::AnyInvocable<void(const StoreRecord&)> visit) override;
  void Read(std::string from, std::string to, size_t limit,
            absl::AnyInvocable<void(absl::StatusOr<std::vector<StoreRecord>>)> callback) override;
  absl::Status status() const override { return status_; }

  StoreGauges gauges() const;
  void WriteMetrics(core::MetricsText& text) const override;

 private:
  SqliteStore(core::EventLoop& loop, std::unique_ptr<core::Offload> disk,
              std::unique_ptr<SqliteFile> file, SqliteStoreConfig config);

  // Runs `work` on the disk's thread, then `done` with its result here.
  template <class Work, class Done>
  void OnDisk(Work work, Done done);

  void CommitSoon();
  void Commit();
  void OnCommitted(const absl::StatusOr<uint64_t>& log_bytes);
  void TakeBack();
  // Looks what is to be done now that the disk is free.
  void Next();
  void BeginWork();
  void EndWork();

  void TendAfter(absl::Duration delay);
  void Tend();
  void OnTended(const absl::StatusOr<SqliteFile::Tended>& tended);

  void SetFailed(absl::Status status);
  void SetWell();
  // The callbacks waiting for positions up to there; false if one of them destroyed this store.
  bool Tell(uint64_t through, const absl::Status& status);

  core::EventLoop& loop_;
  const SqliteStoreConfig config_;
  const std::shared_ptr<SqliteFile> file_;

  StoreBatch pending_;
  uint64_t pending_bytes_ = 0;
  std::shared_ptr<StoreBatch> in_flight_;
  uint64_t in_flight_bytes_ = 0;
  uint64_t in_flight_through_ = 0;
  uint64_t position_ = 0;  // of the last append
  uint64_t kept_ = 0;      // of the last append that was kept
  uint64_t durable_ = 0;
  std::multimap<uint64_t, absl::AnyInvocable<void(absl::Status)>> waiting_;

  bool used_ = false;        // the file belongs to the disk's thread
  bool busy_ = false;        // a commit or tending is under way
  bool committing_ = false;  // a commit will begin, at the end of this turn of the loop or later
  bool crowded_ = false;     // several were waiting when the last commit was done
  bool untended_ = true;
  absl::Status status_;
  absl::Status tending_status_;
  absl::Time tend_not_before_ = absl::InfinitePast();
  absl::Time failed_at_;
  absl::Time handed_over_at_ = absl::InfinitePast();
  StoreGauges counts_;

  core::Timer hold_timer_;
  core::Timer stall_timer_;
  core::Timer retry_timer_;
  core::Timer tend_timer_;
  core::Lifetime lifetime_;
  std::unique_ptr<core::Offload> disk_;  // first to go: joins its thread
};

}  // namespace callboard::server
