// Implementation of PayloadBuilder.
#include "backend_agent/spool.h"

#include <algorithm>

#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {
namespace {

// Appends `bytes` with every raw line feed and carriage return replaced by a space.
void AppendAsOneLine(std::string_view bytes, std::string& text) {
  const size_t start = text.size();
  text.append(bytes);
  // Most texts are one line: two searches are several times cheaper than a look at each byte.
  for (const char feed : {'\n', '\r'}) {
    for (size_t at = text.find(feed, start); at != std::string::npos;
         at = text.find(feed, at + 1)) {
      text[at] = ' ';
    }
  }
}

}  // namespace

absl::Status PayloadBuilder::Append(std::string_view bytes) {
  size_ += bytes.size();
  if (!failure_.ok()) return failure_;
  if (size_ > bytes_max_) {
    failure_ = core::MakeError(
        absl::StatusCode::kResourceExhausted,
        fmt::format("the message has {} bytes or more, {} are allowed", size_, bytes_max_));
  } else if (file_ == nullptr && size_ <= kInlineBodyMax) {
    AppendAsOneLine(bytes, memory_);
    return absl::OkStatus();
  } else {
    if (file_ == nullptr) {
      auto created = spool_.Create();
      if (created.ok()) {
        file_ = *std::move(created);
        failure_ = file_->Append(memory_);
      } else {
        failure_ = created.status();
      }
      memory_.clear();
    }
    if (failure_.ok()) {
      AppendAsOneLine(bytes, memory_);
      failure_ = file_->Append(memory_);
      memory_.clear();
    }
  }
  if (!failure_.ok()) {
    memory_ = std::string();
    file_.reset();
  }
  return failure_;
}

Payload PayloadBuilder::Take() {
  size_ = 0;
  failure_ = absl::OkStatus();
  if (file_ != nullptr) {
    auto file = std::move(file_);
    return Payload(file->Finish());
  }
  return Payload(std::exchange(memory_, std::string()));
}

}  // namespace callboard::agent
