// A JournalFile in memory whose disk can be filled, torn, copied and moved to another boot of the
// machine.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "backend_agent/agent.h"

namespace callboard::tests {

// Outlives the agents of a test, as a file outlives processes. The members are the test's handles.
class MemoryJournalFile final : public agent::JournalFile {
 public:
  absl::StatusOr<std::string> ReadAll() override {
    if (unreadable) return absl::DataLossError("reading the journal failed: I/O error");
    return content;
  }
  absl::Status Append(std::string_view record) override {
    if (disk_full) {
      content.append(record.substr(0, record.size() / 2));
      return absl::ResourceExhaustedError("appending to the journal failed: no space left");
    }
    content.append(record);
    ++appends;
    return absl::OkStatus();
  }
  absl::Status Replace(std::string_view text) override {
    if (disk_full) return absl::ResourceExhaustedError("replacing the journal failed: no space");
    content = text;
    ++replacements;
    return absl::OkStatus();
  }
  std::string machine_boot_id() const override { return boot_id; }
  std::string place_id() const override { return place; }

  std::string content;
  std::string boot_id = "boot-1";
  std::string place = "place-1";
  bool unreadable = false;
  bool disk_full = false;
  int appends = 0;
  int replacements = 0;
};

}  // namespace callboard::tests
