// Many calls with progress at once over SSE, for bench/progress/run: prints what was delivered as
// JSON.
//
//   bench_progress_reader PORT PATH SESSIONS CALLS_PER_SESSION STEPS PER_SECOND
//
// Each call is one POST on a connection of its own. Counts events (lines of data that are
// progress), those whose progress did not grow, and the results; a call whose stream ends without a
// result or whose last event is not its last step is counted as incomplete.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fmt/format.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kInitialize =
    R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",)"
    R"("capabilities":{},"clientInfo":{"name":"progress-reader","version":"1"}}})";
constexpr int kWaitMs = 20'000;

struct Target {
  uint16_t port;
  std::string path;
};

int Connect(const Target& target) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(target.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw std::runtime_error("nobody listens on the port");
  }
  return fd;
}

void Post(int fd, const Target& target, const std::string& session, std::string_view body) {
  const std::string text = fmt::format(
      "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
      "Accept: application/json, text/event-stream\r\n{}{}{}Content-Length: {}\r\n\r\n{}",
      target.path, session.empty() ? "" : "Mcp-Session-Id: ", session,
      session.empty() ? "" : "\r\n", body.size(), body);
  if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("the request was not taken");
  }
}

std::string OpenSession(const Target& target) {
  const int fd = Connect(target);
  Post(fd, target, "", kInitialize);
  std::string head;
  char buffer[4096];
  constexpr std::string_view kHeader = "mcp-session-id: ";
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t count = recv(fd, buffer, sizeof buffer, 0);
    if (count <= 0) throw std::runtime_error("initialize was not answered");
    head.append(buffer, static_cast<size_t>(count));
  }
  close(fd);
  std::string lower = head;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const size_t at = lower.find(kHeader);
  if (at == std::string::npos) throw std::runtime_error("initialize gave no session");
  const size_t begin = at + kHeader.size();
  return head.substr(begin, head.find('\r', begin) - begin);
}

struct Call {
  int fd = -1;
  std::string line;  // begun and not ended
  int64_t events = 0;
  int64_t last = 0;
  int64_t unordered = 0;
  bool result = false;
  Clock::time_point first;
  Clock::time_point latest;
};

// Small events are one line, whatever the chunks around them.
void TakeLine(Call& call, std::string_view line) {
  if (!line.starts_with("data: {")) return;
  constexpr std::string_view kProgress = "\"progress\":";
  if (const size_t at = line.find(kProgress); at != std::string_view::npos) {
    int64_t value = 0;
    std::from_chars(line.data() + at + kProgress.size(), line.data() + line.size(), value);
    // Places in the seat's queue are told below 1.
    if (value < 1) return;
    call.latest = Clock::now();
    if (call.events++ == 0) call.first = call.latest;
    call.unordered += value <= call.last;
    call.last = value;
  } else if (line.find("\"result\":") != std::string_view::npos) {
    call.result = true;
  }
}

// False at the end.
bool Read(Call& call) {
  static char buffer[256 << 10];
  const ssize_t count = recv(call.fd, buffer, sizeof buffer, 0);
  if (count <= 0) return false;
  std::string_view bytes(buffer, static_cast<size_t>(count));
  while (true) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) break;
    if (call.line.empty()) {
      TakeLine(call, bytes.substr(0, end));
    } else {
      call.line.append(bytes.substr(0, end));
      TakeLine(call, call.line);
      call.line.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  call.line.append(bytes);
  return !call.result;
}

int Run(const Target& target, int sessions, int calls_each, int64_t steps, int64_t per_second) {
  std::vector<std::unique_ptr<Call>> calls;
  const int poller = epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::string> ids;
  for (int i = 0; i < sessions; ++i) ids.push_back(OpenSession(target));
  for (int i = 0; i < sessions * calls_each; ++i) {
    auto& call = calls.emplace_back(std::make_unique<Call>());
    call->fd = Connect(target);
    Post(call->fd, target, ids[static_cast<size_t>(i % sessions)],
         fmt::format(
             R"({{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"progress",)"
             R"("arguments":{{"steps":{},"per_second":{}}},"_meta":{{"progressToken":{}}}}}}})",
             i + 1, steps, per_second, i + 1));
    epoll_event event{.events = EPOLLIN, .data = {.ptr = call.get()}};
    epoll_ctl(poller, EPOLL_CTL_ADD, call->fd, &event);
  }
  for (size_t open = calls.size(); open > 0;) {
    epoll_event events[64];
    const int ready = epoll_wait(poller, events, 64, kWaitMs);
    if (ready <= 0) break;
    for (int i = 0; i < ready; ++i) {
      Call& call = *static_cast<Call*>(events[i].data.ptr);
      if (Read(call)) continue;
      close(call.fd);
      --open;
    }
  }
  int64_t delivered = 0;
  int64_t unordered = 0;
  int64_t results = 0;
  int64_t incomplete = 0;
  Clock::time_point first = Clock::time_point::max();
  Clock::time_point latest = Clock::time_point::min();
  for (const auto& call : calls) {
    delivered += call->events;
    unordered += call->unordered;
    results += call->result;
    incomplete += !call->result || call->last != steps;
    if (call->events == 0) continue;
    first = std::min(first, call->first);
    latest = std::max(latest, call->latest);
  }
  const std::chrono::duration<double> took = delivered > 0 ? latest - first : Clock::duration(0);
  fmt::print(R"({{"sent":{},"delivered":{},"seconds":{:.3f},"unordered":{},"results":{},)"
             R"("incomplete":{}}})"
             "\n",
             steps * static_cast<int64_t>(calls.size()), delivered, took.count(), unordered,
             results, incomplete);
  return incomplete == 0 && unordered == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) {
    std::fputs("usage: bench_progress_reader PORT PATH SESSIONS CALLS STEPS PER_SECOND\n", stderr);
    return 2;
  }
  try {
    return Run({.port = static_cast<uint16_t>(std::atoi(arguments[1])), .path = arguments[2]},
               std::atoi(arguments[3]), std::atoi(arguments[4]), std::atoll(arguments[5]),
               std::atoll(arguments[6]));
  } catch (const std::exception& failure) {
    fmt::print(stderr, "bench_progress_reader: {}\n", failure.what());
    return 1;
  }
}
