// What SQLite reports, as a sentence for people: what failed, on which file, why, and what helps.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

struct sqlite3;

namespace callboard::server {

// FailedPrecondition: the store cannot be opened, so callboardd cannot start. For SQLite's own
// codes and for errno of the calls around it.
absl::Status OpeningFault(const std::string& path, sqlite3* db);
absl::Status OpeningFaultErrno(const std::string& path, int error);
// FailedPrecondition with a reason that SQLite knows nothing of.
absl::Status OpeningFault(const std::string& path, std::string_view why, std::string_view help);
// The same reason wherever damage is found; `finding` is the first line of SQLite's check.
absl::Status DamagedFile(const std::string& path, std::string_view finding);

// Unavailable: a running store could not be written or read; it may be well again later.
absl::Status RunningFault(const std::string& path, std::string_view verb, sqlite3* db);
absl::Status FullDisk(const std::string& path);

}  // namespace callboard::server
