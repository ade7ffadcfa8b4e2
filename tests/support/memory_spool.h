// A Spool that keeps its files in memory, for unit tests and the simulation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend_agent/spool.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::tests {

// What a folder is to a process: it outlives the agents of a test, which leave kept files behind.
// Files may outlive it. Bounded by `bytes_max`.
class MemorySpool final : public agent::Spool {
 public:
  explicit MemorySpool(uint64_t bytes_max = 1ull << 30) : files_(std::make_shared<Files>()) {
    files_->bytes_max = bytes_max;
  }

  absl::StatusOr<std::unique_ptr<agent::SpoolWriter>> Create() override {
    const std::string name = fmt::format("{:08}", ++files_->created);
    files_->content[name] = std::make_shared<std::string>();
    return std::make_unique<Writer>(files_, name);
  }
  absl::StatusOr<std::shared_ptr<agent::SpoolFile>> OpenKept(const std::string& name) override {
    auto it = files_->content.find(name);
    if (it == files_->content.end()) {
      return core::MakeError(absl::StatusCode::kNotFound, fmt::format("no spool file '{}'", name));
    }
    return std::make_shared<File>(files_, name, it->second, true);
  }
  void Remove(const std::string& name) override { files_->Drop(name); }
  void RemoveAllBut(const std::vector<std::string>& names) override {
    std::vector<std::string> gone;
    for (const auto& [name, text] : files_->content) {
      if (std::find(names.begin(), names.end(), name) == names.end()) gone.push_back(name);
    }
    for (const std::string& name : gone) files_->Drop(name);
  }
  uint64_t bytes() const override { return files_->bytes; }
  uint64_t bytes_max() const override { return files_->bytes_max; }

  // From now on nothing more than this fits.
  void set_bytes_max(uint64_t bytes_max) { files_->bytes_max = bytes_max; }
  size_t file_count() const { return files_->content.size(); }

 private:
  struct Files {
    std::map<std::string, std::shared_ptr<std::string>> content;
    uint64_t bytes = 0;
    uint64_t bytes_max = 0;
    uint64_t created = 0;

    void Drop(const std::string& name) {
      auto it = content.find(name);
      if (it == content.end()) return;
      bytes -= it->second->size();
      content.erase(it);
    }
  };

  class File final : public agent::SpoolFile {
   public:
    File(std::shared_ptr<Files> files, std::string name, std::shared_ptr<std::string> text,
         bool kept)
        : files_(std::move(files)), name_(std::move(name)), text_(std::move(text)), kept_(kept) {}
    ~File() override {
      if (!kept_) files_->Drop(name_);
    }
    std::string_view view() const override { return *text_; }
    const std::string& name() const override { return name_; }
    void Keep() override { kept_ = true; }

   private:
    std::shared_ptr<Files> files_;
    std::string name_;
    std::shared_ptr<std::string> text_;
    bool kept_;
  };

  class Writer final : public agent::SpoolWriter {
   public:
    Writer(std::shared_ptr<Files> files, std::string name)
        : files_(std::move(files)), name_(std::move(name)), text_(files_->content[name_]) {}
    ~Writer() override {
      if (!finished_) files_->Drop(name_);
    }
    absl::Status Append(std::string_view bytes) override {
      if (files_->bytes + bytes.size() > files_->bytes_max) {
        return core::MakeError(absl::StatusCode::kResourceExhausted,
                               fmt::format("the spool holds {} of {} bytes, {} more do not fit",
                                           files_->bytes, files_->bytes_max, bytes.size()));
      }
      text_->append(bytes);
      files_->bytes += bytes.size();
      return absl::OkStatus();
    }
    std::shared_ptr<agent::SpoolFile> Finish() override {
      finished_ = true;
      return std::make_shared<File>(files_, name_, text_, false);
    }

   private:
    std::shared_ptr<Files> files_;
    std::string name_;
    std::shared_ptr<std::string> text_;
    bool finished_ = false;
  };

  std::shared_ptr<Files> files_;
};

}  // namespace callboard::tests
