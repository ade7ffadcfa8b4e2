// Settings of a program from a TOML file, the environment and the command line, every error at
// once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace callboard::core {

// Usage: add the sources (a later one wins), Read() each key into its variable, then Finish(). A
// variable keeps its value when its key is not set, so it is initialised with the default. Errors
// are collected, those of the sources too: Finish() names each key, its value, where it came from
// and what is expected, and every key that nobody read. Main thread only.
class Settings {
 public:
  // TOML 1.0. Tables become dotted keys: [budgets] queue = "10m" is "budgets.queue".
  void AddFile(const std::string& path);
  // NAME=VALUE pairs whose name begins with `prefix`: CALLBOARD_BUDGETS__QUEUE=10m is
  // "budgets.queue" ("__" separates tables).
  void AddEnvironment(std::string_view prefix, char** environment);
  // "budgets.queue=10m".
  void AddAssignment(std::string_view assignment);

  void Read(std::string_view key, std::string* value);
  // One of a few words.
  void ReadChoice(std::string_view key, std::string* value,
                  std::span<const std::string_view> words);
  void Read(std::string_view key, bool* value);
  // Integers within [min, max].
  void Read(std::string_view key, int64_t* value, int64_t min, int64_t max);
  // "250ms", "10s", "10m", "8h"; not negative.
  void Read(std::string_view key, absl::Duration* value);
  // Durations with commas between them: "60s,100s".
  void Read(std::string_view key, std::vector<absl::Duration>* value);
  // Bytes: "65536", "64KiB", "1MiB", "2GiB".
  void ReadBytes(std::string_view key, uint64_t* value);
  // Every key under "<table>.", without that prefix.
  void ReadTable(std::string_view table, std::map<std::string, std::string>* value);

  // What was read: each key with the value it has now and where that came from ("default" if
  // nobody set it), in the order of reading. For values without a fault.
  struct Effective {
    std::string key;
    std::string value;
    std::string source;
  };
  const std::vector<Effective>& effective() const { return effective_; }
  // Adds a value that follows from others; `source` says from which.
  void Derive(std::string key, std::string value, std::string source);

  // InvalidArgument with one line per error. `also`: what is wrong between the values.
  absl::Status Finish(std::initializer_list<absl::Status> also = {}) const;

 private:
  struct Entry {
    std::string value;
    std::string source;
    bool used = false;
  };
  Entry* Take(std::string_view key);
  void Note(std::string_view key, std::string value);
  void Complain(std::string_view key, const Entry& entry, std::string_view expected);

  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<std::string> known_;
  std::vector<std::string> errors_;
  std::vector<Effective> effective_;
};

}  // namespace callboard::core
