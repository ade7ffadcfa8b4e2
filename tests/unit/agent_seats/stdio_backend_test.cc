// Tests with real child processes: junk, crashes, groups, full pipes.
#include "backend_agent/backends/stdio_backend.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <functional>

#include "backend_agent/discovery/linux_process_watcher.h"
#include "core/mcp/json.h"
#include "fmt/format.h"
#include "tests/support/memory_spool.h"

namespace callboard::agent {
namespace {

class StdioBackendTest : public testing::Test, public Backend::Events {
 protected:
  void Begin(const std::string& script, StdioBackendConfig config = {}) {
    config.command.arguments = {"/bin/sh", "-c", script};
    config.name = "child";
    backend_ = std::make_unique<StdioBackend>(
        loop_, random_, spool_, std::move(config),
        [this](std::string_view line) { log_ += std::string(line) + "|"; });
    backend_->Start(this);
  }
  // Runs the loop until `done`, at most ten seconds.
  void Run(std::function<bool()> done) {
    std::function<void()> check = [&] {
      if (done()) return loop_.Stop();
      tick_ = loop_.After(absl::Milliseconds(2), [&] { check(); });
    };
    tick_ = loop_.After(absl::ZeroDuration(), [&] { check(); });
    limit_ = loop_.After(absl::Seconds(10), [this] { loop_.Stop(); });
    loop_.Run();
    EXPECT_TRUE(done()) << log_;
    // The loop may run once more.
    loop_.io().restart();
  }

  void OnUp() override {
    ++ups_;
    if (on_up_) on_up_();
  }
  void OnDown(BackendExit exit) override {
    exit_ = exit;
    ++downs_;
  }
  void OnRejoined() override {}
  void OnSessionForgotten() override {}
  void OnMessage(Payload message, uint64_t) override { messages_.emplace_back(message.view()); }
  void OnExchangeEnd(uint64_t id, absl::Status status, bool) override {
    ends_.emplace_back(id, status);
  }

  core::AsioEventLoop loop_;
  core::SeededRandom random_{1};
  tests::MemorySpool spool_;
  core::Timer tick_;
  core::Timer limit_;
  std::string log_;
  std::vector<std::string> messages_;
  std::vector<std::pair<uint64_t, absl::Status>> ends_;
  std::function<void()> on_up_;
  BackendExit exit_;
  int ups_ = 0;
  int downs_ = 0;
  std::unique_ptr<StdioBackend> backend_;
};

TEST_F(StdioBackendTest, CarriesLinesAndToleratesJunk) {
  Begin(R"(echo 'Blender 5.0'; echo; echo '{broken'; echo warning >&2; read line; echo "$line")");
  on_up_ = [this] {
    if (ups_ == 1) backend_->Send(5, R"({"jsonrpc":"2.0","id":5,"result":{}})", false, {});
  };
  Run([this] { return !messages_.empty() && log_.find("warning") != std::string::npos; });
  EXPECT_EQ(messages_[0], R"({"jsonrpc":"2.0","id":5,"result":{}})");
  EXPECT_NE(log_.find("Blender 5.0|{broken|"), std::string::npos) << log_;
  EXPECT_EQ(ends_.at(0).first, 5u);
  EXPECT_TRUE(ends_.at(0).second.ok());
}

TEST_F(StdioBackendTest, TellsHowTheChildEndedAndSpawnsItAgain) {
  Begin("read line; echo dying >&2; kill -SEGV $$");
  on_up_ = [this] {
    if (ups_ == 1) backend_->Send(7, R"({"jsonrpc":"2.0","id":7,"method":"x"})", true, {});
  };
  Run([this] { return downs_ == 1 && ups_ == 2; });
  EXPECT_TRUE(exit_.process_ended);
  EXPECT_EQ(exit_.exit_signal, SIGSEGV);
  EXPECT_NE(exit_.detail.find("was killed by signal 11 (SIGSEGV)"), std::string::npos);
  EXPECT_EQ(ends_.at(0).first, 7u);
  EXPECT_EQ(ends_.at(0).second.code(), absl::StatusCode::kUnavailable);
}

TEST_F(StdioBackendTest, FC08_AProgramThatIsNotThereIsNamedAndHasHadNoProcess) {
  const auto begin = [this](std::string program) {
    StdioBackendConfig config;
    config.name = "gone";
    config.command.arguments = {std::move(program)};
    downs_ = 0;
    backend_ = std::make_unique<StdioBackend>(loop_, random_, spool_, config, nullptr);
    backend_->Start(this);
    Run([this] { return downs_ == 1; });
  };
  begin("/no/such/program");
  EXPECT_EQ(exit_.detail, "cannot run '/no/such/program': No such file or directory");
  EXPECT_FALSE(exit_.process_ended);
  begin("no-such-program");
  EXPECT_EQ(exit_.detail, "cannot run 'no-such-program': command not found");
  EXPECT_EQ(ups_, 0);
}

TEST_F(StdioBackendTest, GrandchildrenDieWithTheLeader) {
  Begin("sleep 600 & echo \"{\\\"pid\\\":$!}\"; read line; exit 3");
  Run([&] { return !log_.empty(); });
  const int64_t grandchild = core::FindInteger(log_.substr(0, log_.size() - 1), "pid").value_or(0);
  ASSERT_GT(grandchild, 0);
  ASSERT_EQ(kill(static_cast<pid_t>(grandchild), 0), 0);
  bool ended = false;
  LinuxProcessWatcher watcher(loop_);
  auto watch = watcher.Watch(grandchild, [&](ProcessEnd) { ended = true; });
  backend_->Send(1, "{}", false, {});
  Run([&] { return ended && downs_ == 1; });
  EXPECT_EQ(exit_.exit_status, 3);
}

TEST_F(StdioBackendTest, StopEndsTheChildInOrderAndKillsADeafOne) {
  StdioBackendConfig config;
  config.stop_grace = absl::Milliseconds(100);
  Begin("trap '' TERM; echo '{}'; while true; do sleep 1; done", std::move(config));
  Run([this] { return !log_.empty(); });
  const int64_t pid = backend_->pid();
  bool stopped = false;
  backend_->Stop([&] { stopped = true; });
  Run([&] { return stopped; });
  EXPECT_NE(kill(static_cast<pid_t>(pid), 0), 0);
  EXPECT_EQ(downs_, 0);
}

TEST_F(StdioBackendTest, LargeLinesGoThroughTheSpoolAndTooLargeOnesEndTheirCall) {
  StdioBackendConfig config;
  config.result_bytes_max = 300'000;
  Begin(R"sh(read line
python3 -c 'print("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"x\":\"" + "a" * 200000 + "\"}}")'
python3 -c 'print("{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{\"x\":\"" + "a" * 400000 + "\"}}")'
python3 -c 'print("{\"result\":{\"x\":\"" + "a" * 400000 + "\"},\"jsonrpc\":\"2.0\",\"id\": 5}")'
read line)sh",
        std::move(config));
  on_up_ = [this] {
    for (uint64_t id : {3, 4, 5}) {
      backend_->Send(id, fmt::format(R"({{"jsonrpc":"2.0","id":{},"method":"x"}})", id), true, {});
    }
  };
  Run([this] { return ends_.size() == 2; });
  ASSERT_EQ(messages_.size(), 1u);
  EXPECT_GT(messages_[0].size(), 200'000u);
  EXPECT_EQ(ends_[0].first, 4u);
  EXPECT_EQ(ends_[1].first, 5u);
  EXPECT_EQ(ends_[0].second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ends_[0].second.message(), "result of 400042 bytes exceeds the limit of 300000 bytes");
}

TEST_F(StdioBackendTest, AChildThatDoesNotReadBlocksNobody) {
  Begin("echo '{}'; exec sleep 600");
  Run([this] { return !log_.empty(); });
  const std::string big(5 << 20, 'x');
  for (uint64_t id = 1; id <= 4; ++id) backend_->Send(id, big, true, {});
  Run([this] { return !ends_.empty(); });
  EXPECT_EQ(ends_[0].first, 4u);
  EXPECT_NE(ends_[0].second.message().find("wait for the backend to read them"),
            absl::string_view::npos);
}

TEST_F(StdioBackendTest, AChildThatDoesNotInitializeInTimeIsKilled) {
  StdioBackendConfig config;
  config.start_timeout = absl::Milliseconds(100);
  Begin("sleep 600", std::move(config));
  Run([this] { return downs_ == 1; });
  EXPECT_EQ(exit_.exit_signal, SIGKILL);
  EXPECT_NE(exit_.detail.find("had not answered initialize"), std::string::npos);
}

// ---- field cases ------------------------------------------------------------------------------

// A server in a few lines: answers every request with its own id; `extra` runs before each answer.
std::string Server(const std::string& before, const std::string& extra) {
  return "exec python3 -u -c '\nimport sys,json\n" + before +
         "\nfor line in sys.stdin:\n  message=json.loads(line)\n" + extra +
         "\n  print(json.dumps({\"jsonrpc\":\"2.0\",\"id\":message[\"id\"],\"result\":{}}))'";
}

class FieldCaseStdio : public StdioBackendTest {
 protected:
  // Sends `count` requests one after another once the child is up.
  void SendOneByOne(uint64_t count) {
    count_ = count;
    on_up_ = [this] { Request(1); };
  }
  void OnMessage(Payload message, uint64_t exchange) override {
    StdioBackendTest::OnMessage(std::move(message), exchange);
    slowest_ = std::max(slowest_, loop_.Now() - sent_);
    if (messages_.size() < count_) Request(messages_.size() + 1);
  }
  void Request(uint64_t id) {
    sent_ = loop_.Now();
    backend_->Send(id, fmt::format(R"({{"jsonrpc":"2.0","id":{},"method":"x"}})", id), true, {});
  }

  uint64_t count_ = 0;
  absl::Time sent_;
  absl::Duration slowest_;
};

TEST_F(FieldCaseStdio, FC13_ForeignLinesAreDroppedCountedAndLoggedOnce) {
  SendOneByOne(5);
  Begin(Server(R"(print("BANNER 1.0"))",
               R"(
  if message["id"]==3: print("warning: something")
  if message["id"]==4: print("x"*200000)
  if message["id"]==5: print("{\"no\":\"rpc\"}"); print("17"); print("\"text\""))"));
  Run([this] { return messages_.size() == 5; });
  EXPECT_EQ(backend_->foreign_lines(), 6u);
  EXPECT_EQ(log_, "BANNER 1.0|warning: something|" + std::string(200, 'x') +
                      "|{\"no\":\"rpc\"}|17|\"text\"|");
}

TEST_F(FieldCaseStdio, FC14_AFloodOfStderrIsDrainedAndItsNewestPartKept) {
  const absl::Time began = loop_.Now();
  SendOneByOne(21);
  Begin(Server(R"(
def flood(n):
  for i in range(n // 64): sys.stderr.write("%063d\n" % i)
flood(1 << 20))",
               R"(
  flood(1 << 16))"));
  Run([this] { return messages_.size() == 21; });
  EXPECT_LT(slowest_, absl::Seconds(5));
  EXPECT_LE(backend_->log_bytes(), 64u * 1024);
  // The agent's own log keeps room for others.
  const auto told = std::count(log_.begin(), log_.end(), '|');
  EXPECT_LE(told, 101 * (1 + absl::ToInt64Seconds(loop_.Now() - began)));
  kill(static_cast<pid_t>(backend_->pid()), SIGABRT);
  Run([this] { return downs_ == 1; });
  EXPECT_NE(exit_.detail.find("its last words: " + std::string(59, '0') + "1023"),
            std::string::npos)
      << exit_.detail;
}

TEST_F(FieldCaseStdio, FC33_AWrapperAndAGrandchildThatIgnoreSigtermAreGoneAfterStop) {
  StdioBackendConfig config;
  config.stop_grace = absl::Milliseconds(200);
  Begin(
      "trap '' TERM; sh -c \"trap '' TERM; sleep 600\" & echo "
      "\"{\\\"method\\\":\\\"n\\\",\\\"jsonrpc\\\":"
      "\\\"2.0\\\",\\\"params\\\":{\\\"pid\\\":$!}}\"; wait; sleep 600",
      std::move(config));
  Run([this] { return !messages_.empty(); });
  const auto grandchild =
      core::FindInteger(*core::FindMember(messages_[0], "params"), "pid").value_or(0);
  ASSERT_GT(grandchild, 0);
  const int64_t child = backend_->pid();
  bool ended = false;
  LinuxProcessWatcher watcher(loop_);
  auto watch = watcher.Watch(grandchild, [&](ProcessEnd) { ended = true; });
  bool stopped = false;
  backend_->Stop([&] { stopped = true; });
  Run([&] { return ended && stopped; });
  EXPECT_NE(kill(static_cast<pid_t>(child), 0), 0);  // not even a zombie
}

TEST_F(FieldCaseStdio, FC33_NothingIsLeftWhenTheAgentIsKilled) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  // An agent of its own, to be killed.
  const pid_t agent = fork();
  if (agent == 0) {
    core::AsioEventLoop loop;
    StdioCommand command;
    command.arguments = {"/bin/sh", "-c", "trap '' TERM; sleep 600 & echo $$ $!; wait"};
    auto child = StdioChild::Spawn(loop, command,
                                   {.on_output =
                                        [&](std::string_view bytes) {
                                          if (write(pipe_ends[1], bytes.data(), bytes.size()) < 0) {
                                            _exit(1);
                                          }
                                        },
                                    .on_error = [](std::string_view) {},
                                    .on_end = [](ProcessEnd) {}});
    loop.Run();
    _exit(0);
  }
  char text[64] = {};
  ASSERT_GT(read(pipe_ends[0], text, sizeof(text) - 1), 0);
  int leader = 0;
  int grandchild = 0;
  ASSERT_EQ(sscanf(text, "%d %d", &leader, &grandchild), 2);
  int ended = 0;
  LinuxProcessWatcher watcher(loop_);
  auto one = watcher.Watch(leader, [&](ProcessEnd) { ++ended; });
  auto two = watcher.Watch(grandchild, [&](ProcessEnd) { ++ended; });
  kill(agent, SIGKILL);
  Run([&] { return ended == 2; });
  waitpid(agent, nullptr, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(FieldCaseStdio, ASlowStarterIsWaitedForWhileItPrintsNothing) {
  SendOneByOne(1);
  Begin(Server("import time; time.sleep(1.5)", ""));
  Run([this] { return messages_.size() == 1; });
  EXPECT_EQ(downs_, 0);
  EXPECT_GT(slowest_, absl::Seconds(1));
}

TEST_F(FieldCaseStdio, ACrashAtStartIsTriedAgainWithGrowingWaits) {
  StdioBackendConfig config;
  config.restart_first = absl::Milliseconds(20);
  config.restart_max = absl::Milliseconds(400);
  Begin("echo broken >&2; exit 7", std::move(config));
  Run([this] { return downs_ == 6; });
  EXPECT_EQ(exit_.exit_status, 7);
  EXPECT_NE(exit_.detail.find("ended with exit status 7; its last words: broken"),
            std::string::npos);
}

TEST(LinuxProcessWatcher, TellsTheSignalOfAProcessWithinAHundredMilliseconds) {
  core::AsioEventLoop loop;
  LinuxProcessWatcher watcher(loop);
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  ProcessEnd end;
  absl::Time noticed;
  auto watch = watcher.Watch(pid, [&](ProcessEnd how) {
    end = how;
    noticed = loop.Now();
    loop.Stop();
  });
  const absl::Time killed = loop.Now();
  kill(pid, SIGKILL);
  auto limit = loop.After(absl::Seconds(10), [&] { loop.Stop(); });
  loop.Run();
  EXPECT_EQ(end.exit_signal, SIGKILL);
  EXPECT_LT(noticed - killed, absl::Milliseconds(100));
  waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace callboard::agent
