// The agent's journal as a file of the state folder.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backend_agent/agent.h"

namespace callboard::agent {

// One file, held open and locked (through `<path>.lock`) against a second agent in the same state
// folder. Loop thread only; every write is synchronous and without fsync: it survives a killed
// process, not a lost host. The file's size is bounded by who writes it (CallJournal).
class PosixJournalFile final : public JournalFile {
 public:
  // FailedPrecondition: another process holds the journal.
  static absl::StatusOr<std::unique_ptr<PosixJournalFile>> Open(std::string path);
  ~PosixJournalFile() override;
  PosixJournalFile(const PosixJournalFile&) = delete;
  PosixJournalFile& operator=(const PosixJournalFile&) = delete;

  absl::StatusOr<std::string> ReadAll() override;
  absl::Status Append(std::string_view record) override;
  absl::Status Replace(std::string_view content) override;
  std::string machine_boot_id() const override { return machine_boot_id_; }
  // Device and number of the lock file, which stays while the journal is written anew.
  std::string place_id() const override { return place_id_; }

 private:
  PosixJournalFile(std::string path, int fd, int lock_fd, std::string machine_boot_id,
                   std::string place_id);

  std::string path_;
  int fd_;
  int lock_fd_;
  std::string machine_boot_id_;
  std::string place_id_;
};

}  // namespace callboard::agent
