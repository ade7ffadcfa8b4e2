// A McpSeat on a virtual loop with a backend that the test plays, and a record of what was told.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend_agent/mcp_seat.h"
#include "core/mcp/jsonrpc.h"
#include "fmt/format.h"
#include "tests/support/memory_spool.h"
#include "tests/support/virtual_loop.h"

namespace callboard::agent {

// Answers initialize, ping and tools/list by itself (after `latency`); the test answers the rest.
class PlayedBackend final : public Backend {
 public:
  struct Sent {
    uint64_t exchange;
    std::string text;
    std::string method;
    core::TraceContext trace;
    std::vector<std::pair<std::string, std::string>> param_headers;
  };

  explicit PlayedBackend(core::EventLoop& loop) : loop_(loop) {}

  void Start(Events* events) override {
    events_ = events;
    if (is_another) Up();
  }
  void Stop(absl::AnyInvocable<void()> done) override {
    if (on_stop) on_stop();
    done();
  }
  std::unique_ptr<BackendExchange> Send(uint64_t id, std::string text, bool reply,
                                        const core::TraceContext& trace) override {
    auto message = core::ParseJsonRpc(text, true);
    EXPECT_TRUE(message.ok()) << text;
    const std::string method = message->method;
    sent.push_back({id, text, method, trace, {}});
    if (!reply) {
      Later([this, id] { events_->OnExchangeEnd(id, absl::OkStatus(), true); });
    } else if (method == "initialize" && answers_initialize) {
      Answer(id, initialize_result);
    } else if (method == "ping" && answers_ping) {
      Answer(id, "{}");
    } else if (method == "tools/list" && answers_list) {
      const std::string cursor = core::FindString(message->params, "cursor").value_or("");
      Answer(id, pages.contains(cursor) ? pages[cursor] : "{\"tools\":[]}");
    }
    return nullptr;
  }
  std::unique_ptr<BackendExchange> SendModern(uint64_t id, std::string text, ModernHeaders headers,
                                              const core::TraceContext& trace) override {
    auto exchange = Send(id, std::move(text), true, trace);
    sent.back().param_headers = std::move(headers.params);
    return exchange;
  }
  bool has_headers() const override { return is_http; }
  void SetRevision(std::string_view) override {}
  void Probe(absl::AnyInvocable<void(bool)> callback) override {
    loop_.Post([this, callback = std::move(callback)]() mutable { callback(probe_answer); });
  }
  bool ends_unanswered_exchanges() const override { return ends_unanswered; }
  bool may_be_modern() const override { return asked_for_its_era; }
  std::unique_ptr<Backend> OpenAnother() override {
    if (!has_sessions) return nullptr;
    auto another = std::make_unique<PlayedBackend>(loop_);
    another->is_another = true;
    another->answers_initialize = others_answer_initialize;
    others.push_back(another.get());
    return another;
  }
  bool may_open_another() const override { return has_sessions; }
  std::string description() const override { return "played"; }
  int64_t pid() const override { return process; }

  void Up() {
    Later([this] { events_->OnUp(); });
  }
  void Rejoin() {
    Later([this] { events_->OnRejoined(); });
  }
  void ForgetSession() {
    Later([this] { events_->OnSessionForgotten(); });
  }
  void Refuse(std::string detail) {
    Later([this, detail = std::move(detail)] { events_->OnDown({.detail = detail}); });
  }
  void Die(int signal) {
    Later([this, signal] {
      for (const Sent& message : sent) {
        events_->OnExchangeEnd(message.exchange, absl::UnavailableError("connection reset"), true);
      }
      events_->OnDown({.process_ended = true,
                       .exit_signal = signal,
                       .detail = fmt::format("blender was killed by signal {}", signal)});
    });
  }
  void Say(std::string text, uint64_t exchange = 0) {
    Later(
        [this, text = std::move(text), exchange] { events_->OnMessage(Payload(text), exchange); });
  }
  void Answer(uint64_t id, const std::string& result) {
    Say(core::MakeResult(fmt::format("{}", id), result));
  }
  void End(uint64_t id, absl::Status status, bool reached) {
    Later([this, id, status, reached] { events_->OnExchangeEnd(id, status, reached); });
  }
  // The last message sent of that method.
  const Sent& Last(const std::string& method) const {
    for (auto at = sent.rbegin(); at != sent.rend(); ++at) {
      if (at->method == method) return *at;
    }
    static const Sent kNone{};
    ADD_FAILURE() << method << " was not sent";
    return kNone;
  }
  size_t Count(const std::string& method) const {
    size_t count = 0;
    for (const Sent& message : sent) count += message.method == method ? 1 : 0;
    return count;
  }

  std::vector<Sent> sent;
  std::map<std::string, std::string> pages = {{"", R"({"tools":[{"name":"a"}]})"}};
  std::string initialize_result =
      R"({"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x"}})";
  std::vector<PlayedBackend*> others;  // what OpenAnother() gave
  bool has_sessions = false;
  bool is_another = false;
  std::function<void()> on_stop;
  bool answers_initialize = true;
  bool others_answer_initialize = true;
  bool answers_ping = true;
  bool answers_list = true;
  bool probe_answer = true;
  bool ends_unanswered = true;
  bool asked_for_its_era = false;
  bool is_http = false;
  int64_t process = 4711;

 private:
  void Later(absl::AnyInvocable<void()> fn) { loop_.Post(lifetime_.Wrap(std::move(fn))); }

  core::EventLoop& loop_;
  Events* events_ = nullptr;
  core::Lifetime lifetime_;
};

class SeatFixture : public testing::Test, public CallObserver, public SeatObserver {
 protected:
  SeatFixture() { MakeSeat({}); }

  void MakeSeat(SeatLimits limits) {
    seat.reset();
    auto made = std::make_unique<PlayedBackend>(loop);
    backend = made.get();
    backend->has_sessions = has_sessions;
    seat = std::make_unique<McpSeat>(
        loop, random, spool, *this, *this, std::move(made),
        SeatDescription{.seat_id = "5ea7",
                        .name = "blender",
                        .app = "blender",
                        .local_mcp_url = "http://127.0.0.1:9401/mcp"},
        [this](int64_t pid) {
          return pid == last_pid ? incarnation : (last_pid = pid, ++incarnation);
        },
        limits);
  }
  void BringUp() {
    backend->Up();
    loop.RunFor(absl::Milliseconds(1));
    told.clear();
  }
  CallSpec Tool(std::string id, std::string tool = "render") {
    CallSpec spec;
    spec.call_id = std::move(id);
    spec.method = "tools/call";
    spec.params = Payload(fmt::format(R"({{"name":"{}","arguments":{{}}}})", tool));
    return spec;
  }
  void Submit(CallSpec spec) {
    seat->Submit(std::move(spec));
    loop.RunReady();
  }
  uint64_t LastCall() { return backend->Last("tools/call").exchange; }
  CallEnd& End(const std::string& id) { return ends.at(id); }

  // CallObserver, SeatObserver: one line each.
  void OnQueued(const std::string& id, uint32_t ahead) override {
    told.push_back(fmt::format("{} queued {}", id, ahead));
  }
  bool OnStarting(const std::string& id, uint64_t number) override {
    told.push_back(fmt::format("{} starting {}", id, number));
    if (on_starting) on_starting();
    return may_start;
  }
  void OnProgress(const std::string& id, std::string params) override {
    told.push_back(fmt::format("{} progress {}", id, params));
  }
  void OnLog(const std::string& id, std::string params) override {
    told.push_back(fmt::format("{} log {}", id, params));
  }
  void OnNotification(const std::string& id, std::string method, std::string) override {
    told.push_back(fmt::format("{} {}", id, method));
  }
  void OnAsk(const std::string& id, uint64_t ask, std::string method, std::string params) override {
    told.push_back(fmt::format("{} ask {} {}", id, ask, method));
    asked = std::move(params);
  }
  void OnAskCancelled(const std::string& id, uint64_t ask, std::string params) override {
    told.push_back(fmt::format("{} ask {} cancelled {}", id, ask, params));
  }
  void OnEnd(const std::string& id, CallEnd end) override {
    told.push_back(fmt::format("{} end {} {} {}", id, v1::OutcomeClass_Name(end.outcome_class),
                               v1::Reason_Name(end.reason), v1::Certainty_Name(end.certainty)));
    digest_at_end[id] = seat == nullptr ? "" : seat->State().catalogue_digest();
    ends[id] = std::move(end);
    if (on_end) on_end();
  }
  void OnLateEnd(const std::string& id, CallEnd end) override {
    told.push_back(fmt::format("{} late {}", id, v1::OutcomeClass_Name(end.outcome_class)));
    ends[id + " late"] = std::move(end);
  }
  void OnSeatChanged(const std::string&) override { ++seat_changes; }
  void OnNotice(const std::string&, std::string method, std::string params) override {
    told.push_back(fmt::format("notice {} {}", method, params));
  }
  void OnSessionAsk(const std::string&, SeatAsk ask) override {
    told.push_back(fmt::format("session {} at {} is asked {} {} ({})", ask.backend_session,
                               ask.control_plane, ask.method, ask.raw_params, ask.number));
  }
  void OnSessionAskOver(const std::string&, uint64_t ask, std::string params) override {
    told.push_back(fmt::format("ask {} is over {}", ask, params));
  }

  tests::VirtualLoop loop;
  core::SeededRandom random{1};
  tests::MemorySpool spool;
  std::vector<std::string> told;
  std::string asked;  // params of the last one
  std::map<std::string, CallEnd> ends;
  std::map<std::string, std::string> digest_at_end;
  std::function<void()> on_starting;
  std::function<void()> on_end;
  bool may_start = true;
  bool has_sessions = false;  // of the backend MakeSeat makes
  int seat_changes = 0;
  int64_t last_pid = 0;
  uint64_t incarnation = 0;
  PlayedBackend* backend = nullptr;
  std::unique_ptr<McpSeat> seat;
};

using Told = std::vector<std::string>;

}  // namespace callboard::agent
