// Implementation of CallJournal.
#include "backend_agent/call_journal.h"

#include <algorithm>
#include <utility>

#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"
#include "core/telemetry/log.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

constexpr uint32_t kFormatVersion = 1;
// A smaller file is not worth compacting: rewriting costs what is kept, mostly tombstones; so it
// has to be worth it.
constexpr uint64_t kCompactionFloor = 16 << 20;
constexpr uint64_t kCompactionGrowth = 3;

// Where the body of a finished record is.
enum class BodyPlace : uint8_t { kNone = 0, kRecord = 1, kSpool = 2, kLost = 3 };

uint64_t Seconds(absl::Time time) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixSeconds(time)));
}
absl::Time FromSeconds(uint64_t seconds) {
  return absl::FromUnixSeconds(static_cast<int64_t>(seconds));
}

void WriteHeader(std::string& out, const std::string& id, const std::string& origin) {
  RecordWriter(out, RecordKind::kHeader).U32(kFormatVersion).Text(id).Text(origin).Finish();
}

std::string_view BootOf(std::string_view origin) { return origin.substr(0, origin.find(' ')); }

void WriteStarted(std::string& out, const JournaledCall& call) {
  RecordWriter(out, RecordKind::kStarted)
      .Text(call.call_id)
      .U32(call.attempt)
      .U64(call.owner_term)
      .Text(call.owner_plane)
      .Text(call.seat_id)
      .U64(call.incarnation)
      .U64(call.params_size)
      .U32(call.params_crc)
      .Finish();
}

void WriteFinished(std::string& out, const JournaledCall& call) {
  RecordWriter record(out, RecordKind::kFinished);
  record.Text(call.call_id).U64(Seconds(call.finished_at)).Text(call.outcome->SerializeAsString());
  if (call.body_lost) {
    record.U8(static_cast<uint8_t>(BodyPlace::kLost));
  } else if (!call.spool_name.empty()) {
    record.U8(static_cast<uint8_t>(BodyPlace::kSpool))
        .Text(call.spool_name)
        .U64(call.body.offset())
        .U64(call.body.size());
  } else if (call.body.empty()) {
    record.U8(static_cast<uint8_t>(BodyPlace::kNone));
  } else {
    record.U8(static_cast<uint8_t>(BodyPlace::kRecord)).Text(call.body.view());
  }
  record.Finish();
}

void WriteJob(std::string& out, const std::string& call_id, std::string_view job_id) {
  RecordWriter(out, RecordKind::kJob).Text(call_id).Text(job_id).Finish();
}

void WriteSettled(std::string& out, const std::string& call_id, const Tombstone& tombstone) {
  RecordWriter(out, RecordKind::kSettled)
      .Text(call_id)
      .U32(tombstone.attempt)
      .U8(static_cast<uint8_t>(tombstone.outcome_class))
      .U8(static_cast<uint8_t>(tombstone.certainty))
      .U64(Seconds(tombstone.settled_at))
      .Finish();
}

void WriteIncarnation(std::string& out, const std::string& seat_id, uint64_t incarnation) {
  RecordWriter(out, RecordKind::kIncarnation).Text(seat_id).U64(incarnation).Finish();
}

uint64_t BytesInRecord(const JournaledCall& call) {
  return call.spool_name.empty() ? call.body.size() : 0;
}

}  // namespace

CallJournal::CallJournal(JournalFile& file, Spool& spool, core::EventLoop& loop,
                         core::Random& random, const AgentLimits& limits)
    : file_(file), spool_(spool), loop_(loop), random_(random), limits_(limits) {
  RenewId();
}

void CallJournal::RenewId() { id_ = random_.Hex(16); }

absl::Status CallJournal::Recover() {
  auto content = file_.ReadAll();
  bool trusted = content.ok();
  if (content.ok()) {
    std::string_view left = *content;
    RecordKind kind = RecordKind::kHeader;
    RecordReader fields;
    bool headed = false;
    while (TakeRecord(left, kind, fields)) {
      if (kind == RecordKind::kHeader) headed = true;
      if (!Apply(kind, fields)) {
        trusted = false;
        break;
      }
    }
    trusted = trusted && headed && left.empty();
    bytes_ = content->size();
  }
  const std::string boot = file_.machine_boot_id();
  same_machine_boot_ = BootOf(origin_) == boot;
  OpenBodies();
  // What was written elsewhere may have gone on there: it proves nothing of what did not start.
  if (!trusted || boot.empty() || origin_ != Origin()) {
    RenewId();
    return Compact();
  }
  compact_at_ =
      std::min(limits_.journal_bytes_max, std::max(kCompactionFloor, kCompactionGrowth * bytes_));
  return absl::OkStatus();
}

bool CallJournal::Apply(RecordKind kind, RecordReader& fields) {
  switch (kind) {
    case RecordKind::kHeader: {
      const uint32_t version = fields.U32();
      id_ = fields.Text();
      origin_ = fields.Text();
      return fields.ok() && version == kFormatVersion && !id_.empty();
    }
    case RecordKind::kStarted: {
      JournaledCall call;
      call.call_id = fields.Text();
      call.attempt = fields.U32();
      call.owner_term = fields.U64();
      call.owner_plane = fields.Text();
      call.seat_id = fields.Text();
      call.incarnation = fields.U64();
      call.params_size = fields.U64();
      call.params_crc = fields.U32();
      call.sequence = next_sequence_++;
      if (!fields.ok()) return false;
      calls_[call.call_id] = std::move(call);
      return true;
    }
    case RecordKind::kFinished:
      ApplyFinished(fields);
      return fields.ok();
    case RecordKind::kJob: {
      auto it = calls_.find(fields.Text());
      const std::string_view job = fields.Text();
      if (fields.ok() && it != calls_.end()) it->second.backend_job = job;
      return fields.ok();
    }
    case RecordKind::kSettled: {
      const std::string call_id(fields.Text());
      Tombstone tombstone;
      tombstone.attempt = fields.U32();
      tombstone.outcome_class = static_cast<v1::OutcomeClass>(fields.U8());
      tombstone.certainty = static_cast<v1::Certainty>(fields.U8());
      tombstone.settled_at = FromSeconds(fields.U64());
      if (!fields.ok()) return false;
      calls_.erase(call_id);
      Bury(call_id, tombstone);
      return true;
    }
    case RecordKind::kIncarnation: {
      const std::string seat_id(fields.Text());
      const uint64_t incarnation = fields.U64();
      if (fields.ok()) incarnations_[seat_id] = incarnation;
      return fields.ok();
    }
  }
  return true;  // of a newer version, which may add kinds
}

void CallJournal::ApplyFinished(RecordReader& fields) {
  auto it = calls_.find(fields.Text());
  const uint64_t finished_at = fields.U64();
  const std::string_view outcome_bytes = fields.Text();
  v1::Outcome outcome;
  const bool parsed =
      outcome.ParseFromArray(outcome_bytes.data(), static_cast<int>(outcome_bytes.size()));
  const auto place = static_cast<BodyPlace>(fields.U8());
  JournaledCall unknown;
  JournaledCall& call = it == calls_.end() ? unknown : it->second;
  call.body = Payload();
  call.spool_name.clear();
  call.body_lost = !parsed || place == BodyPlace::kLost;
  if (place == BodyPlace::kRecord) {
    call.body = Payload(std::string(fields.Text()));
  } else if (place == BodyPlace::kSpool) {
    call.spool_name = fields.Text();
    const uint64_t offset = fields.U64();
    const uint64_t size = fields.U64();
    auto file = spool_.OpenKept(call.spool_name);
    if (file.ok() && offset <= (*file)->view().size() && size <= (*file)->view().size() - offset) {
      const Payload whole(*std::move(file));
      call.body = whole.Part(whole.view().substr(offset, size));
    } else {
      call.body_lost = true;
    }
  }
  call.outcome = std::move(outcome);
  call.finished_at = FromSeconds(finished_at);
}

void CallJournal::OpenBodies() {
  std::vector<std::string> names;
  for (const JournaledCall* call : Unsettled()) {
    if (!call->spool_name.empty()) names.push_back(call->spool_name);
  }
  spool_.RemoveAllBut(names);
}

std::vector<const JournaledCall*> CallJournal::Unsettled() const {
  std::vector<const JournaledCall*> calls;
  calls.reserve(calls_.size());
  for (const auto& [call_id, call] : calls_) calls.push_back(&call);
  std::sort(calls.begin(), calls.end(),
            [](const auto* a, const auto* b) { return a->sequence < b->sequence; });
  return calls;
}

absl::Status CallJournal::Started(JournaledCall call) {
  scratch_.clear();
  WriteStarted(scratch_, call);
  CALLBOARD_RETURN_IF_ERROR(Write());
  DropCall(call.call_id);
  call.sequence = next_sequence_++;
  std::string call_id = call.call_id;
  calls_[std::move(call_id)] = std::move(call);
  return absl::OkStatus();
}

absl::Status CallJournal::Finished(const std::string& call_id, const v1::Outcome& outcome,
                                   const Payload& body) {
  auto it = calls_.find(call_id);
  if (it == calls_.end()) return absl::OkStatus();
  JournaledCall& call = it->second;
  if (!call.spool_name.empty()) spool_.Remove(call.spool_name);
  call.outcome = outcome;
  call.outcome->clear_body();
  call.finished_at = loop_.WallNow();
  absl::Status kept = KeepBody(call, body);
  scratch_.clear();
  WriteFinished(scratch_, call);
  CALLBOARD_RETURN_IF_ERROR(Write());
  return kept;
}

absl::Status CallJournal::KeepBody(JournaledCall& call, const Payload& body) {
  call.body = body;
  call.spool_name.clear();
  call.body_lost = false;
  if (body.size() <= kInlineBodyMax) return absl::OkStatus();
  if (body.file() == nullptr) {
    auto writer = spool_.Create();
    absl::Status status = writer.ok() ? (*writer)->Append(body.view()) : writer.status();
    if (!status.ok()) {
      call.body = Payload();
      call.body_lost = true;
      return status;
    }
    call.body = Payload((*writer)->Finish());
  }
  call.body.file()->Keep();
  call.spool_name = call.body.file()->name();
  return absl::OkStatus();
}

void CallJournal::MoveBody(const std::string& call_id, const Payload& body) {
  auto it = calls_.find(call_id);
  if (it == calls_.end() || !it->second.outcome) return;
  JournaledCall& call = it->second;
  if (!call.spool_name.empty()) spool_.Remove(call.spool_name);
  body.file()->Keep();
  call.body = body;
  call.body_lost = false;
  call.spool_name = body.file()->name();
  scratch_.clear();
  WriteFinished(scratch_, call);
  // Not written: the record that has the body in it is still there.
  Write().IgnoreError();
}

void CallJournal::LoseBody(const std::string& call_id) {
  auto it = calls_.find(call_id);
  if (it == calls_.end() || !it->second.outcome) return;
  JournaledCall& call = it->second;
  if (!call.spool_name.empty()) spool_.Remove(std::exchange(call.spool_name, {}));
  call.body = Payload();
  call.body_lost = true;
  scratch_.clear();
  WriteFinished(scratch_, call);
  // Not written: after a restart the missing spool file says the same.
  Write().IgnoreError();
}

absl::Status CallJournal::Job(const std::string& call_id, std::string_view job_id) {
  auto it = calls_.find(call_id);
  if (it == calls_.end()) return absl::OkStatus();
  scratch_.clear();
  WriteJob(scratch_, call_id, job_id);
  CALLBOARD_RETURN_IF_ERROR(Write());
  it->second.backend_job = job_id;
  return absl::OkStatus();
}

void CallJournal::Settled(const std::vector<Settlement>& settlements) {
  scratch_.clear();
  for (const Settlement& settlement : settlements) {
    Tombstone tombstone{settlement.attempt, settlement.outcome_class, settlement.certainty,
                        loop_.WallNow()};
    WriteSettled(scratch_, settlement.call_id, tombstone);
    DropCall(settlement.call_id);
    Bury(settlement.call_id, tombstone);
  }
  // Not written: after a restart the call is in the inventory once more, and is settled again.
  if (!scratch_.empty()) Write().IgnoreError();
}

void CallJournal::DropCall(const std::string& call_id) {
  auto it = calls_.find(call_id);
  if (it == calls_.end()) return;
  if (!it->second.spool_name.empty()) spool_.Remove(it->second.spool_name);
  calls_.erase(it);
}

void CallJournal::Bury(const std::string& call_id, const Tombstone& tombstone) {
  auto [it, fresh] = tombstones_.insert_or_assign(call_id, tombstone);
  if (!fresh) return;
  tombstone_order_.push_back(call_id);
  while (tombstone_order_.size() > limits_.tombstones_max) {
    tombstones_.erase(tombstone_order_.front());
    tombstone_order_.pop_front();
  }
}

const Tombstone* CallJournal::FindTombstone(const std::string& call_id) const {
  auto it = tombstones_.find(call_id);
  if (it == tombstones_.end()) return nullptr;
  if (it->second.settled_at + limits_.tombstone_age < loop_.WallNow()) return nullptr;
  return &it->second;
}

uint64_t CallJournal::known_incarnation(const std::string& seat_id) const {
  auto it = incarnations_.find(seat_id);
  return it == incarnations_.end() ? 0 : it->second;
}

void CallJournal::RaiseIncarnation(const std::string& seat_id, uint64_t incarnation) {
  uint64_t& known = incarnations_[seat_id];
  if (incarnation <= known) return;
  known = incarnation;
  scratch_.clear();
  WriteIncarnation(scratch_, seat_id, incarnation);
  // Not written: the control plane reports what it has seen in its next Welcome.
  Write().IgnoreError();
}

std::vector<std::string> CallJournal::Expire() {
  const absl::Time oldest = loop_.WallNow() - limits_.tombstone_age;
  while (!tombstone_order_.empty()) {
    auto it = tombstones_.find(tombstone_order_.front());
    if (it != tombstones_.end()) {
      if (it->second.settled_at >= oldest) break;
      tombstones_.erase(it);
    }
    tombstone_order_.pop_front();
  }
  std::vector<std::string> expired;
  for (const JournaledCall* call : Unsettled()) {
    if (call->outcome && call->finished_at < oldest) expired.push_back(call->call_id);
  }
  if (!expired.empty()) {
    std::vector<Settlement> settlements;
    for (const std::string& call_id : expired) {
      const JournaledCall& call = calls_.at(call_id);
      settlements.push_back(
          {call_id, call.attempt, call.outcome->class_(), call.outcome->certainty()});
    }
    Settled(settlements);
    RenewId();
    Compact().IgnoreError();  // the old id stays in the file: the next write tries again
  }
  return expired;
}

std::string CallJournal::Origin() const {
  return fmt::format("{} {}", file_.machine_boot_id(), file_.place_id());
}

void CallJournal::NoteWrite(const absl::Status& status) {
  const bool was_broken = std::exchange(broken_, !status.ok());
  if (broken_ == was_broken) return;
  if (broken_) {
    broken_since_ = loop_.Now();
    core::LogWarn("journal_unwritable", {{"reason", core::Message(status)}});
  } else {
    core::LogInfo("journal_writable",
                  {{"away_ms", absl::ToInt64Milliseconds(loop_.Now() - broken_since_)}});
  }
}

absl::Status CallJournal::Write() {
  if (broken_ || bytes_ + scratch_.size() > compact_at_) {
    // The records in `scratch_` are not in the tables yet, or are and are then written twice.
    std::string records;
    records.swap(scratch_);
    CALLBOARD_RETURN_IF_ERROR(Compact());
    scratch_.swap(records);
  }
  const absl::Status status = file_.Append(scratch_);
  if (status.ok()) bytes_ += scratch_.size();
  NoteWrite(status);
  return status;
}

absl::Status CallJournal::Compact() {
  EvictBodies(limits_.journal_bytes_max / 2);
  origin_ = Origin();
  std::string content;
  WriteHeader(content, id_, origin_);
  for (const auto& [seat_id, incarnation] : incarnations_) {
    WriteIncarnation(content, seat_id, incarnation);
  }
  for (const std::string& call_id : tombstone_order_) {
    auto it = tombstones_.find(call_id);
    if (it != tombstones_.end()) WriteSettled(content, call_id, it->second);
  }
  for (const JournaledCall* call : Unsettled()) {
    WriteStarted(content, *call);
    if (!call->backend_job.empty()) WriteJob(content, call->call_id, call->backend_job);
    if (call->outcome) WriteFinished(content, *call);
  }
  const absl::Status status = file_.Replace(content);
  NoteWrite(status);
  if (status.ok()) {
    bytes_ = content.size();
    compact_at_ =
        std::min(limits_.journal_bytes_max, std::max(kCompactionFloor, kCompactionGrowth * bytes_));
  }
  return status;
}

void CallJournal::EvictBodies(uint64_t bytes_max) {
  uint64_t total = 0;
  for (const auto& [call_id, call] : calls_) total += BytesInRecord(call);
  if (total <= bytes_max) return;
  std::vector<JournaledCall*> calls;
  for (auto& [call_id, call] : calls_) calls.push_back(&call);
  std::sort(calls.begin(), calls.end(),
            [](const auto* a, const auto* b) { return a->sequence < b->sequence; });
  for (JournaledCall* call : calls) {
    if (total <= bytes_max) return;
    const uint64_t bytes = BytesInRecord(*call);
    if (bytes == 0) continue;
    total -= bytes;
    call->body = Payload();
    call->body_lost = true;
  }
}

}  // namespace callboard::agent
