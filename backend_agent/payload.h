// A JSON text of any size as the agent holds it: in memory when small, in a spool file when large.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace callboard::agent {

// Bodies up to this size stay in memory and travel inline (wire.md 2).
inline constexpr size_t kInlineBodyMax = 64 * 1024;

// A file of the spool, mapped for reading. Deleted when the last reference goes, unless Keep() was
// called because the journal refers to it. Loop thread only.
class SpoolFile {
 public:
  virtual ~SpoolFile() = default;
  // All bytes written so far; valid while the file lives and nothing is appended.
  virtual std::string_view view() const = 0;
  // Name within the spool, as the journal records it.
  virtual const std::string& name() const = 0;
  // Outlives its references and the process until Spool::Remove().
  virtual void Keep() = 0;
};

// Immutable, cheap to copy.
class Payload {
 public:
  Payload() = default;
  explicit Payload(std::string text)
      : memory_(std::make_shared<const std::string>(std::move(text))), size_(memory_->size()) {}
  explicit Payload(std::shared_ptr<SpoolFile> file)
      : file_(std::move(file)), size_(file_->view().size()) {}

  std::string_view view() const {
    if (file_ != nullptr) return file_->view().substr(offset_, size_);
    if (memory_ != nullptr) return std::string_view(*memory_).substr(offset_, size_);
    return {};
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::shared_ptr<SpoolFile>& file() const { return file_; }
  size_t offset() const { return offset_; }

  // A part that shares the storage. `part` must be a view into view().
  Payload Part(std::string_view part) const {
    Payload copy = *this;
    copy.offset_ = offset_ + static_cast<size_t>(part.data() - view().data());
    copy.size_ = part.size();
    return copy;
  }

 private:
  std::shared_ptr<const std::string> memory_;
  std::shared_ptr<SpoolFile> file_;
  size_t offset_ = 0;
  size_t size_ = 0;
};

}  // namespace callboard::agent
