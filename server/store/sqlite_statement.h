// A prepared statement of SQLite that is finalized by its owner.
#pragma once

#include <sqlite3.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace callboard::server {

// Before SQLite is asked for what may fail: errno tells why, and nobody clears it.
inline void ForgetSystemError() { errno = 0; }

// On the thread that has the connection at the time; gone before the connection. What it returns as
// a view is valid until the next Step or Reset.
class SqliteStatement {
 public:
  SqliteStatement() = default;
  // Check ok() before use; the connection has the error.
  SqliteStatement(sqlite3* db, const char* sql) {
    sqlite3_stmt* statement = nullptr;
    ForgetSystemError();
    sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    statement_.reset(statement);
  }

  bool ok() const { return statement_ != nullptr; }

  // Parameters count from 1; the bytes must live until Reset.
  void Bind(int parameter, std::string_view bytes) {
    sqlite3_bind_blob64(statement_.get(), parameter, bytes.data() == nullptr ? "" : bytes.data(),
                        bytes.size(), SQLITE_STATIC);
  }
  void BindText(int parameter, std::string_view text) {
    sqlite3_bind_text64(statement_.get(), parameter, text.data() == nullptr ? "" : text.data(),
                        text.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
  void Bind(int parameter, int64_t number) {
    sqlite3_bind_int64(statement_.get(), parameter, number);
  }

  // SQLITE_ROW, SQLITE_DONE or an error.
  int Step() {
    ForgetSystemError();
    return sqlite3_step(statement_.get());
  }
  void Reset() { sqlite3_reset(statement_.get()); }
  // One row that says nothing: true when it went well.
  bool Run() {
    const int code = Step();
    Reset();
    return code == SQLITE_DONE || code == SQLITE_ROW;
  }

  // Columns count from 0.
  std::string_view Bytes(int column) {
    const void* bytes = sqlite3_column_blob(statement_.get(), column);
    const int size = sqlite3_column_bytes(statement_.get(), column);
    return bytes == nullptr
               ? std::string_view()
               : std::string_view(static_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  int64_t Number(int column) { return sqlite3_column_int64(statement_.get(), column); }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

}  // namespace callboard::server
