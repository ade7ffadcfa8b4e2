// A stdio face between a played client and a played server, in virtual time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/stdio/stdio_face.h"
#include "core/mcp/json.h"
#include "tests/support/virtual_loop.h"

namespace callboard::apps {

// One request as the server sees it. `sink` is null once nobody waits for its answer.
struct PlayedRequest {
  std::string verb;
  SessionHeaders session;
  std::string key;
  std::string text;  // of a GET: Last-Event-ID
  AnswerSink* sink = nullptr;

  void Head(int http_status, bool is_stream = false, std::string given_session = {}) {
    if (sink != nullptr) sink->OnHead({http_status, std::move(given_session), is_stream});
  }
  void Event(std::string id, std::string message) {
    if (sink != nullptr) sink->OnEvent({std::move(id), std::move(message), std::nullopt});
  }
  void End(int http_status, std::string refusal = {}) {
    if (sink != nullptr) sink->OnEnd({absl::OkStatus(), true, http_status, std::move(refusal)});
  }
  // The connection breaks.
  void Break(bool reached, int http_status = 0) {
    if (sink == nullptr) return;
    sink->OnEnd({absl::UnavailableError("connection reset"), reached, http_status, {}});
  }
  // A whole answer in one JSON document.
  void Reply(std::string message, std::string given_session = {}) {
    Head(200, false, std::move(given_session));
    Event({}, std::move(message));
    End(200);
  }
  void Refuse(int http_status, std::string body = {}) {
    Head(http_status);
    End(http_status, std::move(body));
  }
  void Take() { Refuse(202); }
};

class PlayedTransport final : public McpTransport {
 public:
  std::unique_ptr<TransportExchange> Post(const SessionHeaders& session, Kind,
                                          const std::string& key, std::string text,
                                          AnswerSink* sink) override {
    return Begin({"POST", session, key, std::move(text), sink});
  }
  std::unique_ptr<TransportExchange> Listen(const SessionHeaders& session, const std::string& after,
                                            AnswerSink* sink) override {
    return Begin({"GET", session, {}, after, sink});
  }
  std::unique_ptr<TransportExchange> Delete(const SessionHeaders& session,
                                            AnswerSink* sink) override {
    return Begin({"DELETE", session, {}, {}, sink});
  }
  void PauseRelayed(bool now) override { paused = now; }

  std::deque<std::shared_ptr<PlayedRequest>> requests;
  bool paused = false;

 private:
  struct Exchange final : TransportExchange {
    explicit Exchange(std::shared_ptr<PlayedRequest> one) : request(std::move(one)) {}
    ~Exchange() override { request->sink = nullptr; }
    std::shared_ptr<PlayedRequest> request;
  };
  std::unique_ptr<TransportExchange> Begin(PlayedRequest request) {
    requests.push_back(std::make_shared<PlayedRequest>(std::move(request)));
    return std::make_unique<Exchange>(requests.back());
  }
};

class PlayedOutput final : public LineOutput {
 public:
  void Write(std::string line) override {
    if (!reads) unsent += line.size();
    lines.push_back(std::move(line));
  }
  size_t unsent_bytes() const override { return unsent; }

  std::vector<std::string> lines;
  bool reads = true;
  size_t unsent = 0;
};

class StdioFaceTest : public testing::Test {
 protected:
  static constexpr std::string_view kInitialize =
      R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}})";

  static std::string Initialized(std::string_view id, std::string_view capabilities = "{}",
                                 std::string_view revision = "2025-11-25") {
    return core::MakeResult(id, core::JsonObject()
                                    .String("protocolVersion", revision)
                                    .Raw("capabilities", capabilities)
                                    .Raw("serverInfo", R"({"name":"callboard","version":"1"})")
                                    .Take());
  }
  static std::string Request(std::string_view id, std::string_view method,
                             std::string_view params = "{}") {
    return core::MakeRequest(id, method, params);
  }
  static std::string Call(std::string_view id, std::string_view tool = "bake") {
    return Request(id, "tools/call", core::JsonObject().String("name", tool).Take());
  }

  void Say(std::string line) {
    face->OnLine(std::move(line));
    loop.RunReady();
  }
  void Run(absl::Duration time) { loop.RunFor(time); }

  // The newest request that somebody still waits for and whose text has `part`; never null.
  std::shared_ptr<PlayedRequest> Open(std::string_view part, std::string_view verb = "POST") {
    for (auto at = transport.requests.rbegin(); at != transport.requests.rend(); ++at) {
      const PlayedRequest& request = **at;
      if (request.sink != nullptr && request.verb == verb &&
          request.text.find(part) != std::string::npos) {
        return *at;
      }
    }
    ADD_FAILURE() << "no open " << verb << " with '" << part << "'";
    return std::make_shared<PlayedRequest>();
  }
  size_t Count(std::string_view part, std::string_view verb = "POST") const {
    size_t count = 0;
    for (const auto& request : transport.requests) {
      count += request->verb == verb && request->text.find(part) != std::string::npos;
    }
    return count;
  }
  std::vector<std::string> Heard() { return std::exchange(output.lines, {}); }

  // A client in mid-session: initialized, with its stream open.
  void Connect(std::string_view capabilities = "{}") {
    Say(std::string(kInitialize));
    Open("initialize")->Reply(Initialized("0", capabilities), "s1");
    loop.RunReady();
    Say(R"({"jsonrpc":"2.0","method":"notifications/initialized"})");
    Open("notifications/initialized")->Take();
    loop.RunReady();
    Open("", "GET")->Head(200, true);
    Heard();
    transport.requests.erase(transport.requests.begin(), transport.requests.end() - 1);
  }
  // A call whose stream is open and has told its first place.
  std::shared_ptr<PlayedRequest> StartCall(std::string_view id, std::string_view tool = "bake") {
    Say(Call(id, tool));
    auto request = Open("tools/call");
    request->Head(200, true);
    request->Event("7.1.0", "");
    return request;
  }
  // The server is there again and knows the session: answers the probe that is due.
  void AnswerProbe() {
    Open("ping")->Reply(R"({"jsonrpc":"2.0","id":"callboard-probe","result":{}})");
  }
  // A server that knows the session no more: the probe, then initialize and its confirmation.
  void OpenAnotherSession(std::string_view capabilities = "{}") {
    Open("ping")->Refuse(404);
    Open("\"initialize\"")->Reply(Initialized(R"("callboard-initialize")", capabilities), "s2");
    Open("notifications/initialized")->Take();
    loop.RunReady();
  }
  static std::string Reason(const std::string& line) {
    const auto data = core::FindPath(line, {"error", "data"});
    return data ? core::FindString(*data, "reason").value_or("") : "";
  }
  static std::string Certainty(const std::string& line) {
    const auto data = core::FindPath(line, {"error", "data"});
    return data ? core::FindString(*data, "certainty").value_or("") : "";
  }

  tests::VirtualLoop loop;
  core::SeededRandom random{1};
  PlayedTransport transport;
  PlayedOutput output;
  int done = 0;  // how often it was told
  FaceConfig config;
  std::unique_ptr<StdioFace> face = Make();

  std::unique_ptr<StdioFace> Make() {
    return std::make_unique<StdioFace>(loop, random, transport, output, config,
                                       "http://127.0.0.1:9765/mcp", [this] { ++done; });
  }
};

}  // namespace callboard::apps
