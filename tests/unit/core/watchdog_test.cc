// Tests of the watchdog: a loop that hangs, one that is busy, a process that is stopped; the lag.
#include "core/runtime/watchdog.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "core/runtime/asio_event_loop.h"

namespace callboard::core {
namespace {

using namespace std::chrono_literals;

constexpr absl::Duration kLimit = absl::Milliseconds(300);
constexpr int kHung = 7;

void HoldThisThread(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

void TellAndExit(absl::Duration silent) {
  std::fprintf(stderr, "hung for %.1f s\n", absl::ToDoubleSeconds(silent));
  _exit(kHung);
}

// Runs a loop with a watchdog for `time`; `work` runs on it after a few beats.
template <class Work>
void RunLoop(absl::Duration time, Work work) {
  AsioEventLoop loop;
  Watchdog watchdog(loop, kLimit, TellAndExit);
  const Timer begin = loop.After(absl::Milliseconds(50), work);
  const Timer end = loop.After(time, [&loop] { loop.Stop(); });
  loop.Run();
}

TEST(WatchdogDeathTest, ALoopThatHangsIsReportedWithItsAge) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(RunLoop(absl::Seconds(20), [] { HoldThisThread(20s); }),
              testing::ExitedWithCode(kHung), R"(hung for 0\.[3-9] s)");
}

TEST(Watchdog, ABusyLoopIsNotHung) {
  AsioEventLoop loop;
  absl::Duration silent = absl::ZeroDuration();
  Watchdog watchdog(loop, absl::Seconds(1), [&](absl::Duration age) { silent = age; });
  Timer next;
  std::function<void()> work = [&] {
    HoldThisThread(80ms);
    next = loop.After(absl::ZeroDuration(), work);
  };
  next = loop.After(absl::ZeroDuration(), work);
  const Timer end = loop.After(absl::Seconds(2), [&loop] { loop.Stop(); });
  loop.Run();
  EXPECT_EQ(silent, absl::ZeroDuration());
}

TEST(Watchdog, AProcessThatWasStoppedIsNotHung) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    RunLoop(absl::Milliseconds(600), [&ready] { (void)!write(ready[1], "r", 1); });
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  HoldThisThread(1500ms);
  kill(child, SIGCONT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(Watchdog, TellsHowLateTheLoopWas) {
  AsioEventLoop loop;
  Watchdog watchdog(loop, absl::Seconds(1), TellAndExit);
  const Timer work = loop.After(absl::Milliseconds(60), [] { HoldThisThread(300ms); });
  absl::Duration lag;
  const Timer end = loop.After(absl::Milliseconds(500), [&] {
    lag = watchdog.loop_lag();
    loop.Stop();
  });
  loop.Run();
  EXPECT_GE(lag, absl::Milliseconds(200));
  EXPECT_LT(lag, absl::Seconds(1));
}

TEST(Watchdog, WithoutALimitItOnlyMeasures) {
  AsioEventLoop loop;
  Watchdog watchdog(loop, absl::ZeroDuration(), TellAndExit);
  const Timer end = loop.After(absl::Milliseconds(20), [&loop] { loop.Stop(); });
  loop.Run();
  EXPECT_EQ(watchdog.loop_lag(), absl::ZeroDuration());
}

}  // namespace
}  // namespace callboard::core
