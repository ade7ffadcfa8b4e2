// The contract of ControlPlaneClient, over a control plane in the same process and over gRPC alike.
#include "bridge/control_plane_client.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/local_control_plane_client.h"
#include "bridge/grpc_client/grpc_control_plane_client.h"
#include "core/runtime/offload.h"
#include "core/runtime/random.h"
#include "server/flows/control_plane.h"
#include "server/rpc/grpc_server.h"
#include "server/store/memory_bodies.h"
#include "server/store/memory_store.h"
#include "tests/integration/loop_thread.h"

namespace callboard {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using tests::LoopThread;

constexpr char kSeat[] = "0123456789abcdef0123456789abcdef";

// An agent with one seat, played by the test: its frames are written by hand. Lives on the plane's
// loop.
class PlayedAgent final : public server::AgentLink {
 public:
  void Open(Handler* handler) override {
    handler_ = handler;
    v1::AgentFrame frame;
    v1::Hello& hello = *frame.add_items()->mutable_hello();
    hello.set_protocol_min(1);
    hello.set_protocol_max(1);
    hello.set_agent_id("agent");
    hello.set_boot_id("boot");
    hello.set_link_epoch(1);
    hello.set_journal_id("journal");
    hello.mutable_limits()->set_window(64 * 1024);
    v1::SeatState& seat = *frame.add_items()->mutable_seat_state();
    seat.set_seat_id(kSeat);
    seat.set_incarnation(1);
    seat.set_name("toy");
    seat.set_app("toy");
    seat.mutable_health()->set_process(v1::HEALTHY);
    frame.add_items()->mutable_inventory_done();
    handler_->OnMessage(std::move(frame));
  }
  void Write(v1::ServerFrame frame) override {
    for (const auto& item : frame.items()) {
      if (item.has_dispatch()) dispatched.push_back(item.dispatch());
      if (item.has_cancel()) ++cancels;
    }
  }
  bool TakeWritten() override { return true; }
  void Close(absl::Status) override {}

  void Say(v1::CallEvent event) {
    v1::AgentFrame frame;
    *frame.add_items()->mutable_call_event() = std::move(event);
    handler_->OnMessage(std::move(frame));
  }

  std::vector<v1::Dispatch> dispatched;
  int cancels = 0;

 private:
  Handler* handler_ = nullptr;
};

// A control plane with a gRPC port; the loop of the plane is the client's too, as in callboardd, or
// another one, as in callboard-bridge.
class Plane {
 public:
  explicit Plane(uint16_t port = 0) {
    thread_.Call([this] {
      auto& loop = thread_.loop();
      offload_ = core::MakeThreadOffload(loop);
      store_ = std::make_unique<server::MemoryStore>(loop, "cluster");
      plane_ = std::make_unique<server::ControlPlane>(loop, random_, *offload_, *store_, bodies_,
                                                      server::ControlPlaneConfig{"plane", {}, {}});
      auto link = std::make_unique<PlayedAgent>();
      agent_ = link.get();
      plane_->AttachAgent(std::move(link), {});
    });
    grpc_ = *server::GrpcServer::Start(thread_.loop(), *plane_, {"127.0.0.1", port});
  }
  ~Plane() {
    grpc_->Shutdown(absl::ZeroDuration());
    thread_.Call([this] {
      plane_.reset();
      store_.reset();
    });
    offload_.reset();
  }

  LoopThread& thread() { return thread_; }
  server::ControlPlane& plane() { return *plane_; }
  PlayedAgent& agent() { return *agent_; }
  uint16_t port() const { return grpc_->port(); }

 private:
  LoopThread thread_;
  core::SecureRandom random_;
  std::unique_ptr<core::Offload> offload_;
  std::unique_ptr<server::MemoryStore> store_;
  server::MemoryBodies bodies_;
  std::unique_ptr<server::ControlPlane> plane_;
  PlayedAgent* agent_ = nullptr;
  std::unique_ptr<server::GrpcServer> grpc_;
};

enum class Way { kLocal, kGrpc };

class ControlPlaneClientTest : public testing::TestWithParam<Way> {
 protected:
  // Runs on the loop that the client lives on.
  template <class Fn>
  auto On(Fn fn) {
    return GetParam() == Way::kLocal ? plane_->thread().Call(std::move(fn))
                                     : own_thread_.Call(std::move(fn));
  }

  ControlPlaneClientTest() : plane_(std::make_unique<Plane>()) {
    On([this] { client_ = MakeClient(); });
  }
  ~ControlPlaneClientTest() override {
    On([this] {
      invoked_ = nullptr;
      listened_ = nullptr;
      client_ = nullptr;
    });
    plane_ = nullptr;
  }

  std::unique_ptr<bridge::ControlPlaneClient> MakeClient() {
    if (GetParam() == Way::kLocal) return apps::MakeLocalControlPlaneClient(plane_->plane());
    return bridge::MakeGrpcControlPlaneClient(
        own_thread_.loop(), {.addresses = {fmt::format("127.0.0.1:{}", plane_->port())},
                             .connect_wait = absl::Seconds(3)});
  }

  template <class Fn>
  auto OnPlane(Fn fn) {
    return plane_->thread().Call(std::move(fn));
  }
  template <class Fn>
  static bool Eventually(Fn condition) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  template <class Request, class Response>
  absl::StatusOr<Response> Ask(void (bridge::ControlPlaneClient::*method)(Request,
                                                                          bridge::Reply<Response>),
                               Request request) {
    std::promise<absl::StatusOr<Response>> promise;
    auto future = promise.get_future();
    On([&] {
      (client_.get()->*method)(std::move(request), [&promise](absl::StatusOr<Response> reply) {
        promise.set_value(std::move(reply));
      });
    });
    if (future.wait_for(10s) != std::future_status::ready) {
      ADD_FAILURE() << "no reply";
      std::abort();
    }
    return future.get();
  }
  template <class Event>
  absl::StatusOr<Event> Next(core::EventSource<Event>& source) {
    std::promise<absl::StatusOr<Event>> promise;
    auto future = promise.get_future();
    On([&] {
      source.Next([&promise](absl::StatusOr<Event> event) { promise.set_value(std::move(event)); });
    });
    if (future.wait_for(10s) != std::future_status::ready) {
      ADD_FAILURE() << "no event";
      std::abort();
    }
    return future.get();
  }

  // Of the call: states come as they are, also before its stream.
  absl::StatusOr<v1::InvokeEvent> NextButStates() {
    auto event = Next(*invoked_);
    while (event.ok() && event->has_status()) event = Next(*invoked_);
    return event;
  }

  std::string OpenSession() {
    v1::OpenSessionRequest request;
    request.set_revision("2025-11-25");
    request.set_surface("facade");
    return Ask(&bridge::ControlPlaneClient::OpenSession, request)->session_id();
  }
  void Invoke(const std::string& session, uint64_t open_stream_after_ms, std::string id = "1",
              std::string method = "ping") {
    v1::InvokeRequest request;
    request.set_session_id(session);
    request.set_client_request_id(std::move(id));
    request.mutable_target()->set_seat_id(kSeat);
    request.set_method(std::move(method));
    request.set_open_stream_after_ms(open_stream_after_ms);
    On([&] { invoked_ = client_->Invoke(std::move(request)); });
  }
  v1::Dispatch Dispatched(size_t index = 0) {
    EXPECT_TRUE(Eventually(
        [&] { return OnPlane([&] { return plane_->agent().dispatched.size() > index; }); }));
    return OnPlane([&] { return plane_->agent().dispatched.at(index); });
  }
  void EndCall(const v1::Dispatch& dispatch, uint64_t n, std::string body) {
    v1::CallEvent event;
    event.set_call_id(dispatch.call_id());
    event.set_attempt(dispatch.attempt());
    event.set_n(n);
    event.mutable_outcome()->set_class_(v1::RESULT);
    event.mutable_outcome()->set_certainty(v1::FINISHED);
    event.mutable_outcome()->mutable_body()->set_inline_(std::move(body));
    OnPlane([&] { plane_->agent().Say(std::move(event)); });
  }

  LoopThread own_thread_;
  std::unique_ptr<Plane> plane_;
  std::unique_ptr<bridge::ControlPlaneClient> client_;
  std::unique_ptr<core::EventSource<v1::InvokeEvent>> invoked_;
  std::unique_ptr<core::EventSource<v1::ListenEvent>> listened_;
};

TEST_P(ControlPlaneClientTest, SessionsAreOpenedFoundAndClosed) {
  const std::string session = OpenSession();
  v1::SessionRef ref;
  ref.set_session_id(session);
  EXPECT_EQ(Ask(&bridge::ControlPlaneClient::GetSession, ref)->surface(), "facade");
  EXPECT_TRUE(Ask(&bridge::ControlPlaneClient::CloseSession, ref).ok());
  const absl::Status gone = Ask(&bridge::ControlPlaneClient::GetSession, ref).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()), HasSubstr(session)) << "the plane's own words";
}

TEST_P(ControlPlaneClientTest, AShortCallHasOneOutcomeAndThenEnds) {
  Invoke(OpenSession(), 10'000);
  EndCall(Dispatched(), 1, R"({"ok":1})");
  const auto outcome = Next(*invoked_);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->outcome().body().inline_(), R"({"ok":1})");
  EXPECT_EQ(outcome->outcome().client_request_id(), "1");
  EXPECT_EQ(Next(*invoked_).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_P(ControlPlaneClientTest, ACallOfAnUnknownSessionIsNotFound) {
  Invoke("nobody", 0);
  EXPECT_EQ(Next(*invoked_).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(ControlPlaneClientTest, WhoLeavesAStreamFindsItAgainByListen) {
  const std::string session = OpenSession();
  Invoke(session, 1);
  const auto accepted = NextButStates();
  ASSERT_TRUE(accepted->has_accepted());
  On([this] { invoked_ = nullptr; });
  EndCall(Dispatched(), 1, R"("kept")");
  v1::ListenRequest request;
  request.set_session_id(session);
  request.set_stream(accepted->accepted().id().stream());
  *request.mutable_after() = accepted->accepted().id();
  On([&] { listened_ = client_->Listen(request); });
  EXPECT_TRUE(Next(*listened_)->has_replaying());
  for (int i = 0; i < 3; ++i) {
    const auto event = Next(*listened_);
    ASSERT_TRUE(event.ok());
    if (event->has_live()) continue;
    if (event->has_outcome()) {
      EXPECT_EQ(event->outcome().body().inline_(), R"("kept")");
      break;
    }
  }
  EXPECT_EQ(Next(*listened_)->end().reason(), "finished");
  EXPECT_EQ(Next(*listened_).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(OnPlane([this] { return plane_->agent().cancels; }), 0);
}

TEST_P(ControlPlaneClientTest, ASecondListenEndsTheFirst) {
  const std::string session = OpenSession();
  v1::ListenRequest request;
  request.set_session_id(session);
  On([&] { listened_ = client_->Listen(request); });
  EXPECT_TRUE(Next(*listened_)->has_replaying());
  EXPECT_TRUE(Next(*listened_)->has_live());
  std::unique_ptr<core::EventSource<v1::ListenEvent>> second;
  On([&] { second = client_->Listen(request); });
  EXPECT_EQ(Next(*listened_)->end().reason(), "taken_over");
  EXPECT_TRUE(Next(*second)->has_replaying());
  On([&] { second = nullptr; });
}

TEST_P(ControlPlaneClientTest, ACancelReachesTheAgent) {
  const std::string session = OpenSession();
  Invoke(session, 10'000, R"("x")");
  Dispatched();
  v1::SendRequest request;
  request.set_session_id(session);
  request.mutable_cancel()->set_client_request_id(R"("x")");
  EXPECT_TRUE(Ask(&bridge::ControlPlaneClient::Send, request)->found());
  EXPECT_EQ(Next(*invoked_)->outcome().reason(), v1::CANCELLED_BY_CLIENT);
}

// The cancel leaves right after its call; between two threads of a server either may be first.
TEST_P(ControlPlaneClientTest, ACancelIsNeverLostByBeingFasterThanItsCall) {
  const std::string session = OpenSession();
  for (int i = 0; i < 300; ++i) {
    v1::InvokeRequest call;
    call.set_session_id(session);
    call.set_client_request_id(std::to_string(i));
    call.mutable_target()->set_seat_id(kSeat);
    call.set_method("ping");
    call.set_run_ms(2'000);
    call.set_open_stream_after_ms(10'000);
    v1::SendRequest cancel;
    cancel.set_session_id(session);
    cancel.mutable_cancel()->set_client_request_id(std::to_string(i));
    On([&] {
      invoked_ = client_->Invoke(std::move(call));
      client_->Send(std::move(cancel), [](const absl::StatusOr<v1::SendResponse>&) {});
    });
    const auto outcome = Next(*invoked_);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ASSERT_EQ(outcome->outcome().reason(), v1::CANCELLED_BY_CLIENT) << "call " << i;
  }
}

TEST_P(ControlPlaneClientTest, SourcesMayBeDestroyedAtAnyMoment) {
  const std::string session = OpenSession();
  for (int i = 0; i < 50; ++i) {
    Invoke(session, i % 2 == 0 ? 0 : 10'000, std::to_string(i));
    if (i % 3 == 0) On([this] { invoked_->Next([](absl::StatusOr<v1::InvokeEvent>) {}); });
    On([this] { invoked_ = nullptr; });
  }
  // Those may all be gone before they left; what is asked now is a call as any other.
  Invoke(session, 10'000, "50", "completion/complete");
  std::optional<v1::Dispatch> last;
  EXPECT_TRUE(Eventually([&] {
    return OnPlane([&] {
      for (const v1::Dispatch& dispatch : plane_->agent().dispatched) {
        if (dispatch.method() == "completion/complete") last = dispatch;
      }
      return last.has_value();
    });
  }));
  ASSERT_TRUE(last.has_value());
  EndCall(*last, 1, R"("done")");
  EXPECT_EQ(Next(*invoked_)->outcome().body().inline_(), R"("done")");
}

TEST_P(ControlPlaneClientTest, RepliesDoNotOutliveTheClient) {
  v1::SessionRef ref;
  ref.set_session_id("nobody");
  bool replied = false;
  On([&] {
    client_->GetSession(ref, [&replied](absl::StatusOr<v1::Session>) { replied = true; });
    client_ = nullptr;
  });
  EXPECT_EQ(replied, GetParam() == Way::kLocal);
}

INSTANTIATE_TEST_SUITE_P(Both, ControlPlaneClientTest, testing::Values(Way::kLocal, Way::kGrpc),
                         [](const auto& way) {
                           return way.param == Way::kLocal ? "Local" : "Grpc";
                         });

// ---- what only a way between can do
// --------------------------------------------------------------

class GrpcClientTest : public ControlPlaneClientTest {
 protected:
  // The plane goes and comes back at the same port, knowing nothing.
  void Kill() {
    port_ = plane_->port();
    plane_ = nullptr;
  }
  void Restart() { plane_ = std::make_unique<Plane>(port_); }
  void ShortWait(absl::Duration wait) {
    On([&] {
      client_ = bridge::MakeGrpcControlPlaneClient(
          own_thread_.loop(),
          {.addresses = {fmt::format("127.0.0.1:{}", plane_->port())}, .connect_wait = wait});
    });
  }
  uint16_t port_ = 0;
};

TEST_P(GrpcClientTest, AnInvokeLostBeforeItsStreamIsOfUnknownOutcome) {
  Invoke(OpenSession(), 60'000);
  Dispatched();
  Kill();
  const absl::Status status = Next(*invoked_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not known"));
}

TEST_P(GrpcClientTest, AnInvokeLostAfterItsStreamWasAcceptedCanBeListenedTo) {
  Invoke(OpenSession(), 1);
  ASSERT_TRUE(NextButStates()->has_accepted());
  Kill();
  auto event = Next(*invoked_);
  while (event.ok()) event = Next(*invoked_);
  EXPECT_EQ(event.status().code(), absl::StatusCode::kUnavailable);
}

TEST_P(GrpcClientTest, WhatIsAskedWhileThePlaneIsAwayWaitsForItAndIsAsked) {
  OpenSession();
  Kill();
  std::promise<absl::StatusOr<v1::ListInstancesResponse>> promise;
  On([&] {
    client_->ListInstances({}, [&](absl::StatusOr<v1::ListInstancesResponse> reply) {
      promise.set_value(std::move(reply));
    });
  });
  Restart();
  const auto reply = promise.get_future().get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->instances_size(), 1);
}

TEST_P(GrpcClientTest, WhatWaitsInVainWasNotStarted) {
  ShortWait(absl::Milliseconds(300));
  OpenSession();
  Kill();
  std::promise<absl::Status> unary;
  On([&] {
    client_->ListInstances({}, [&](const absl::StatusOr<v1::ListInstancesResponse>& reply) {
      unary.set_value(reply.status());
    });
  });
  const absl::Status status = unary.get_future().get();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr(fmt::format("127.0.0.1:{}", port_)),
                             HasSubstr("nothing was started")));
  Invoke("any", 0);
  EXPECT_EQ(Next(*invoked_).status().code(), absl::StatusCode::kUnavailable);
}

TEST_P(GrpcClientTest, ALostWaitForACallIsAskedAgain) {
  Invoke(OpenSession(), 60'000);
  v1::CallRef ref;
  ref.set_call_id(Dispatched().call_id());
  ref.set_wait_ms(60'000);
  std::promise<absl::Status> waited;
  On([&] {
    client_->WaitCall(
        ref, [&](const absl::StatusOr<v1::Call>& call) { waited.set_value(call.status()); });
  });
  Kill();
  Restart();
  // The new plane has no such call: its own word, after the question was asked again.
  EXPECT_EQ(waited.get_future().get().code(), absl::StatusCode::kNotFound);
}

TEST_P(GrpcClientTest, ASlowReaderHoldsUpThePlaneAndNotItsOwnMemory) {
  const std::string session = OpenSession();
  Invoke(session, 1);
  ASSERT_TRUE(NextButStates()->has_accepted());
  const v1::Dispatch dispatch = Dispatched();
  for (uint64_t n = 1; n <= 200; ++n) {
    v1::CallEvent event;
    event.set_call_id(dispatch.call_id());
    event.set_attempt(dispatch.attempt());
    event.set_n(n);
    event.mutable_log()->set_inline_(
        fmt::format(R"({{"level":"info","data":"{}"}})", std::string(8'000, 'x')));
    OnPlane([&] { plane_->agent().Say(std::move(event)); });
  }
  EndCall(dispatch, 201, "1");
  // All arrive in order, however late they are asked for.
  uint64_t last = 0;
  for (;;) {
    const auto event = Next(*invoked_);
    ASSERT_TRUE(event.ok()) << event.status();
    if (event->has_outcome()) break;
    if (!event->has_stream_event()) continue;
    EXPECT_GT(event->stream_event().id().n(), last);
    last = event->stream_event().id().n();
  }
  EXPECT_GT(last, 0u);
}

// Whatever passed ahead of demand: nothing is lost, and nothing is read beyond the outcome.
TEST_P(GrpcClientTest, ManySmallEventsPassTogetherInOrderAndTheirOutcomeIsTheLast) {
  const std::string session = OpenSession();
  Invoke(session, 1);
  ASSERT_TRUE(NextButStates()->has_accepted());
  const v1::Dispatch dispatch = Dispatched();
  constexpr uint64_t kEvents = 2'000;
  OnPlane([&] {
    v1::CallEvent event;
    event.set_call_id(dispatch.call_id());
    event.set_attempt(dispatch.attempt());
    for (uint64_t n = 1; n <= kEvents; ++n) {
      event.set_n(n);
      event.mutable_notification()->set_method("notifications/example");
      event.mutable_notification()->mutable_params()->set_inline_(fmt::format(R"({{"n":{}}})", n));
      plane_->agent().Say(event);
    }
  });
  EndCall(dispatch, kEvents + 1, "1");
  uint64_t seen = 0;
  absl::StatusOr<v1::InvokeEvent> event = NextButStates();
  while (event.ok() && event->has_stream_event()) {
    ++seen;
    ASSERT_EQ(event->stream_event().params(), fmt::format(R"({{"n":{}}})", seen));
    event = NextButStates();
  }
  EXPECT_EQ(seen, kEvents);
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_EQ(event->outcome().body().inline_(), "1");
  EXPECT_EQ(Next(*invoked_).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_P(GrpcClientTest, FiguresTellWhetherThePlaneIsConnectedWithoutBeingAsked) {
  const auto told = [this, port = plane_->port()](const std::string& name, int value) {
    const std::string line = fmt::format(
        "callboard_bridge_control_plane_{}{{address=\"127.0.0.1:{}\"}} {}\n", name, port, value);
    return On([&] {
             core::MetricsText text;
             client_->WriteMetrics(text);
             return text.Take();
           }).find(line) != std::string::npos;
  };
  EXPECT_TRUE(Eventually([&] { return told("up", 1); }));
  EXPECT_TRUE(told("ups_total", 1));
  Kill();
  EXPECT_TRUE(Eventually([&] { return told("up", 0); }));
  EXPECT_TRUE(told("downs_total", 1));
  Restart();
  EXPECT_TRUE(Eventually([&] { return told("up", 1); })) << "it is dialled though nobody asks";
  EXPECT_TRUE(told("ups_total", 2));
  EXPECT_TRUE(told("downs_total", 1));
}

INSTANTIATE_TEST_SUITE_P(OverGrpc, GrpcClientTest, testing::Values(Way::kGrpc),
                         [](const auto&) { return "Grpc"; });

}  // namespace
}  // namespace callboard
