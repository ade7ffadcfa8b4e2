// Implementation of ProcessStreams on Asio's descriptors.
#include "apps/stdio/process_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/runtime/strings.h"

namespace callboard::apps {
namespace {

namespace asio = boost::asio;

constexpr size_t kReadBytes = 64 * 1024;
// One write gathers so many lines.
constexpr size_t kLinesGathered = 64;

absl::StatusOr<int> Duplicate(int fd, std::string_view name) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (copy >= 0) return copy;
  return core::MakeError(absl::StatusCode::kInternal,
                         fmt::format("{} cannot be used: {}", name, std::strerror(errno)));
}

}  // namespace

// Held by the operations under way, too; `dropped` ends them.
struct ProcessStreams::State : std::enable_shared_from_this<State> {
  State(core::AsioEventLoop& loop, size_t line_bytes_max, size_t unsent_max, int in, int out)
      : input(loop.io(), in),
        output(loop.io(), out),
        input_flags(fcntl(in, F_GETFL)),
        output_flags(fcntl(out, F_GETFL)),
        unsent_bytes_max(unsent_max),
        splitter(line_bytes_max) {}

  void Read() {
    if (reading || ended || dropped || unsent > unsent_bytes_max) return;
    reading = true;
    input.async_read_some(
        asio::buffer(buffer),
        [self = shared_from_this()](const boost::system::error_code& error, size_t count) {
          self->reading = false;
          if (!self->dropped) self->OnRead(error, count);
        });
  }

  void OnRead(const boost::system::error_code& error, size_t count) {
    const auto on_line = [this](std::string line) {
      if (!dropped) callbacks.on_line(std::move(line));
    };
    const auto on_too_long = [this](LineSplitter::TooLong line) {
      if (!dropped) callbacks.on_too_long(std::move(line));
    };
    splitter.Feed({buffer.data(), count}, on_line, on_too_long);
    if (!error) return Read();
    // The end, or a terminal that went: both say that the client has gone.
    ended = true;
    splitter.End(on_line, on_too_long);
    if (!dropped) callbacks.on_end();
  }

  void Write() {
    if (writing || gone || dropped || lines.empty()) return;
    writing = true;
    std::swap(lines, under_way);
    if (under_way.size() > kLinesGathered) {
      lines.assign(std::make_move_iterator(under_way.begin() + kLinesGathered),
                   std::make_move_iterator(under_way.end()));
      under_way.resize(kLinesGathered);
    }
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(under_way.size());
    for (const std::string& line : under_way) buffers.push_back(asio::buffer(line));
    asio::async_write(output, buffers,
                      [self = shared_from_this()](const boost::system::error_code& error, size_t) {
                        self->writing = false;
                        if (!self->dropped) self->OnWritten(error);
                      });
  }

  void OnWritten(const boost::system::error_code& error) {
    for (const std::string& line : std::exchange(under_way, {})) unsent -= line.size();
    if (error) {
      gone = true;
      lines.clear();
      unsent = 0;
      return callbacks.on_output_gone();
    }
    Write();
    Read();
    callbacks.on_written();
  }

  void Drop() {
    dropped = true;
    // Others may have the same open file, e.g. a shell its terminal.
    fcntl(input.native_handle(), F_SETFL, input_flags);
    fcntl(output.native_handle(), F_SETFL, output_flags);
    boost::system::error_code ignored;
    input.close(ignored);
    output.close(ignored);
  }

  asio::posix::stream_descriptor input;
  asio::posix::stream_descriptor output;
  const int input_flags;
  const int output_flags;
  const size_t unsent_bytes_max;
  Callbacks callbacks;
  LineSplitter splitter;
  std::array<char, kReadBytes> buffer;
  std::vector<std::string> lines;      // to be written, each with its line feed
  std::vector<std::string> under_way;  // of the write under way
  size_t unsent = 0;
  bool reading = false;
  bool writing = false;
  bool ended = false;
  bool gone = false;
  bool dropped = false;
};

absl::StatusOr<std::unique_ptr<ProcessStreams>> ProcessStreams::Take(core::AsioEventLoop& loop,
                                                                     size_t line_bytes_max,
                                                                     size_t unsent_bytes_max) {
  auto in = Duplicate(STDIN_FILENO, "stdin");
  if (!in.ok()) return in.status();
  auto out = Duplicate(STDOUT_FILENO, "stdout");
  if (!out.ok()) {
    close(*in);
    return out.status();
  }
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return std::unique_ptr<ProcessStreams>(new ProcessStreams(
      std::make_shared<State>(loop, line_bytes_max, unsent_bytes_max, *in, *out)));
}

ProcessStreams::~ProcessStreams() { state_->Drop(); }

void ProcessStreams::Start(Callbacks callbacks) {
  state_->callbacks = std::move(callbacks);
  state_->Read();
}

void ProcessStreams::Write(std::string line) {
  if (state_->gone) return;
  line.push_back('\n');
  state_->unsent += line.size();
  state_->lines.push_back(std::move(line));
  state_->Write();
}

size_t ProcessStreams::unsent_bytes() const { return state_->unsent; }

}  // namespace callboard::apps
