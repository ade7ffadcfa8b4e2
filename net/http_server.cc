// Implementation of HttpServer: accepts, counts, drains; and of the request's accessors.
#include "net/http_server.h"

#include <map>
#include <utility>
#include <vector>

#include "net/http_connection.h"
#include "net/http_parser.h"

namespace callboard::net {

const std::string* HttpRequest::Header(std::string_view name) const {
  return FindHeader(headers, name);
}

std::string_view HttpRequest::path() const {
  std::string_view path = target;
  // The absolute form that proxies use (RFC 9112 3.2.2).
  if (path.starts_with("http://") || path.starts_with("https://")) {
    const size_t slash = path.find('/', path.find("://") + 3);
    path = slash == std::string_view::npos ? std::string_view("/") : path.substr(slash);
  }
  return path.substr(0, path.find('?'));
}

std::string_view HttpRequest::query() const {
  const size_t mark = target.find('?');
  return mark == std::string::npos ? std::string_view() : std::string_view(target).substr(mark + 1);
}

std::string_view HttpReason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 425:
      return "Too Early";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

struct HttpServer::State final : HttpConnectionHost, std::enable_shared_from_this<State> {
  State(core::EventLoop& event_loop, HttpServerLimits server_limits, Handler request_handler)
      : loop(event_loop), limits(server_limits), handler(std::move(request_handler)) {}

  void OnAccept(std::unique_ptr<ByteStream> stream) {
    if (draining || connections.size() >= limits.connections_max) {
      ++refused;
      return;
    }
    const uint64_t id = ++last_id;
    auto connection =
        std::make_shared<HttpConnection>(loop, limits, id, weak_from_this(), std::move(stream));
    connections.emplace(id, connection);
    connection->Start();
  }

  void OnRequest(HttpRequest request, std::shared_ptr<HttpResponder> responder) override {
    handler(std::move(request), std::move(responder));
  }
  void OnClosed(uint64_t connection_id) override { connections.erase(connection_id); }

  // Closing one may end others, through what the handler's objects do in their destructors.
  std::vector<std::shared_ptr<HttpConnection>> Snapshot() const {
    std::vector<std::shared_ptr<HttpConnection>> all;
    all.reserve(connections.size());
    for (const auto& [id, connection] : connections) all.push_back(connection);
    return all;
  }

  core::EventLoop& loop;
  const HttpServerLimits limits;
  Handler handler;
  bool draining = false;
  uint64_t refused = 0;
  uint64_t last_id = 0;
  std::vector<std::unique_ptr<Listener>> listeners;
  std::map<uint64_t, std::shared_ptr<HttpConnection>> connections;
};

HttpServer::HttpServer(core::EventLoop& loop, HttpServerLimits limits, Handler handler)
    : state_(std::make_shared<State>(loop, limits, std::move(handler))) {}

HttpServer::~HttpServer() {
  state_->draining = true;
  state_->listeners.clear();
  for (const auto& connection : state_->Snapshot()) connection->Close();
}

void HttpServer::Serve(std::unique_ptr<Listener> listener) {
  Listener& started = *listener;
  state_->listeners.push_back(std::move(listener));
  started.Start([state = std::weak_ptr<State>(state_)](std::unique_ptr<ByteStream> stream) {
    if (auto alive = state.lock()) alive->OnAccept(std::move(stream));
  });
}

void HttpServer::Drain() {
  state_->draining = true;
  state_->listeners.clear();
  for (const auto& connection : state_->Snapshot()) connection->Drain();
}

size_t HttpServer::connections() const { return state_->connections.size(); }
uint64_t HttpServer::connections_refused() const { return state_->refused; }

}  // namespace callboard::net
