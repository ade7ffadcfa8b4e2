// Implementation of the journal's records.
#include "backend_agent/journal_record.h"

#include <array>

namespace callboard::agent {
namespace {

constexpr size_t kPrefixBytes = 8;  // length of what follows, CRC-32 of it

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0);
    table[i] = value;
  }
  return table;
}

void PutNumber(std::string& out, size_t at, uint64_t value, size_t width) {
  for (size_t i = 0; i < width; ++i) out[at + i] = static_cast<char>((value >> (8 * i)) & 0xff);
}

uint64_t GetNumber(std::string_view bytes, size_t width) {
  uint64_t value = 0;
  for (size_t i = 0; i < width; ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace

uint32_t Crc32(std::string_view bytes) {
  static constexpr auto kTable = MakeCrcTable();
  uint32_t crc = 0xffffffffu;
  for (char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return crc ^ 0xffffffffu;
}

RecordWriter::RecordWriter(std::string& out, RecordKind kind) : out_(out), start_(out.size()) {
  out_.append(kPrefixBytes, '\0');
  U8(static_cast<uint8_t>(kind));
}

RecordWriter& RecordWriter::U8(uint8_t value) {
  out_.push_back(static_cast<char>(value));
  return *this;
}

RecordWriter& RecordWriter::U32(uint32_t value) {
  out_.append(4, '\0');
  PutNumber(out_, out_.size() - 4, value, 4);
  return *this;
}

RecordWriter& RecordWriter::U64(uint64_t value) {
  out_.append(8, '\0');
  PutNumber(out_, out_.size() - 8, value, 8);
  return *this;
}

RecordWriter& RecordWriter::Text(std::string_view value) {
  U32(static_cast<uint32_t>(value.size()));
  out_.append(value);
  return *this;
}

void RecordWriter::Finish() {
  const auto fields = std::string_view(out_).substr(start_ + kPrefixBytes);
  PutNumber(out_, start_, fields.size(), 4);
  PutNumber(out_, start_ + 4, Crc32(fields), 4);
}

uint64_t RecordReader::Number(size_t width) {
  if (left_.size() < width) {
    ok_ = false;
    left_ = {};
    return 0;
  }
  const uint64_t value = GetNumber(left_, width);
  left_.remove_prefix(width);
  return value;
}

uint8_t RecordReader::U8() { return static_cast<uint8_t>(Number(1)); }
uint32_t RecordReader::U32() { return static_cast<uint32_t>(Number(4)); }
uint64_t RecordReader::U64() { return Number(8); }

std::string_view RecordReader::Text() {
  const uint32_t size = U32();
  if (left_.size() < size) {
    ok_ = false;
    left_ = {};
    return {};
  }
  const std::string_view text = left_.substr(0, size);
  left_.remove_prefix(size);
  return text;
}

bool TakeRecord(std::string_view& journal, RecordKind& kind, RecordReader& fields) {
  if (journal.size() < kPrefixBytes + 1) return false;
  const size_t size = static_cast<size_t>(GetNumber(journal, 4));
  if (size == 0 || size > journal.size() - kPrefixBytes) return false;
  const std::string_view text = journal.substr(kPrefixBytes, size);
  if (Crc32(text) != GetNumber(journal.substr(4), 4)) return false;
  fields = RecordReader(text);
  kind = static_cast<RecordKind>(fields.U8());
  journal.remove_prefix(kPrefixBytes + size);
  return true;
}

}  // namespace callboard::agent
