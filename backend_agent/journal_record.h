// One record of the agent's journal as bytes: length, CRC-32 and fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace callboard::agent {

// The first byte of a record. Numbers are never given twice.
enum class RecordKind : uint8_t {
  kHeader = 1,
  kStarted = 2,
  kFinished = 3,
  kJob = 4,
  kSettled = 5,
  kIncarnation = 6,
};

uint32_t Crc32(std::string_view bytes);

// Appends one record to `out`: the fields in the order given, completed by Finish().
class RecordWriter {
 public:
  RecordWriter(std::string& out, RecordKind kind);
  RecordWriter& U8(uint8_t value);
  RecordWriter& U32(uint32_t value);
  RecordWriter& U64(uint64_t value);
  RecordWriter& Text(std::string_view value);
  void Finish();

 private:
  std::string& out_;
  size_t start_;
};

// Reads the fields of one record. After a read beyond its end ok() is false and values are zero.
class RecordReader {
 public:
  RecordReader() = default;
  explicit RecordReader(std::string_view fields) : left_(fields) {}

  uint8_t U8();
  uint32_t U32();
  uint64_t U64();
  std::string_view Text();
  bool ok() const { return ok_; }

 private:
  uint64_t Number(size_t width);

  std::string_view left_;
  bool ok_ = true;
};

// Takes the first record off `journal` and returns true; false at its end, and at a record that is
// torn or damaged (`journal` is then not empty).
bool TakeRecord(std::string_view& journal, RecordKind& kind, RecordReader& fields);

}  // namespace callboard::agent
