// Finds DCCs by dcc-mcp's FileRegistry: watches its folder, tells which rows live. Never writes.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "backend_agent/discovery/registry_row.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/lifetime.h"

namespace callboard::agent {

struct FileRegistryConfig {
  std::string folder;  // where services.json is, or will be
  absl::Duration poll = absl::Seconds(2);
  size_t file_bytes_max = 16 << 20;  // a larger file counts as corrupted
};

// A row lives if its process is there (pid, host_pid where given) and its sentinel is locked (where
// given and there). While the file cannot be read or understood, or is empty (a writer that does
// not rename is at it), the former rows stay; their liveness is looked at all the same. A damaged
// file is read again soon, and complained of only then. Loop thread only. Callbacks come from the
// loop, never inline.
class FileRegistry {
 public:
  struct Callbacks {
    absl::AnyInvocable<void(const RegistryRow&)> on_row;       // new or changed
    absl::AnyInvocable<void(const RegistryRow&)> on_row_gone;  // removed, or its owner is dead
    absl::AnyInvocable<void(std::string_view)> log;            // each complaint once
  };

  FileRegistry(core::AsioEventLoop& loop, FileRegistryConfig config, Callbacks callbacks);
  ~FileRegistry();

  void Start();

  // Rows told by on_row and not gone, by instance_id.
  const std::map<std::string, RegistryRow>& rows() const { return rows_; }

 private:
  class FolderWatch;

  void Read();
  bool ReadFile(std::map<std::string, RegistryRow>& found);
  void Complain(const std::string& text);

  core::AsioEventLoop& loop_;
  FileRegistryConfig config_;
  Callbacks callbacks_;
  std::map<std::string, RegistryRow> written_;  // as last read, dead or alive
  std::map<std::string, RegistryRow> rows_;
  std::set<std::string> complaints_;
  int damaged_ = 0;  // readings in a row
  std::unique_ptr<FolderWatch> watch_;
  core::Timer timer_;
  core::Lifetime lifetime_;
};

// The folder dcc-mcp uses by default: $DCC_MCP_REGISTRY_DIR, else dcc-mcp-registry in the folder
// for temporary files.
std::string DefaultRegistryFolder();

}  // namespace callboard::agent
