// Implementation of StdioChild: fork and exec, pipes on Asio, the end by pidfd.
#include "backend_agent/backends/stdio_child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_split.h"
#include "core/runtime/status_macros.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace asio = boost::asio;

namespace {

constexpr size_t kReadBytes = 64 * 1024;
// Output that is still read after the leader's end, in case a grandchild keeps the pipe open.
constexpr absl::Duration kDrainWait = absl::Milliseconds(100);
// For kernels without pidfd.
constexpr absl::Duration kPollEnd = absl::Milliseconds(20);

absl::Status SystemError(std::string_view what, const std::string& program) {
  return core::MakeError(absl::StatusCode::kInternal,
                         fmt::format("{} for '{}': {}", what, program, std::strerror(errno)));
}

// Whether there is such a program, as execvpe looks for it.
absl::Status CheckProgram(const std::string& program) {
  const auto missing = [&](std::string_view why) {
    return core::MakeError(absl::StatusCode::kNotFound,
                           fmt::format("cannot run '{}': {}", program, why));
  };
  if (program.find('/') != std::string::npos) {
    return access(program.c_str(), X_OK) == 0 ? absl::OkStatus() : missing(std::strerror(errno));
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path == nullptr ? "/bin:/usr/bin" : path, ':')) {
    const std::string place =
        fmt::format("{}/{}", folder.empty() ? "." : core::ToStd(folder), program);
    if (access(place.c_str(), X_OK) == 0) return absl::OkStatus();
  }
  return missing("command not found");
}

// Signals of the agent that a fresh program must not inherit as ignored or blocked.
void ResetSignals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void RunChild(const int (&ends)[3], pid_t parent, const char* directory,
                           char* const* arguments, char* const* environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  ResetSignals();
  for (int i = 0; i < 3; ++i) {
    if (dup2(ends[i], i) < 0) _exit(127);
  }
  if (directory == nullptr || chdir(directory) == 0) execvpe(arguments[0], arguments, environment);
  const char* cause = strerrordesc_np(errno);
  for (const char* part : {"cannot run '", static_cast<const char*>(arguments[0]),
                           "': ", cause == nullptr ? "unknown error" : cause, "\n"}) {
    if (write(2, part, strlen(part)) < 0) break;
  }
  _exit(127);
}

// Outlives us by a moment: reads a pipe that nobody writes, and when our end of it has closed with
// us ends the group, which a parent-death signal reaches the leader of only.
constexpr const char* kWardenScript =
    "trap '' HUP INT TERM; read -r nothing; kill -s KILL -- \"-$1\" 2>/dev/null";

// The warden's pid; 0 if there is none, then only the leader dies with us.
pid_t StartWarden(pid_t group, int pipe_end) {
  const std::string number = fmt::format("{}", group);
  const char* const arguments[] = {"sh",           "-c",   kWardenScript, "callboard-warden",
                                   number.c_str(), nullptr};
  const pid_t pid = fork();
  if (pid != 0) return pid < 0 ? 0 : pid;
  setsid();
  ResetSignals();
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (dup2(pipe_end, 0) == 0 && dup2(nowhere, 1) == 1 && dup2(nowhere, 2) == 2) {
    execv("/bin/sh", const_cast<char* const*>(arguments));
  }
  _exit(127);
}

}  // namespace

struct StdioChild::State : std::enable_shared_from_this<StdioChild::State> {
  State(core::AsioEventLoop& event_loop, Callbacks given)
      : loop(event_loop),
        callbacks(std::move(given)),
        input(event_loop.io()),
        output(event_loop.io()),
        error(event_loop.io()),
        end_of_process(event_loop.io()) {}

  using Stream = asio::posix::stream_descriptor;
  struct Queued {
    std::string bytes;
    absl::AnyInvocable<void()> written;
  };

  void Begin() {
    ReadMore(output, output_buffer, output_open, &Callbacks::on_output);
    ReadMore(error, error_buffer, error_open, &Callbacks::on_error);
    WaitForEnd();
  }

  void ReadMore(Stream& stream, std::array<char, kReadBytes>& buffer, bool& open,
                absl::AnyInvocable<void(std::string_view)> Callbacks::* callback) {
    open = true;
    stream.async_read_some(asio::buffer(buffer),
                           [self = shared_from_this(), &stream, &buffer, &open, callback](
                               const boost::system::error_code& ec, size_t size) {
                             if (self->dropped) return;
                             if (ec) {
                               open = false;
                               self->EndIfDrained();
                               return;
                             }
                             (self->callbacks.*callback)(std::string_view(buffer.data(), size));
                             if (!self->dropped) self->ReadMore(stream, buffer, open, callback);
                           });
  }

  void WriteMore() {
    if (writing || queue.empty() || !input.is_open()) return;
    writing = true;
    asio::async_write(input, asio::buffer(queue.front().bytes),
                      [self = shared_from_this()](const boost::system::error_code& ec, size_t) {
                        self->writing = false;
                        if (self->dropped) return;
                        if (ec) {
                          // Nobody reads any more; the end of the process tells the rest.
                          self->queue.clear();
                          self->queued_bytes = 0;
                          return;
                        }
                        self->queued_bytes -= self->queue.front().bytes.size();
                        auto written = std::move(self->queue.front().written);
                        self->queue.pop_front();
                        if (written) written();
                        if (!self->dropped) self->WriteMore();
                      });
  }

  void WaitForEnd() {
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) {
      PollForEnd();
      return;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    end_of_process.assign(fd);
    end_of_process.async_wait(Stream::wait_read,
                              [self = shared_from_this()](const boost::system::error_code& ec) {
                                if (!ec && !self->dropped) self->Reap();
                              });
  }

  void PollForEnd() {
    poll_timer = loop.After(kPollEnd, [this] {
      if (!Reap()) PollForEnd();
    });
  }

  bool Reap() {
    siginfo_t info{};
    // The group goes first: as long as the leader is not reaped its number cannot be another's.
    if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      return false;
    }
    kill(-pid, SIGKILL);
    waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    reaped = true;
    DismissWarden();
    if (info.si_code == CLD_EXITED) {
      end.exit_status = info.si_status;
    } else {
      end.exit_signal = info.si_status;
    }
    drain_timer = loop.After(kDrainWait, [this] {
      output_open = error_open = false;
      EndIfDrained();
    });
    EndIfDrained();
    return true;
  }

  // The group has ended, and its number may soon be another's.
  void DismissWarden() {
    if (warden > 0) {
      kill(warden, SIGKILL);
      waitid(P_PID, static_cast<id_t>(warden), nullptr, WEXITED);
      warden = 0;
    }
    if (warden_pipe >= 0) close(std::exchange(warden_pipe, -1));
  }

  void EndIfDrained() {
    if (!reaped || output_open || error_open || ended) return;
    ended = true;
    drain_timer.Cancel();
    loop.Post([self = shared_from_this()] {
      if (!self->dropped) self->callbacks.on_end(self->end);
    });
  }

  void Drop() {
    dropped = true;
    poll_timer.Cancel();
    drain_timer.Cancel();
    if (!reaped) {
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL);
      // It has been killed: this does not wait for long.
      waitid(P_PID, static_cast<id_t>(pid), nullptr, WEXITED);
      reaped = true;
      DismissWarden();
    }
    boost::system::error_code ignored;
    input.close(ignored);
    output.close(ignored);
    error.close(ignored);
    end_of_process.close(ignored);
    queue.clear();
  }

  core::AsioEventLoop& loop;
  Callbacks callbacks;
  pid_t pid = 0;
  pid_t warden = 0;
  int warden_pipe = -1;  // our end; it closes with us
  Stream input;
  Stream output;
  Stream error;
  Stream end_of_process;
  std::array<char, kReadBytes> output_buffer;
  std::array<char, kReadBytes> error_buffer;
  bool output_open = false;
  bool error_open = false;
  std::deque<Queued> queue;
  size_t queued_bytes = 0;
  bool writing = false;
  bool reaped = false;
  bool ended = false;
  bool dropped = false;
  ProcessEnd end;
  core::Timer poll_timer;
  core::Timer drain_timer;
};

absl::StatusOr<std::unique_ptr<StdioChild>> StdioChild::Spawn(core::AsioEventLoop& loop,
                                                              const StdioCommand& command,
                                                              Callbacks callbacks) {
  if (command.arguments.empty()) {
    return absl::InvalidArgumentError("no program is given for a stdio backend");
  }
  const std::string& program = command.arguments.front();
  if (command.working_directory.empty()) CALLBOARD_RETURN_IF_ERROR(CheckProgram(program));
  // Everything that allocates is done before the fork.
  std::vector<char*> arguments;
  arguments.reserve(command.arguments.size() + 1);
  for (const std::string& argument : command.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto replaced = [&](const auto& added) {
      return text.size() > added.first.size() && text.starts_with(added.first) &&
             text[added.first.size()] == '=';
    };
    bool kept = true;
    for (const auto& added : command.environment) kept = kept && !replaced(added);
    if (kept) variables.emplace_back(text);
  }
  for (const auto& [name, value] : command.environment) {
    variables.push_back(fmt::format("{}={}", name, value));
  }
  std::vector<char*> environment;
  environment.reserve(variables.size() + 1);
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  // Standard streams, and the warden's.
  int pipes[4][2] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
  absl::Cleanup close_pipes = [&] {
    for (auto& ends : pipes) {
      for (int end : ends) {
        if (end >= 0) close(end);
      }
    }
  };
  for (auto& ends : pipes) {
    if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("cannot make a pipe", program);
  }
  const int child_ends[3] = {pipes[0][0], pipes[1][1], pipes[2][1]};
  const pid_t parent = getpid();
  const char* directory =
      command.working_directory.empty() ? nullptr : command.working_directory.c_str();
  const pid_t pid = fork();
  if (pid < 0) return SystemError("cannot make a process", program);
  if (pid == 0) RunChild(child_ends, parent, directory, arguments.data(), environment.data());
  // Both sides do it, so that the group exists whoever comes first.
  setpgid(pid, pid);

  auto state = std::make_shared<State>(loop, std::move(callbacks));
  state->pid = pid;
  state->warden = StartWarden(pid, pipes[3][0]);
  state->warden_pipe = std::exchange(pipes[3][1], -1);
  state->input.assign(std::exchange(pipes[0][1], -1));
  state->output.assign(std::exchange(pipes[1][0], -1));
  state->error.assign(std::exchange(pipes[2][0], -1));
  state->Begin();
  return std::unique_ptr<StdioChild>(new StdioChild(std::move(state)));
}

StdioChild::~StdioChild() { state_->Drop(); }

absl::Status StdioChild::Write(std::string bytes, absl::AnyInvocable<void()> written) {
  if (state_->queued_bytes + bytes.size() > kUnwrittenMax) {
    return core::MakeError(
        absl::StatusCode::kResourceExhausted,
        fmt::format("{} bytes wait for the backend to read them and {} more are too many; {} may",
                    state_->queued_bytes, bytes.size(), kUnwrittenMax));
  }
  state_->queued_bytes += bytes.size();
  state_->queue.push_back({std::move(bytes), std::move(written)});
  state_->WriteMore();
  return absl::OkStatus();
}

void StdioChild::Terminate() {
  if (state_->reaped) return;
  boost::system::error_code ignored;
  state_->input.close(ignored);
  kill(-state_->pid, SIGTERM);
}

void StdioChild::Kill() {
  if (!state_->reaped) kill(-state_->pid, SIGKILL);
}

int64_t StdioChild::pid() const { return state_->pid; }

}  // namespace callboard::agent
