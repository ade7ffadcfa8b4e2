// The admin port of a program: its figures for Prometheus, away from what clients use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "apps/program_settings.h"
#include "core/runtime/asio_event_loop.h"
#include "core/runtime/watchdog.h"
#include "core/telemetry/metrics_text.h"
#include "net/http_server.h"
#include "net/tcp.h"

namespace callboard::apps {

// GET /metrics, answered on the loop. On a loopback address only the names of that address are
// taken for a Host, and no request of a web page is answered anywhere. Loop thread; owned by
// main(); what `collect` reads outlives it. Bounds: a few connections, small requests.
class AdminPort {
 public:
  // Writes the program's own metrics; those of the process and of the loop are added.
  using Collect = absl::AnyInvocable<void(core::MetricsText&)>;

  // Takes the port, or fails with a sentence that names it. nullptr if there is to be none.
  static absl::StatusOr<std::unique_ptr<AdminPort>> Open(core::AsioEventLoop& loop,
                                                         const AdminSettings& settings,
                                                         Collect collect);

  // Answers from now on.
  void Serve(const core::Watchdog& watchdog);

  uint16_t port() const { return listener_.port; }
  // "127.0.0.1:9767"
  std::string address() const;

 private:
  AdminPort(core::AsioEventLoop& loop, std::string host, net::TcpListener listener,
            Collect collect);
  void Handle(const net::HttpRequest& request, net::HttpResponder& responder);
  bool MayAsk(const net::HttpRequest& request) const;
  std::string Figures();

  const std::string host_;
  net::TcpListener listener_;
  Collect collect_;
  const core::Watchdog* watchdog_ = nullptr;
  net::HttpServer http_;
};

// For logs and ready lines: the address, or "off".
std::string AdminAddress(const std::unique_ptr<AdminPort>& admin);

}  // namespace callboard::apps
