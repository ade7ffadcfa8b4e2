// A stdio MCP server whose tool reports progress as fast as it is asked to, for bench/progress/run.
//
// Tool `progress {steps, per_second}`: so many progress notifications, at that rate (0: as fast as
// they are read), then its result "N steps". Any number of calls at once, in turns of a
// millisecond.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "fmt/format.h"

namespace {

using Clock = std::chrono::steady_clock;
namespace core = callboard::core;

constexpr int kTurnMs = 1;
// What one turn writes for all calls: a little more than a pipe takes.
constexpr size_t kTurnBytes = 128 << 10;
constexpr std::string_view kTools =
    R"({"tools":[{"name":"progress","description":"Reports progress","inputSchema":)"
    R"({"type":"object","properties":{"steps":{"type":"integer"},"per_second":{"type":"integer"}}}}]})";

struct Call {
  std::string id;
  std::string token;
  int64_t steps = 0;
  int64_t per_second = 0;
  int64_t told = 0;
  Clock::time_point begun;
};

class Source {
 public:
  // Until the client has gone.
  void Run() {
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    while (true) {
      const bool hurries = std::any_of(calls_.begin(), calls_.end(),
                                       [](const Call& c) { return c.per_second == 0; });
      poll(&input, 1, calls_.empty() ? -1 : hurries ? 0 : kTurnMs);
      if (input.revents != 0 && !Read()) return;
      for (Call& call : calls_) Tell(call);
      std::erase_if(calls_, [](const Call& call) { return call.told == call.steps; });
      if (!Write()) return;
    }
  }

 private:
  bool Read() {
    char buffer[64 << 10];
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof buffer);
    if (count <= 0) return count < 0 && errno == EAGAIN;
    in_.append(buffer, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end; (end = in_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      Take(std::string_view(in_).substr(begin, end - begin));
    }
    in_.erase(0, begin);
    return true;
  }

  void Take(std::string_view line) {
    const auto message = core::ParseJsonRpc(line, true);
    if (!message.ok() || message->kind != core::JsonRpcMessage::Kind::kRequest) return;
    if (message->method == "initialize") {
      const auto version = core::FindMember(message->params, "protocolVersion");
      Answer(message->id, fmt::format(R"({{"protocolVersion":{},"capabilities":{{"tools":{{}}}},)"
                                      R"("serverInfo":{{"name":"progress","version":"1"}}}})",
                                      version.value_or(R"("2025-11-25")")));
    } else if (message->method == "tools/list") {
      Answer(message->id, kTools);
    } else if (message->method == "tools/call") {
      const auto arguments = core::FindMember(message->params, "arguments").value_or("{}");
      const auto token = core::FindPath(message->params, {"_meta", "progressToken"});
      calls_.push_back({.id = std::string(message->id),
                        .token = std::string(token.value_or("")),
                        .steps = core::FindInteger(arguments, "steps").value_or(0),
                        .per_second = core::FindInteger(arguments, "per_second").value_or(0),
                        .begun = Clock::now()});
    } else {
      Answer(message->id, "{}");
    }
  }

  void Tell(Call& call) {
    int64_t due = call.steps;
    if (call.per_second > 0) {
      const std::chrono::duration<double> ran = Clock::now() - call.begun;
      due = std::min(due, static_cast<int64_t>(ran.count() * static_cast<double>(call.per_second)));
    }
    const size_t share = kTurnBytes / calls_.size();
    for (const size_t end = out_.size() + share; call.told < due && out_.size() < end;) {
      ++call.told;
      if (call.token.empty()) continue;
      fmt::format_to(std::back_inserter(out_),
                     R"({{"jsonrpc":"2.0","method":"notifications/progress","params":)"
                     R"({{"progressToken":{},"progress":{},"total":{},"message":"frame"}}}})"
                     "\n",
                     call.token, call.told, call.steps);
    }
    if (call.told == call.steps) {
      Answer(call.id,
             fmt::format(R"({{"content":[{{"type":"text","text":"{} steps"}}]}})", call.told));
    }
  }

  void Answer(std::string_view id, std::string_view result) {
    out_.append(core::MakeResult(id, result)).push_back('\n');
  }

  bool Write() {
    std::string_view rest = out_;
    while (!rest.empty()) {
      const ssize_t count = write(STDOUT_FILENO, rest.data(), rest.size());
      if (count < 0) return false;
      rest.remove_prefix(static_cast<size_t>(count));
    }
    out_.clear();
    return true;
  }

  std::string in_;
  std::string out_;
  std::vector<Call> calls_;
};

}  // namespace

int main() { Source().Run(); }
