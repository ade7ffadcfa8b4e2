// Tests of discovery in a real folder: locks, processes, damaged files.
#include "backend_agent/discovery/file_registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "tests/support/temporary_folder.h"

namespace callboard::agent {
namespace {

class FileRegistryTest : public testing::Test {
 protected:
  FileRegistryTest() {
    registry_ = std::make_unique<FileRegistry>(
        loop_, FileRegistryConfig{.folder = folder_, .poll = absl::Milliseconds(200)},
        FileRegistry::Callbacks{
            .on_row = [this](const RegistryRow& row) { told_ += "+" + row.instance_id + " "; },
            .on_row_gone = [this](const RegistryRow& row) { told_ += "-" + row.instance_id + " "; },
            .log = [this](std::string_view line) { log_.emplace_back(line); }});
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
  const tests::TemporaryFolder own_folder_;
  const std::string folder_ = own_folder_.path();
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

TEST_F(FileRegistryTest, AHalfWrittenOrEmptyFileKeepsTheRowsAndIsReadAgainWithoutAComplaint) {
  const int lock = Lock("a.lock");
  const std::string row = "[" + Row("a", "a.lock", getpid()) + "]";
  Write(row);
  registry_->Start();
  const std::string path = folder_ + "/services.json";
  // Writers that do not rename: several pieces, the file cut to nothing in between.
  int step = 0;
  std::function<void()> write = [&] {
    if (step == 60) return loop_.Stop();
    if (step % 3 == 0) {
      std::ofstream(path, std::ios::trunc).flush();
    } else if (step % 3 == 1) {
      std::ofstream(path, std::ios::trunc) << row.substr(0, 30);
    } else {
      std::ofstream(path, std::ios::trunc) << row;
    }
    ++step;
    tick_ = loop_.After(absl::Milliseconds(15), [&] { write(); });
  };
  tick_ = loop_.After(absl::Milliseconds(100), [&] { write(); });
  auto limit = loop_.After(absl::Seconds(10), [&] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(step, 60);
  EXPECT_EQ(told_, "+a ");
  close(lock);
}

TEST_F(FileRegistryTest, AFileOfZeroBytesKeepsTheRowsAndIsSaidToBeDamaged) {
  const int lock = Lock("a.lock");
  Write("[" + Row("a", "a.lock", getpid()) + "]");
  registry_->Start();
  tick_ = loop_.After(absl::Milliseconds(100), [&] { Write(std::string(4096, '\0')); });
  auto limit = loop_.After(absl::Milliseconds(600), [&] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(told_, "+a ");
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_NE(log_[0].find("damaged (nothing but zero bytes); the former rows stay"),
            std::string::npos);
  close(lock);
}

TEST_F(FileRegistryTest, ManyWritersAtOnceLeaveNoRowOut) {
  const int lock = Lock("a.lock");
  registry_->Start();
  // Each writes the whole table by rename, as adapters do, heartbeats and all.
  std::vector<pid_t> writers;
  std::string all = Row("r0", "a.lock", getpid());
  for (int i = 1; i < 4; ++i) all += "," + Row(fmt::format("r{}", i), "a.lock", getpid());
  for (int i = 0; i < 4; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      for (int k = 0; k < 200; ++k) {
        const std::string name = fmt::format("{}/.tmp.{}.services.json", folder_, i);
        std::ofstream(name) << "[" << all << "]";
        std::filesystem::rename(name, folder_ + "/services.json");
      }
      _exit(0);
    }
    writers.push_back(pid);
  }
  const std::string expected = "+r0 +r1 +r2 +r3 ";
  const absl::Time limit = loop_.Now() + absl::Seconds(10);
  core::Timer timer;
  std::function<void()> look = [&] {
    if (told_ == expected || loop_.Now() > limit) return loop_.Stop();
    timer = loop_.After(absl::Milliseconds(100), [&] { look(); });
  };
  timer = loop_.After(absl::Milliseconds(700), [&] { look(); });
  loop_.Run();
  for (const pid_t pid : writers) waitpid(pid, nullptr, 0);
  EXPECT_EQ(told_, expected);
  EXPECT_TRUE(log_.empty());
  close(lock);
}

TEST_F(FileRegistryTest, AZombieIsDeadThoughItsNumberAndItsLockAreThere) {
  const int lock = Lock("a.lock");
  const pid_t zombie = fork();
  if (zombie == 0) _exit(0);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT);
  ASSERT_EQ(kill(zombie, 0), 0);
  Write("[" + Row("a", "a.lock", zombie) + "," + Row("b", "a.lock", getpid()) + "]");
  registry_->Start();
  auto limit = loop_.After(absl::Milliseconds(300), [&] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(told_, "+b ");
  waitpid(zombie, nullptr, 0);
  close(lock);
}

TEST_F(FileRegistryTest, DeadRowsWithAFreeLockStayInTheFileAsTheyAre) {
  close(Lock("a.lock"));
  const std::string text = "[" + Row("a", "a.lock", getpid()) + "]";
  Write(text);
  registry_->Start();
  auto limit = loop_.After(absl::Milliseconds(500), [&] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(told_, "");
  std::ifstream file(folder_ + "/services.json");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/a.lock"));
}

TEST_F(FileRegistryTest, FC37_AnotherInstanceOnTheSamePortIsToldAfterTheEndOfTheFormer) {
  const int lock_a = Lock("a.lock");
  Write("[" + Row("a", "a.lock", getpid()) + "]");
  registry_->Start();
  int lock_b = -1;
  tick_ = loop_.After(absl::Milliseconds(100), [&] {
    close(lock_a);
    lock_b = Lock("b.lock");
    // The row of the dead one is still there.
    Write("[" + Row("b", "b.lock", getpid()) + "," + Row("a", "a.lock", getpid()) + "]");
  });
  auto limit = loop_.After(absl::Milliseconds(500), [&] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(told_, "+a -a +b ");
  close(lock_b);
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
