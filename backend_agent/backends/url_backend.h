// A backend behind a URL whose transport is found out: Streamable HTTP first, else HTTP+SSE.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "backend_agent/backend.h"
#include "core/runtime/event_loop.h"
#include "core/runtime/lifetime.h"

namespace callboard::agent {

// As MCP's backwards compatibility has it: initialize is POSTed, and when it is answered with 400,
// 404 or 405 and no JSON-RPC, the same URL is asked for the event stream of 2024-11-05. A stream
// that has been away for `sse_patience` means another server may be there: POST is tried again.
// What was found is believed for kFindingsBelieved: a stream that ends later is not asked for again
// before that. Loop thread only; owns the carrier in use.
class UrlBackend final : public Backend, private Backend::Events {
 public:
  using Make = absl::AnyInvocable<std::unique_ptr<Backend>()>;

  UrlBackend(core::EventLoop& loop, Make make_http, Make make_sse,
             absl::Duration sse_patience = absl::Seconds(5));

  void Start(Backend::Events* events) override;
  std::unique_ptr<BackendExchange> Send(uint64_t id, std::string text, bool expects_reply,
                                        const core::TraceContext& trace) override;
  std::unique_ptr<BackendExchange> SendModern(uint64_t id, std::string text, ModernHeaders headers,
                                              const core::TraceContext& trace) override {
    return carrier_->SendModern(id, std::move(text), std::move(headers), trace);
  }
  bool has_headers() const override { return carrier_->has_headers(); }
  bool may_be_modern() const override { return carrier_->may_be_modern(); }
  void SetRevision(std::string_view revision) override { carrier_->SetRevision(revision); }
  void Probe(absl::AnyInvocable<void(bool alive)> callback) override;
  void Stop(absl::AnyInvocable<void()> done) override;
  bool ends_unanswered_exchanges() const override { return carrier_->ends_unanswered_exchanges(); }
  std::unique_ptr<Backend> OpenAnother() override { return carrier_->OpenAnother(); }
  bool may_open_another() const override { return carrier_->may_open_another(); }
  std::string description() const override { return carrier_->description(); }
  int64_t pid() const override { return carrier_->pid(); }

 private:
  void OnUp() override;
  void OnDown(BackendExit exit) override;
  void OnMessage(Payload message, uint64_t exchange) override;
  void OnExchangeEnd(uint64_t id, absl::Status status, bool reached) override;
  void OnRejoined() override { events_->OnRejoined(); }
  void OnSessionForgotten() override { events_->OnSessionForgotten(); }

  void SwitchLater(bool to_sse, std::string why);
  void Switch(bool to_sse, std::string why);

  core::EventLoop& loop_;
  Make make_http_;
  Make make_sse_;
  const absl::Duration sse_patience_;
  Backend::Events* events_ = nullptr;
  std::unique_ptr<Backend> carrier_;
  bool sse_ = false;
  absl::Time found_sse_ = absl::InfinitePast();  // when POST was refused
  bool up_ = false;
  bool switching_ = false;
  core::Timer patience_;
  core::Lifetime lifetime_;
};

}  // namespace callboard::agent
