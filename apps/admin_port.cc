// Implementation of AdminPort.
#include "apps/admin_port.h"

#include <fmt/format.h>

#include <utility>

#include "absl/strings/match.h"
#include "core/runtime/strings.h"
#include "core/telemetry/process_metrics.h"
#include "net/authority.h"

namespace callboard::apps {
namespace {

constexpr size_t kShownBytesMax = 100;

net::HttpServerLimits MakeLimits() {
  net::HttpServerLimits limits;
  limits.connections_max = 32;
  limits.body_bytes_max = 4 * 1024;
  return limits;
}

bool IsLoopbackHost(std::string_view host) {
  return host == "127.0.0.1" || host == "[::1]" || host == "::1" ||
         absl::EqualsIgnoreCase(core::ToAbsl(host), "localhost");
}

void Respond(net::HttpResponder& responder, int status, std::string text,
             net::HeaderList headers = {}) {
  headers.emplace_back("Content-Type", "text/plain; charset=utf-8");
  responder.Respond(status, std::move(headers), std::move(text.append("\n")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminPort>> AdminPort::Open(core::AsioEventLoop& loop,
                                                           const AdminSettings& settings,
                                                           Collect collect) {
  if (!settings.port) return nullptr;
  auto listener = net::ListenTcp(loop, settings.host, *settings.port);
  if (!listener.ok()) {
    return core::MakeError(listener.status().code(),
                           fmt::format("admin port: {}; give another with --admin-port, or off",
                                       core::Message(listener.status())));
  }
  return std::unique_ptr<AdminPort>(
      new AdminPort(loop, settings.host, *std::move(listener), std::move(collect)));
}

AdminPort::AdminPort(core::AsioEventLoop& loop, std::string host, net::TcpListener listener,
                     Collect collect)
    : host_(std::move(host)),
      listener_(std::move(listener)),
      collect_(std::move(collect)),
      http_(loop, MakeLimits(),
            [this](const net::HttpRequest& request,
                   const std::shared_ptr<net::HttpResponder>& responder) {
              Handle(request, *responder);
            }) {}

void AdminPort::Serve(const core::Watchdog& watchdog) {
  watchdog_ = &watchdog;
  http_.Serve(std::move(listener_.listener));
}

std::string AdminPort::address() const { return fmt::format("{}:{}", host_, port()); }

bool AdminPort::MayAsk(const net::HttpRequest& request) const {
  if (request.Header("Origin") != nullptr) return false;
  const std::string* const host = request.Header("Host");
  return host == nullptr || !IsLoopbackHost(host_) || IsLoopbackHost(net::HostOf(*host));
}

void AdminPort::Handle(const net::HttpRequest& request, net::HttpResponder& responder) {
  if (!MayAsk(request)) {
    return Respond(responder, 403,
                   "web pages and other host names than those of loopback are not served here; "
                   "admin.host is what this port listens on");
  }
  if (request.path() != "/metrics") {
    return Respond(responder, 404,
                   fmt::format("no path '{}' here; there is: /metrics",
                               std::string_view(request.path()).substr(0, kShownBytesMax)));
  }
  if (request.method != "GET") {
    return Respond(responder, 405, "only GET is allowed here", {{"Allow", "GET"}});
  }
  responder.Respond(200, {{"Content-Type", std::string(core::MetricsText::kContentType)}},
                    Figures());
}

std::string AdminPort::Figures() {
  core::MetricsText text;
  core::WriteProcessMetrics(text);
  text.Gauge("callboard_loop_lag_seconds",
             "The longest delay of the program's loop in the last 10 to 20 s.")
      .Sample(watchdog_->loop_lag());
  collect_(text);
  return text.Take();
}

std::string AdminAddress(const std::unique_ptr<AdminPort>& admin) {
  return admin == nullptr ? "off" : admin->address();
}

}  // namespace callboard::apps
