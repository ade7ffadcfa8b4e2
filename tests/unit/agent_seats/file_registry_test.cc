// Tests of discovery in a real folder: locks, processes, damaged files.
#include "backend_agent/discovery/file_registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "fmt/format.h"

namespace callboard::agent {
namespace {

class FileRegistryTest : public testing::Test {
 protected:
  FileRegistryTest() {
    char folder[] = "/tmp/callboard_registry_XXXXXX";
    folder_ = mkdtemp(folder);
    registry_ = std::make_unique<FileRegistry>(
        loop_, FileRegistryConfig{.folder = folder_, .poll = absl::Milliseconds(200)},
        FileRegistry::Callbacks{
            .on_row = [this](const RegistryRow& row) { told_ += "+" + row.instance_id + " "; },
            .on_row_gone = [this](const RegistryRow& row) { told_ += "-" + row.instance_id + " "; },
            .log = [this](std::string_view line) { log_.emplace_back(line); }});
  }
  ~FileRegistryTest() override {
    registry_.reset();
    std::filesystem::remove_all(folder_);
  }

  // An owner's lock on its sentinel.
  int Lock(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
    return fd;
  }
  std::string Row(const std::string& id, const std::string& sentinel, int64_t pid) {
    return fmt::format(R"({{"dcc_type":"blender","instance_id":"{}","host":"localhost",)"
                       R"("port":9401,"sentinel_path":"{}/{}","pid":{}}})",
                       id, folder_, sentinel, pid);
  }
  void Write(const std::string& text) {
    std::ofstream(folder_ + "/.tmp.services.json") << text;
    std::filesystem::rename(folder_ + "/.tmp.services.json", folder_ + "/services.json");
  }

  core::AsioEventLoop loop_;
  core::Timer tick_;
  std::string folder_;
  std::string told_;
  std::vector<std::string> log_;
  std::unique_ptr<FileRegistry> registry_;
};

TEST_F(FileRegistryTest, FollowsLocksAndDamage) {
  // One run of the loop, step by step.
  const int lock = Lock("a.lock");
  const int dead = Lock("b.lock");
  close(dead);
  Write("[" + Row("a", "a.lock", getpid()) + "," + Row("b", "b.lock", getpid()) + "]");
  registry_->Start();
  int step = 0;
  std::function<void()> check = [&] {
    if (step == 0 && told_ == "+a ") {
      step = 1;
      Write("[{ damaged");
    } else if (step == 1 && !log_.empty()) {
      step = 2;
      EXPECT_EQ(registry_->rows().size(), 1u);
      EXPECT_NE(log_[0].find("the former rows stay"), std::string::npos);
      close(lock);
    } else if (step == 2 && told_ == "+a -a ") {
      step = 3;
      loop_.Stop();
    }
    tick_ = loop_.After(absl::Milliseconds(5), [&] { check(); });
  };
  check();
  auto limit = loop_.After(absl::Seconds(10), [&] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(step, 3) << told_;
}

TEST_F(FileRegistryTest, ARowOfAProcessThatIsNotThereIsDead) {
  const int lock = Lock("a.lock");
  Write("[" + Row("a", "a.lock", 0x3FFFFFFF) + "," + Row("b", "a.lock", getpid()) + "]");
  registry_->Start();
  auto limit = loop_.After(absl::Milliseconds(300), [&] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(told_, "+b ");
  close(lock);
}

TEST_F(FileRegistryTest, AnAbsentFileIsNoComplaint) {
  registry_->Start();
  auto limit = loop_.After(absl::Milliseconds(50), [&] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(told_, "");
  EXPECT_TRUE(log_.empty());
}

}  // namespace
}  // namespace callboard::agent
