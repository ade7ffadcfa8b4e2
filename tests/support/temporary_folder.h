// A new folder of a test's own, gone with everything in it at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace callboard::tests {

// In the system's folder for such things (TEST_TMPDIR, TMPDIR). Owner's thread.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(testing::TempDir() + "callboard-XXXXXX") {
    // Replaces the six letters by what makes the name new.
    EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace callboard::tests
