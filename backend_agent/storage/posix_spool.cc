// Implementation of PosixSpool.
#include "backend_agent/storage/posix_spool.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

// What the spool, its writers and its files share: the folder's files and their sizes.
struct PosixSpool::Folder {
  std::string path;
  uint64_t bytes_max = 0;
  uint64_t bytes = 0;
  uint64_t next_number = 1;
  std::map<std::string, uint64_t> size_by_name;

  std::string PathOf(const std::string& name) const { return path + "/" + name; }
  void Drop(const std::string& name) {
    auto it = size_by_name.find(name);
    if (it == size_by_name.end()) return;
    unlink(PathOf(name).c_str());
    bytes -= it->second;
    size_by_name.erase(it);
  }
};

namespace {

constexpr std::string_view kSuffix = ".body";

absl::Status SystemError(std::string_view what, const std::string& path) {
  const int error = errno;
  auto code = absl::StatusCode::kUnavailable;
  if (error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE) {
    code = absl::StatusCode::kResourceExhausted;
  } else if (error == ENOENT) {
    code = absl::StatusCode::kNotFound;
  }
  return core::MakeError(code, fmt::format("{} '{}' failed: {}", what, path, strerror(error)));
}

class MappedFile final : public SpoolFile {
 public:
  MappedFile(std::shared_ptr<PosixSpool::Folder> folder, std::string name, const char* data,
             size_t size, bool kept)
      : folder_(std::move(folder)), name_(std::move(name)), data_(data), size_(size), kept_(kept) {}
  ~MappedFile() override {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
    if (!kept_) folder_->Drop(name_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view view() const override { return {data_, size_}; }
  const std::string& name() const override { return name_; }
  void Keep() override { kept_ = true; }

 private:
  std::shared_ptr<PosixSpool::Folder> folder_;
  std::string name_;
  const char* data_;
  size_t size_;
  bool kept_;
};

// nullptr when the file is empty or cannot be mapped; `size` is what is mapped.
const char* Map(int fd, size_t size) {
  if (size == 0) return nullptr;
  void* memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<const char*>(memory);
}

class FileWriter final : public SpoolWriter {
 public:
  FileWriter(std::shared_ptr<PosixSpool::Folder> folder, std::string name, int fd)
      : folder_(std::move(folder)), name_(std::move(name)), fd_(fd) {}
  ~FileWriter() override {
    if (fd_ < 0) return;
    close(fd_);
    folder_->Drop(name_);
  }
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  absl::Status Append(std::string_view bytes) override {
    if (bytes.size() > folder_->bytes_max - std::min(folder_->bytes, folder_->bytes_max)) {
      return core::MakeError(
          absl::StatusCode::kResourceExhausted,
          fmt::format("the spool '{}' holds {} of {} bytes, {} more do not fit", folder_->path,
                      folder_->bytes, folder_->bytes_max, bytes.size()));
    }
    while (!bytes.empty()) {
      const ssize_t written = write(fd_, bytes.data(), bytes.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return SystemError("writing", folder_->PathOf(name_));
      }
      folder_->bytes += static_cast<uint64_t>(written);
      folder_->size_by_name[name_] += static_cast<uint64_t>(written);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  std::shared_ptr<SpoolFile> Finish() override {
    const size_t written = static_cast<size_t>(folder_->size_by_name[name_]);
    const char* data = Map(fd_, written);
    close(std::exchange(fd_, -1));
    return std::make_shared<MappedFile>(folder_, name_, data, data == nullptr ? 0 : written, false);
  }

 private:
  std::shared_ptr<PosixSpool::Folder> folder_;
  std::string name_;
  int fd_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PosixSpool>> PosixSpool::Open(std::string path, uint64_t bytes_max) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return SystemError("creating", path);
  DIR* listing = opendir(path.c_str());
  if (listing == nullptr) return SystemError("listing", path);
  auto folder = std::make_shared<Folder>();
  folder->path = std::move(path);
  folder->bytes_max = bytes_max;
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    struct stat info{};
    if (!name.ends_with(kSuffix) || stat(folder->PathOf(name).c_str(), &info) != 0) continue;
    folder->size_by_name[name] = static_cast<uint64_t>(info.st_size);
    folder->bytes += static_cast<uint64_t>(info.st_size);
    folder->next_number =
        std::max<uint64_t>(folder->next_number, std::strtoull(name.c_str(), nullptr, 10) + 1);
  }
  closedir(listing);
  return std::unique_ptr<PosixSpool>(new PosixSpool(std::move(folder)));
}

PosixSpool::PosixSpool(std::shared_ptr<Folder> folder) : folder_(std::move(folder)) {}
PosixSpool::~PosixSpool() = default;

absl::StatusOr<std::unique_ptr<SpoolWriter>> PosixSpool::Create() {
  const std::string name = fmt::format("{}{}", folder_->next_number++, kSuffix);
  const std::string path = folder_->PathOf(name);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return SystemError("creating", path);
  folder_->size_by_name[name] = 0;
  return std::make_unique<FileWriter>(folder_, name, fd);
}

absl::StatusOr<std::shared_ptr<SpoolFile>> PosixSpool::OpenKept(const std::string& name) {
  auto it = folder_->size_by_name.find(name);
  if (it == folder_->size_by_name.end()) {
    return core::MakeError(absl::StatusCode::kNotFound,
                           fmt::format("the spool '{}' has no file '{}'", folder_->path, name));
  }
  const std::string path = folder_->PathOf(name);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError("opening", path);
  const size_t size = static_cast<size_t>(it->second);
  const char* data = Map(fd, size);
  if (data == nullptr && size > 0) {
    absl::Status status = SystemError("mapping", path);
    close(fd);
    return status;
  }
  close(fd);
  return std::make_shared<MappedFile>(folder_, name, data, size, true);
}

void PosixSpool::Remove(const std::string& name) { folder_->Drop(name); }

void PosixSpool::RemoveAllBut(const std::vector<std::string>& names) {
  std::vector<std::string> gone;
  for (const auto& [name, size] : folder_->size_by_name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) gone.push_back(name);
  }
  for (const std::string& name : gone) folder_->Drop(name);
}

uint64_t PosixSpool::bytes() const { return folder_->bytes; }
uint64_t PosixSpool::bytes_max() const { return folder_->bytes_max; }

}  // namespace callboard::agent
