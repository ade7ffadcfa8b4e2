// SQLite's disk with faults on demand: stands between SQLite and the system for a test.
#pragma once

#include <sqlite3.h>

#include <array>
#include <atomic>

namespace callboard::tests {

// While one exists, the connections that are opened go through it. One at a time; it outlives them.
// The faults may be changed from any thread.
class FaultyDisk {
 public:
  FaultyDisk() {
    system_ = sqlite3_vfs_find(nullptr);
    write_fault_ = SQLITE_OK;
    syncs_ = 0;
    front_ = *system_;
    front_.zName = "faulty";
    front_.pNext = nullptr;
    front_.xOpen = &Open;
    sqlite3_vfs_register(&front_, /*makeDflt=*/1);
  }
  ~FaultyDisk() {
    sqlite3_vfs_unregister(&front_);
    sqlite3_vfs_register(system_, /*makeDflt=*/1);
  }
  FaultyDisk(const FaultyDisk&) = delete;
  FaultyDisk& operator=(const FaultyDisk&) = delete;

  // Every write ends with that code of SQLite (SQLITE_FULL, SQLITE_IOERR_WRITE); SQLITE_OK: none.
  void FailWrites(int code) { write_fault_ = code; }
  int syncs() const { return syncs_; }

 private:
  // The system's methods differ by what a file is; `faulty` is first so that a file tells the rest.
  struct Methods {
    sqlite3_io_methods faulty;
    const sqlite3_io_methods* system;
  };
  static const sqlite3_io_methods& System(sqlite3_file* file) {
    return *reinterpret_cast<const Methods*>(file->pMethods)->system;
  }

  static int Open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out) {
    const int code = system_->xOpen(system_, name, file, flags, out);
    if (file->pMethods == nullptr) return code;
    for (Methods& methods : methods_) {
      if (methods.system == nullptr) {
        methods.system = file->pMethods;
        methods.faulty = *file->pMethods;
        methods.faulty.xWrite = &Write;
        methods.faulty.xSync = &Sync;
      }
      if (methods.system != file->pMethods) continue;
      file->pMethods = &methods.faulty;
      return code;
    }
    return code;
  }
  static int Write(sqlite3_file* file, const void* bytes, int count, sqlite3_int64 offset) {
    const int fault = write_fault_;
    return fault != SQLITE_OK ? fault : System(file).xWrite(file, bytes, count, offset);
  }
  static int Sync(sqlite3_file* file, int flags) {
    ++syncs_;
    return System(file).xSync(file, flags);
  }

  static inline sqlite3_vfs* system_ = nullptr;
  static inline sqlite3_vfs front_;
  static inline std::array<Methods, 4> methods_ = {};
  static inline std::atomic<int> write_fault_{SQLITE_OK};
  static inline std::atomic<int> syncs_{0};
};

}  // namespace callboard::tests
