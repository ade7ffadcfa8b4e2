// The loop's side of the SQLite store: what is committed when, and who is told.
#include "server/store/sqlite_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/runtime/strings.h"
#include "core/telemetry/log.h"

namespace callboard::server {
namespace {

// What is collected beyond this is committed whether somebody waits or not.
constexpr uint64_t kBatchBytes = 1 << 20;
// A write-ahead log of that size is moved into the file even when there is other work.
constexpr uint64_t kLogBytesMax = 16 << 20;
constexpr absl::Duration kRetryEvery = absl::Seconds(1);
// A store without a commit for that long is idle, and is tended; further slices follow sooner.
constexpr absl::Duration kIdle = absl::Seconds(1);
constexpr absl::Duration kBetweenSlices = absl::Milliseconds(50);
constexpr absl::Duration kTendAgainAfterFault = absl::Seconds(10);
// A guess at what an entry of the batch costs beside its bytes.
constexpr uint64_t kEntryBytes = 96;

uint64_t BytesOf(const std::string& key, const std::string& value) {
  return key.size() + value.size() + kEntryBytes;
}

// What `over` says of the keys that `rows` (ascending) hold, at most `limit` of the live ones.
std::vector<StoreRecord> Merge(std::vector<StoreRecord> rows, StoreBatch over, size_t limit) {
  std::vector<StoreRecord> merged;
  auto row = rows.begin();
  auto change = over.begin();
  while (merged.size() < limit && (row != rows.end() || change != over.end())) {
    if (change == over.end() || (row != rows.end() && row->key < change->first)) {
      merged.push_back(std::move(*row++));
      continue;
    }
    if (row != rows.end() && row->key == change->first) ++row;
    if (!change->second.empty()) merged.push_back({change->first, std::move(change->second)});
    ++change;
  }
  return merged;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(core::EventLoop& loop,
                                                               std::unique_ptr<core::Offload> disk,
                                                               SqliteStoreConfig config) {
  SqliteFileOptions options;
  options.path = config.path;
  options.sync_full = config.sync_full;
  options.new_cluster_id = config.new_cluster_id;
  options.term_min =
      static_cast<uint64_t>(std::max<int64_t>(1, absl::ToUnixMillis(loop.WallNow())));
  auto file = SqliteFile::Open(options);
  if (!file.ok()) return file.status();
  return std::unique_ptr<SqliteStore>(
      new SqliteStore(loop, std::move(disk), *std::move(file), std::move(config)));
}

SqliteStore::SqliteStore(core::EventLoop& loop, std::unique_ptr<core::Offload> disk,
                         std::unique_ptr<SqliteFile> file, SqliteStoreConfig config)
    : loop_(loop), config_(std::move(config)), file_(std::move(file)), disk_(std::move(disk)) {
  TendAfter(kIdle);
}

template <class Work, class Done>
void SqliteStore::OnDisk(Work work, Done done) {
  used_ = true;
  auto result = std::make_shared<std::optional<decltype(work(*file_))>>();
  disk_->Run(
      [file = file_, result, work = std::move(work)]() mutable { *result = work(*file); },
      lifetime_.Wrap([result, done = std::move(done)]() mutable { done(*std::move(*result)); }));
}

// ---- the port -----------------------------------------------------------------------------------

uint64_t SqliteStore::Append(std::vector<StoreRecord> records) {
  if (records.empty()) return position_;
  position_ += records.size();
  uint64_t bytes = 0;
  for (const StoreRecord& record : records) bytes += BytesOf(record.key, record.value);
  if (counts_.lost_records > 0 ||
      pending_bytes_ + in_flight_bytes_ + bytes > config_.pending_bytes_max) {
    if (counts_.lost_records == 0) {
      SetFailed(core::MakeError(
          absl::StatusCode::kUnavailable,
          fmt::format("the store {} could not be written for so long that what waits for it "
                      "exceeds store.pending_bytes_max = {} bytes; see to its disk, then restart "
                      "callboardd: changes since then are lost",
                      config_.path, config_.pending_bytes_max)));
      loop_.Post(lifetime_.Wrap([this] { Tell(position_, status_); }));
    }
    counts_.lost_records += records.size();
    return position_;
  }
  kept_ = position_;
  for (StoreRecord& record : records) {
    auto [entry, is_new] = pending_.try_emplace(std::move(record.key));
    if (!is_new) pending_bytes_ -= BytesOf(entry->first, entry->second);
    entry->second = std::move(record.value);
    pending_bytes_ += BytesOf(entry->first, entry->second);
  }
  if (busy_ || retry_timer_.pending()) return position_;
  if (pending_bytes_ >= kBatchBytes) {
    CommitSoon();
  } else if (!committing_ && !hold_timer_.pending()) {
    hold_timer_ = loop_.After(config_.hold_max, [this] { Commit(); });
  }
  return position_;
}

void SqliteStore::WhenDurable(uint64_t position, absl::AnyInvocable<void(absl::Status)> callback) {
  if (position > position_) {
    return callback(absl::InvalidArgumentError("asked for a position that was never appended"));
  }
  if (position <= durable_) return callback(absl::OkStatus());
  if (!status_.ok()) return callback(status_);
  waiting_.emplace(position, std::move(callback));
  CommitSoon();
}

absl::Status SqliteStore::Load(absl::AnyInvocable<void(const StoreRecord&)> visit) {
  if (used_ || position_ > 0) {
    return absl::FailedPreconditionError("the store is loaded before anything else is done to it");
  }
  return file_->Visit(visit);
}

void SqliteStore::Read(
    std::string from, std::string to, size_t limit,
    absl::AnyInvocable<void(absl::StatusOr<std::vector<StoreRecord>>)> callback) {
  if (counts_.lost_records > 0) return callback(status_);
  if (from >= to || limit == 0) return callback(std::vector<StoreRecord>());
  // What the disk's thread has not been given yet, or may fail to write.
  StoreBatch over;
  if (in_flight_ != nullptr) {
    over.insert(in_flight_->lower_bound(from), in_flight_->lower_bound(to));
  }
  for (auto at = pending_.lower_bound(from); at != pending_.lower_bound(to); ++at) {
    over[at->first] = at->second;
  }
  const size_t rows = limit + std::min(over.size(), SIZE_MAX - limit);
  OnDisk([from = std::move(from), to = std::move(to),
          rows](SqliteFile& file) { return file.Read(from, to, rows); },
         [over = std::move(over), limit,
          callback = std::move(callback)](absl::StatusOr<std::vector<StoreRecord>> found) mutable {
           if (!found.ok()) return callback(found.status());
           callback(Merge(*std::move(found), std::move(over), limit));
         });
}

StoreGauges SqliteStore::gauges() const {
  StoreGauges gauges = counts_;
  gauges.pending_records = pending_.size() + (in_flight_ == nullptr ? 0 : in_flight_->size());
  gauges.pending_bytes = pending_bytes_ + in_flight_bytes_;
  return gauges;
}

void SqliteStore::WriteMetrics(core::MetricsText& text) const {
  const StoreGauges figures = gauges();
  text.Gauge("callboard_store_file_bytes", "The store's file, as of the last time it was tended.")
      .Sample(figures.file_bytes);
  text.Gauge("callboard_store_log_bytes", "Its write-ahead log.").Sample(figures.log_bytes);
  text.Gauge("callboard_store_pending_records", "Changes that are not durable yet.")
      .Sample(figures.pending_records);
  text.Gauge("callboard_store_pending_bytes", "The same in bytes.").Sample(figures.pending_bytes);
  text.Counter("callboard_store_commits_total", "Commits.").Sample(figures.commits);
  text.Counter("callboard_store_failures_total", "Commits that failed; each is tried again.")
      .Sample(figures.failures);
  text.Counter("callboard_store_lost_records_total",
               "Changes beyond store.pending_bytes_max, which a restart loses.")
      .Sample(figures.lost_records);
  text.Gauge("callboard_store_last_commit_seconds", "How long the last commit took.")
      .Sample(figures.last_commit);
}

// ---- commits ------------------------------------------------------------------------------------

void SqliteStore::CommitSoon() {
  if (busy_ || committing_ || retry_timer_.pending()) return;
  committing_ = true;
  auto commit = [this] {
    committing_ = false;
    Commit();
  };
  const absl::Time due = crowded_ ? handed_over_at_ + config_.spacing : absl::InfinitePast();
  if (due > loop_.Now()) {
    hold_timer_ = loop_.After(due - loop_.Now(), std::move(commit));
  } else {
    // At the end of this turn, so that all that a turn appends is one commit.
    loop_.Post(lifetime_.Wrap(std::move(commit)));
  }
}

void SqliteStore::Commit() {
  if (busy_ || pending_.empty()) return;
  hold_timer_.Cancel();
  BeginWork();
  in_flight_ = std::make_shared<StoreBatch>(std::exchange(pending_, {}));
  in_flight_bytes_ = std::exchange(pending_bytes_, 0);
  in_flight_through_ = kept_;
  OnDisk(
      [batch = in_flight_, again = !status_.ok()](SqliteFile& file) -> absl::StatusOr<uint64_t> {
        if (again) {
          if (absl::Status room = file.CheckRoom(); !room.ok()) return room;
          // What is moved from the log into the file leaves its place to this batch.
          file.Tend().status().IgnoreError();
        }
        return file.Write(*batch);
      },
      [this](const absl::StatusOr<uint64_t>& log_bytes) { OnCommitted(log_bytes); });
}

void SqliteStore::OnCommitted(const absl::StatusOr<uint64_t>& log_bytes) {
  EndWork();
  if (!log_bytes.ok()) {
    ++counts_.failures;
    TakeBack();
    retry_timer_ = loop_.After(kRetryEvery, [this] { Commit(); });
    SetFailed(log_bytes.status());
    Tell(position_, status_);
    return;
  }
  in_flight_ = nullptr;
  in_flight_bytes_ = 0;
  durable_ = in_flight_through_;
  untended_ = true;
  ++counts_.commits;
  counts_.log_bytes = *log_bytes;
  counts_.last_commit = loop_.Now() - handed_over_at_;
  crowded_ = waiting_.size() > 1;
  SetWell();
  if (Tell(durable_, absl::OkStatus())) Next();
}

// What could not be written waits again, unless there is something newer.
void SqliteStore::TakeBack() {
  const std::shared_ptr<StoreBatch> batch = std::exchange(in_flight_, nullptr);
  in_flight_bytes_ = 0;
  pending_.merge(*batch);
  pending_bytes_ = 0;
  for (const auto& [key, value] : pending_) pending_bytes_ += BytesOf(key, value);
}

void SqliteStore::Next() {
  if (busy_ || committing_ || retry_timer_.pending()) return;
  if (counts_.log_bytes >= kLogBytesMax && loop_.Now() >= tend_not_before_) return Tend();
  if (!pending_.empty()) {
    if (!waiting_.empty() || pending_bytes_ >= kBatchBytes) return CommitSoon();
    hold_timer_ = loop_.After(config_.hold_max, [this] { Commit(); });
  }
  if (untended_ && !tend_timer_.pending()) TendAfter(kIdle);
}

void SqliteStore::BeginWork() {
  busy_ = true;
  handed_over_at_ = loop_.Now();
  stall_timer_ = loop_.After(config_.stall_max, [this] {
    SetFailed(core::MakeError(
        absl::StatusCode::kUnavailable,
        fmt::format("the store {} has not been written for {}: its disk does not answer; look at "
                    "the disk and at the kernel's log",
                    config_.path, absl::FormatDuration(config_.stall_max))));
    Tell(position_, status_);
  });
}

void SqliteStore::EndWork() {
  busy_ = false;
  stall_timer_.Cancel();
}

// ---- keeping the file small ---------------------------------------------------------------------

void SqliteStore::TendAfter(absl::Duration delay) {
  tend_timer_ = loop_.After(delay, [this] {
    const bool idle = !busy_ && !committing_ && pending_.empty();
    if (idle) return Tend();
    TendAfter(kIdle);
  });
}

void SqliteStore::Tend() {
  BeginWork();
  OnDisk([](SqliteFile& file) { return file.Tend(); },
         [this](const absl::StatusOr<SqliteFile::Tended>& tended) { OnTended(tended); });
}

void SqliteStore::OnTended(const absl::StatusOr<SqliteFile::Tended>& tended) {
  EndWork();
  if (tended.ok()) {
    counts_.file_bytes = tended->file_bytes;
    counts_.log_bytes = tended->log_bytes;
    untended_ = tended->again;
    if (untended_) TendAfter(kBetweenSlices);
    SetWell();  // it may have stood still
  } else {
    // All that is committed is safe in the log; there it stays until this goes better.
    if (tending_status_.ok()) {
      core::LogWarn("store_not_tended", {{"reason", core::Message(tended.status())}});
    }
    tend_not_before_ = loop_.Now() + kTendAgainAfterFault;
    TendAfter(kTendAgainAfterFault);
  }
  tending_status_ = tended.status();
  Next();
}

// ---- failing and recovering ---------------------------------------------------------------------

void SqliteStore::SetFailed(absl::Status status) {
  if (counts_.lost_records > 0) return;  // that changes are lost is the last word
  if (status_.ok()) {
    failed_at_ = loop_.Now();
    core::LogWarn("store_failed", {{"reason", core::Message(status)}});
  }
  status_ = std::move(status);
}

void SqliteStore::SetWell() {
  if (status_.ok() || counts_.lost_records > 0) return;
  core::LogInfo("store_recovered",
                {{"duration_ms", absl::ToInt64Milliseconds(loop_.Now() - failed_at_)}});
  status_ = absl::OkStatus();
}

bool SqliteStore::Tell(uint64_t through, const absl::Status& status) {
  const auto alive = lifetime_.Watch();
  const absl::Status told = status;
  while (!waiting_.empty() && waiting_.begin()->first <= through) {
    auto callback = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    callback(told);
    if (alive.expired()) return false;
  }
  return true;
}

}  // namespace callboard::server
