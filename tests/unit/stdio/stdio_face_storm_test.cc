// The stdio face before a server that is killed, cut and made to forget, all seeded: each request
// ends once, and what may not run twice does not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/stdio/stdio_face.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "tests/support/virtual_loop.h"

namespace callboard::apps {
namespace {

// One HTTP request on its way; `sink` is null once the client has dropped it or it is over.
struct Wire {
  AnswerSink* sink = nullptr;
  bool streaming = false;
};
using WirePtr = std::shared_ptr<Wire>;

// What a bridge and its control plane do, as far as a client can tell: sessions, calls with keys,
// streams that are kept and replayed.
class StormyServer final : public McpTransport {
 public:
  StormyServer(core::EventLoop& loop, core::Random& random) : loop_(loop), random_(random) {}

  std::unique_ptr<TransportExchange> Post(const SessionHeaders& session, Kind,
                                          const std::string& key, std::string text,
                                          AnswerSink* sink) override {
    return Begin(sink, [this, session, key, text = std::move(text)](const WirePtr& wire) {
      TakePost(wire, session, key, text);
    });
  }
  std::unique_ptr<TransportExchange> Listen(const SessionHeaders& session, const std::string& after,
                                            AnswerSink* sink) override {
    return Begin(sink, [this, session, after](const WirePtr& wire) {
      if (!sessions_.contains(session.session)) return Refuse(wire, 404);
      if (after.empty()) return Open(wire);
      const size_t dot = after.find('.');
      const auto call = calls_.find(std::stoull(after.substr(0, dot)));
      if (call == calls_.end()) return Refuse(wire, 204);
      Follow(call->second, wire, std::stoull(after.substr(dot + 1)));
    });
  }
  std::unique_ptr<TransportExchange> Delete(const SessionHeaders&, AnswerSink* sink) override {
    return Begin(sink, [this](const WirePtr& wire) { Refuse(wire, 200); });
  }
  void PauseRelayed(bool) override {}

  // ---- the storm
  void Kill(absl::Duration down) {
    down_ = true;
    for (const WirePtr& wire : std::vector(wires_)) Break(wire, true);
    Later(down, [this] { down_ = false; });
  }
  void Cut() {
    if (!wires_.empty()) Break(wires_[random_.Below(wires_.size())], true);
  }
  // As a control plane without a store after a restart.
  void Forget() {
    sessions_.clear();
    calls_.clear();
    call_of_key_.clear();
    for (const WirePtr& wire : std::vector(wires_)) Break(wire, true);
  }
  void Calm() { losses_ = false; }

  // By the id of the request.
  std::map<std::string, int> runs;
  std::map<std::string, int> bakes;  // of a tool that may not run twice

 private:
  struct Call {
    std::vector<std::string> events;  // number 1 and on; the last is the response, once it is over
    bool over = false;
    std::string id;
    std::vector<std::pair<WirePtr, size_t>> readers;  // and how many events they have
    std::vector<WirePtr> waiters;                     // for the response alone
  };
  struct Exchange final : TransportExchange {
    explicit Exchange(WirePtr one) : wire(std::move(one)) {}
    ~Exchange() override { wire->sink = nullptr; }
    WirePtr wire;
  };

  void Later(absl::Duration time, std::function<void()> fn) {
    timers_.push_back(loop_.After(time, std::move(fn)));
  }
  absl::Duration Some(int64_t ms) {
    return absl::Milliseconds(static_cast<int64_t>(random_.Below(static_cast<uint64_t>(ms))));
  }

  std::unique_ptr<TransportExchange> Begin(AnswerSink* sink,
                                           std::function<void(const WirePtr&)> take) {
    auto wire = std::make_shared<Wire>(Wire{sink});
    wires_.push_back(wire);
    Later(Some(30), [this, wire, take = std::move(take)] {
      if (down_) return Break(wire, false);
      const uint64_t luck = losses_ ? random_.Below(20) : 19;
      if (luck == 0) return Break(wire, true);  // lost on its way there
      if (luck == 1) return Refuse(wire, 503);
      take(wire);
      if (luck == 2) Break(wire, true);  // lost on its way back
    });
    return std::make_unique<Exchange>(std::move(wire));
  }

  void TakePost(const WirePtr& wire, const SessionHeaders& session, const std::string& key,
                const std::string& text) {
    const auto message = core::ParseJsonRpc(text, true);
    ASSERT_TRUE(message.ok());
    if (message->method == "initialize") {
      const std::string id = fmt::format("s{}", ++last_session_);
      sessions_.insert(id);
      return Reply(wire, core::MakeResult(message->id, R"({"protocolVersion":"2025-11-25"})"), id);
    }
    if (!sessions_.contains(session.session)) return Refuse(wire, 404);
    if (message->kind != core::JsonRpcMessage::Kind::kRequest) return Refuse(wire, 202);
    if (message->method == "ping") return Reply(wire, core::MakeResult(message->id, "{}"));
    if (message->method == "tools/list") {
      return Reply(
          wire,
          core::MakeResult(
              message->id,
              R"({"tools":[{"name":"look","annotations":{"readOnlyHint":true}},{"name":"bake"}]})"));
    }
    const std::string scope = session.session + key;
    if (const auto known = call_of_key_.find(scope); known != call_of_key_.end()) {
      Call& call = calls_.at(known->second);
      if (call.over) return Reply(wire, call.events.back());
      call.waiters.push_back(wire);
      return;
    }
    if (core::FindString(message->params, "name") == "bake") ++bakes[std::string(message->id)];
    Run(wire, scope, std::string(message->id));
  }

  void Run(const WirePtr& wire, const std::string& scope, const std::string& id) {
    ++runs[id];
    const uint64_t number = ++last_call_;
    call_of_key_[scope] = number;
    Call& call = calls_[number];
    call.id = id;
    const absl::Duration time = Some(4000);
    if (time < absl::Milliseconds(250)) {
      call.waiters.push_back(wire);
    } else {
      Later(absl::Milliseconds(250), [this, number, wire] {
        if (const auto found = calls_.find(number); found != calls_.end()) {
          Follow(found->second, wire, 0);
        }
      });
    }
    const int steps = static_cast<int>(random_.Below(4));
    for (int step = 1; step <= steps; ++step) {
      Later(time * step / (steps + 1), [this, number] {
        Tell(
            number,
            core::MakeNotification("notifications/progress", R"({"progressToken":1,"progress":1})"),
            false);
      });
    }
    Later(time, [this, number, id] { Tell(number, core::MakeResult(id, R"({"ok":1})"), true); });
  }

  void Tell(uint64_t number, std::string text, bool last) {
    const auto found = calls_.find(number);
    if (found == calls_.end()) return;
    Call& call = found->second;
    call.events.push_back(std::move(text));
    call.over = last;
    for (auto& [wire, sent] : std::vector(call.readers)) Send(call, wire, sent);
    for (auto& reader : call.readers) reader.second = call.events.size();
    if (!last) return;
    for (const WirePtr& wire : std::exchange(call.waiters, {})) Reply(wire, call.events.back());
  }

  void Follow(Call& call, const WirePtr& wire, size_t from) {
    Open(wire);
    if (from == 0) Event(wire, Place(call, 0), "");
    Send(call, wire, from);
    call.readers.emplace_back(wire, call.events.size());
  }
  void Send(const Call& call, const WirePtr& wire, size_t from) {
    for (size_t n = from; n < call.events.size(); ++n) {
      Event(wire, Place(call, n + 1), call.events[n]);
    }
    if (call.over) End(wire, {absl::OkStatus(), true, 200, {}});
  }
  std::string Place(const Call& call, size_t n) const {
    for (const auto& [number, other] : calls_) {
      if (&other == &call) return fmt::format("{}.{}", number, n);
    }
    return {};
  }

  // ---- bytes
  void Open(const WirePtr& wire) {
    wire->streaming = true;
    if (wire->sink != nullptr) wire->sink->OnHead({200, {}, true});
  }
  void Event(const WirePtr& wire, std::string id, std::string text) {
    if (wire->sink != nullptr) wire->sink->OnEvent({std::move(id), std::move(text), std::nullopt});
  }
  void Reply(const WirePtr& wire, std::string text, std::string session = {}) {
    if (wire->sink != nullptr) wire->sink->OnHead({200, std::move(session), false});
    Event(wire, {}, std::move(text));
    End(wire, {absl::OkStatus(), true, 200, {}});
  }
  void Refuse(const WirePtr& wire, int status) {
    if (wire->sink != nullptr) wire->sink->OnHead({status, {}, false});
    End(wire, {absl::OkStatus(), true, status, {}});
  }
  void Break(const WirePtr& wire, bool reached) {
    End(wire, {absl::UnavailableError("cut"), reached, wire->streaming ? 200 : 0, {}});
  }
  void End(const WirePtr& wire, AnswerEnd end) {
    std::erase(wires_, wire);
    if (AnswerSink* const sink = std::exchange(wire->sink, nullptr)) sink->OnEnd(std::move(end));
  }

  core::EventLoop& loop_;
  core::Random& random_;
  bool down_ = false;
  bool losses_ = true;
  std::vector<WirePtr> wires_;
  std::set<std::string> sessions_;
  std::map<uint64_t, Call> calls_;
  std::map<std::string, uint64_t> call_of_key_;
  int last_session_ = 0;
  uint64_t last_call_ = 0;
  std::list<core::Timer> timers_;
};

class Answers final : public LineOutput {
 public:
  void Write(std::string line) override {
    const auto message = core::ParseJsonRpc(line, true);
    ASSERT_TRUE(message.ok()) << line;
    if (message->id.empty()) return;
    of[std::string(message->id)].push_back(std::move(line));
  }
  size_t unsent_bytes() const override { return 0; }
  std::map<std::string, std::vector<std::string>> of;
};

// `forgetful`: the server loses its sessions, and is away beyond the budget.
void Ride(uint64_t seed, bool forgetful) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  constexpr int kCalls = 40;
  tests::VirtualLoop loop;
  core::SeededRandom random(seed);
  StormyServer server(loop, random);
  Answers answers;
  FaceConfig config;
  if (forgetful) config.reconnect.budget = absl::Seconds(30);
  bool done = false;
  StdioFace face(loop, random, server, answers, config, "http://here/mcp", [&] { done = true; });
  face.OnLine(R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{}})");
  face.OnLine(R"({"jsonrpc":"2.0","method":"notifications/initialized"})");
  face.OnLine(R"({"jsonrpc":"2.0","id":"list","method":"tools/list"})");
  loop.RunFor(absl::Seconds(5));
  for (int number = 1; number <= kCalls; ++number) {
    const bool look = random.Below(3) == 0;
    face.OnLine(core::MakeRequest(fmt::to_string(number), "tools/call",
                                  look ? R"({"name":"look"})" : R"({"name":"bake"})"));
    loop.RunFor(absl::Milliseconds(static_cast<int64_t>(random.Below(1500))));
    switch (random.Below(8)) {
      case 0:
        server.Kill(absl::Milliseconds(static_cast<int64_t>(random.Below(6000))));
        break;
      case 1:
      case 2:
        server.Cut();
        break;
      case 3:
        if (forgetful && random.Below(3) == 0) server.Forget();
        break;
      case 4:
        if (forgetful && random.Below(8) == 0) server.Kill(absl::Seconds(50));
        break;
      default:
        break;
    }
  }
  server.Calm();
  loop.RunFor(absl::Minutes(3));
  EXPECT_EQ(face.open_requests(), 0u);
  for (int number = 0; number <= kCalls; ++number) {
    const std::string id = fmt::to_string(number);
    ASSERT_EQ(answers.of[id].size(), 1u) << "request " << id;
    const std::string& answer = answers.of[id].front();
    const bool error = core::FindMember(answer, "error").has_value();
    EXPECT_TRUE(forgetful || !error) << answer;
    if (error) {
      EXPECT_NE(answer.find("tool_call_failed"), std::string::npos) << answer;
      continue;
    }
    EXPECT_TRUE(number == 0 || server.runs[id] >= 1) << answer;
  }
  // A tool that only looks may look again, in another session.
  for (const auto& [id, count] : forgetful ? server.bakes : server.runs) {
    EXPECT_EQ(count, 1) << "request " << id;
  }
  face.OnInputEnd();
  loop.RunFor(absl::Seconds(3));
  EXPECT_TRUE(done);
}

TEST(StdioFaceInAStorm, GivesEveryCallItsResultAndRunsNoneTwice) {
  for (uint64_t seed = 1; seed <= 150; ++seed) Ride(seed, false);
}

TEST(StdioFaceInAStorm, AnswersEveryCallOnceWhateverTheServerForgets) {
  for (uint64_t seed = 1001; seed <= 1150; ++seed) Ride(seed, true);
}

}  // namespace
}  // namespace callboard::apps
