// Rows of dcc-mcp's FileRegistry as text: both on-disk forms, tolerant of what is missing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace callboard::agent {

// One registered DCC. `raw` is its JSON as written, heartbeat included; it does not count in ==.
struct RegistryRow {
  std::string dcc_type;
  std::string instance_id;
  std::string host;  // always a loopback address
  uint16_t port = 0;
  std::string mcp_url;  // with `host`, so that one place has one name
  std::string
      connect_host;  // "::1" or "localhost" where the row says so: the server may be on ::1 only
  int64_t pid = 0;   // of the process that serves; 0: not given
  int64_t host_pid = 0;  // of the DCC if that is another one
  std::string version;
  std::string scene;
  std::string sentinel_path;
  std::string display_name;
  std::string raw;

  bool operator==(const RegistryRow& other) const;
};

struct RegistryRows {
  std::vector<RegistryRow> rows;
  // One line for each row that was left out and why; `__gateway__` rows are left out silently.
  std::vector<std::string> ignored;
};

// InvalidArgument: the text is no JSON, or neither an array of rows nor an object of rows. Empty
// text (a file just made) has no rows. Zero bytes after a whole text, as a power cut leaves them,
// are passed over.
absl::StatusOr<RegistryRows> ParseRegistry(std::string_view text);

}  // namespace callboard::agent
