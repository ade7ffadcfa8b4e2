// Implementation of IncarnationCounter.
#include "backend_agent/incarnation_counter.h"

#include <algorithm>

namespace callboard::agent {

namespace {

bool Same(const ProcessIdentity& a, const ProcessIdentity& b) {
  return a.pid != 0 && a.start_time != 0 && a.pid == b.pid && a.start_time == b.start_time;
}

}  // namespace

IncarnationCounter::IncarnationCounter(IncarnationStore& store) : store_(store) {
  auto loaded = store_.Load();
  if (loaded.ok()) {
    records_ = *std::move(loaded);
  } else {
    last_error_ = loaded.status();
  }
}

uint64_t IncarnationCounter::Next(const std::string& seat_id, ProcessIdentity process,
                                  uint64_t at_least) {
  auto at = records_.find(seat_id);
  if (at != records_.end() && Same(at->second.process, process) &&
      at->second.incarnation >= at_least) {
    return at->second.incarnation;
  }
  const uint64_t former = at == records_.end() ? 0 : at->second.incarnation;
  const IncarnationRecord record{std::max(former, at_least) + 1, process};
  if (at != records_.end()) {
    at->second = record;
  } else if (records_.size() < kRecordsMax) {
    records_.emplace(seat_id, record);
  }
  last_error_ = store_.Save(records_);
  return record.incarnation;
}

std::string IncarnationCounter::FindSeat(ProcessIdentity process) const {
  for (const auto& [seat_id, record] : records_) {
    if (Same(record.process, process)) return seat_id;
  }
  return "";
}

}  // namespace callboard::agent
