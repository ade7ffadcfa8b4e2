// SQLite's disk with faults on demand: stands between SQLite and the system for a test.
#pragma once

#include <sqlite3.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace callboard::tests {

// While one exists, the connections that are opened go through it. One at a time; it outlives them.
// The faults may be changed from any thread.
class FaultyDisk {
 public:
  FaultyDisk() {
    system_ = sqlite3_vfs_find(nullptr);
    FailWrites(SQLITE_OK);
    file_fault_ = SQLITE_OK;
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

  // Every write ends with that code of SQLite (SQLITE_FULL, SQLITE_IOERR_WRITE) and leaves that
  // errno, unless it is 0; SQLITE_OK: none.
  void FailWrites(int code, int error = 0) {
    write_error_ = error;
    write_fault_ = code;
  }
  // The same for the file alone, which leaves its write-ahead log well.
  void FailWritesOfTheFile(int code) { file_fault_ = code; }
  int syncs() const { return syncs_; }

 private:
  // The system's methods differ by what a file is; `faulty` is first so that a file tells the rest.
  struct Methods {
    sqlite3_io_methods faulty;
    const sqlite3_io_methods* system;
    bool of_the_file;
  };
  static const Methods& MethodsOf(sqlite3_file* file) {
    return *reinterpret_cast<const Methods*>(file->pMethods);
  }

  static int Open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out) {
    const int code = system_->xOpen(system_, name, file, flags, out);
    if (file->pMethods == nullptr) return code;
    for (Methods& methods : methods_) {
      if (methods.system == nullptr) {
        methods.system = file->pMethods;
        methods.of_the_file = (flags & SQLITE_OPEN_MAIN_DB) != 0;
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
    const Methods& methods = MethodsOf(file);
    if (write_fault_ != SQLITE_OK) {
      if (write_error_ != 0) errno = write_error_;
      return write_fault_;
    }
    if (file_fault_ != SQLITE_OK && methods.of_the_file) return file_fault_;
    return methods.system->xWrite(file, bytes, count, offset);
  }
  static int Sync(sqlite3_file* file, int flags) {
    ++syncs_;
    return MethodsOf(file).system->xSync(file, flags);
  }

  static inline sqlite3_vfs* system_ = nullptr;
  static inline sqlite3_vfs front_;
  static inline std::array<Methods, 4> methods_ = {};
  static inline std::atomic<int> write_fault_{SQLITE_OK};
  static inline std::atomic<int> write_error_{0};
  static inline std::atomic<int> file_fault_{SQLITE_OK};
  static inline std::atomic<int> syncs_{0};
};

}  // namespace callboard::tests
