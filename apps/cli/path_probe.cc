// Implementation of the path's examination: two streams on a loop of its own.
#include "apps/cli/path_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

#include "core/runtime/asio_event_loop.h"
#include "core/runtime/strings.h"
#include "net/http_client.h"
#include "net/tcp.h"

namespace callboard::apps {
namespace {

// The bridge writes the first byte at once, then one comment a second.
constexpr absl::Duration kBeatsWatched = absl::Seconds(6);
constexpr absl::Duration kLateFirst = absl::Seconds(2);
constexpr absl::Duration kLateBeat = absl::Milliseconds(2500);
constexpr size_t kTextBytesMax = 64 * 1024;
constexpr std::string_view kMark = "probe heartbeat_ms=";
constexpr std::string_view kNginx =
    "nginx: proxy_buffering off, proxy_http_version 1.1, gzip off; see deploy/nginx/callboard.conf";

struct Place {
  std::string host;
  uint16_t port = 80;
  std::string authority;
  std::string path = "/mcp";
};

std::optional<Place> ParseUrl(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return std::nullopt;
  url.remove_prefix(kScheme.size());
  Place place;
  const size_t slash = url.find('/');
  place.authority = url.substr(0, slash);
  if (slash != std::string_view::npos && url.size() > slash + 1) place.path = url.substr(slash);
  place.host = place.authority;
  const size_t colon = place.authority.rfind(':');
  if (colon != std::string::npos && place.authority.find(']', colon) == std::string::npos) {
    place.host = place.authority.substr(0, colon);
    const std::string_view port = std::string_view(place.authority).substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), place.port);
    if (error != std::errc() || end != port.data() + port.size()) return std::nullopt;
  }
  if (place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']') {
    place.host = place.host.substr(1, place.host.size() - 2);
  }
  if (place.host.empty()) return std::nullopt;
  return place;
}

// One probe, as it is seen from here.
class ProbeStream final : public net::HttpResponseSink {
 public:
  ProbeStream(core::EventLoop& loop, net::HttpClient& client, const Place& place,
              std::string_view kind, absl::AnyInvocable<void()> on_end)
      : loop_(loop), begin_(loop.Now()), on_end_(std::move(on_end)) {
    last_byte_ = begin_;
    exchange_ = client.Send("GET", place.path,
                            {{"Accept", "text/event-stream"},
                             {"Accept-Encoding", "gzip, br"},
                             {"x-callboard-probe", std::string(kind)}},
                            "", this);
  }

  void OnHead(net::HttpResponseHead head) override { head_ = std::move(head); }
  void OnBody(std::string_view piece) override {
    const absl::Time now = loop_.Now();
    if (!first_) first_ = now - begin_;
    gap_max_ = std::max(gap_max_, now - last_byte_);
    last_byte_ = now;
    if (text_.size() < kTextBytesMax) text_.append(piece);
  }
  void OnEnd(absl::Status status, bool) override {
    end_ = std::move(status);
    silence_ = loop_.Now() - last_byte_;
    if (on_end_) on_end_();
  }
  // No more is wanted of it.
  void Stop() {
    gap_max_ = std::max(gap_max_, loop_.Now() - last_byte_);
    exchange_.reset();
    on_end_ = nullptr;
  }

  const net::HttpResponseHead& head() const { return head_; }
  std::optional<absl::Duration> first() const { return first_; }
  absl::Duration gap_max() const { return gap_max_; }
  const std::optional<absl::Status>& end() const { return end_; }
  // Before its end.
  absl::Duration silence() const { return silence_; }
  std::optional<absl::Duration> heartbeat() const {
    const size_t mark = text_.find(kMark);
    if (mark == std::string::npos) return std::nullopt;
    int64_t ms = 0;
    const char* const begin = text_.data() + mark + kMark.size();
    if (std::from_chars(begin, text_.data() + text_.size(), ms).ec != std::errc()) {
      return std::nullopt;
    }
    return absl::Milliseconds(ms);
  }

 private:
  core::EventLoop& loop_;
  const absl::Time begin_;
  absl::AnyInvocable<void()> on_end_;
  net::HttpResponseHead head_;
  std::optional<absl::Duration> first_;
  absl::Duration gap_max_;
  absl::Time last_byte_;
  absl::Duration silence_;
  std::optional<absl::Status> end_;
  std::string text_;
  std::unique_ptr<net::HttpExchange> exchange_;
};

std::string Shown(absl::Duration duration) {
  return fmt::format("{:.1f} s", absl::ToDoubleSeconds(duration));
}

// Whether there is a stream at all that can be judged.
bool TellHead(Examination& doctor, const std::string& url, const ProbeStream& beats) {
  const int status = beats.head().status;
  if (status == 0 && beats.end()) {
    doctor.Tell("path", false, core::Message(*beats.end()),
                "is that the URL clients are given, and is callboardd behind it?", kExitPath);
    return false;
  }
  if (status != 0 && status != 200) {
    doctor.Tell("path", false, fmt::format("{} answers {}", url, status),
                "give the URL of a bridge's /mcp; 503: too many probes, try again later",
                kExitPath);
    return false;
  }
  if (status == 0) return true;
  const std::string* const type = beats.head().Header("Content-Type");
  const std::string* const encoding = beats.head().Header("Content-Encoding");
  const bool plain = type != nullptr && *type == "text/event-stream" && encoding == nullptr;
  doctor.Tell("stream head", plain,
              fmt::format("Content-Type {}, Content-Encoding {}", type == nullptr ? "none" : *type,
                          encoding == nullptr ? "none" : *encoding),
              fmt::format("the path changes streams; let it pass them as they are ({})", kNginx),
              kExitPath);
  return true;
}

void TellBuffering(Examination& doctor, const ProbeStream& beats) {
  const bool late = !beats.first() || *beats.first() > kLateFirst;
  const std::string first = beats.first() ? fmt::format("after {}", Shown(*beats.first()))
                                          : fmt::format("not within {}", Shown(kBeatsWatched));
  doctor.Tell(
      "buffering", !late && beats.gap_max() <= kLateBeat,
      fmt::format("first byte {}, then at most {} between two beats; the bridge writes the first "
                  "at once and one a second",
                  first, Shown(beats.gap_max())),
      fmt::format("the path holds the bytes of streams back until a buffer is full; {}", kNginx),
      kExitPath);
}

void TellIdleTimeout(Examination& doctor, const ProbeStream& silent, const ProbeStream& beats,
                     absl::Duration watched) {
  constexpr double kShareOfIdle = 0.4;  // as bridge::HeartbeatFor
  const auto heartbeat = silent.heartbeat() ? silent.heartbeat() : beats.heartbeat();
  const std::string beat = heartbeat
                               ? fmt::format("the bridge's heartbeat is {}", Shown(*heartbeat))
                               : std::string("the bridge's heartbeat did not get through");
  if (!silent.end()) {
    return doctor.Tell("idle time-out", true,
                       fmt::format("none within {} of silence; {}", Shown(watched), beat), "",
                       kExitPath);
  }
  const auto idle = absl::Seconds(
      std::max<int64_t>(1, static_cast<int64_t>(absl::ToDoubleSeconds(silent.silence()) + 0.5)));
  const bool holds = heartbeat && *heartbeat <= silent.silence() * kShareOfIdle + absl::Seconds(1);
  doctor.Tell(
      "idle time-out", holds,
      fmt::format("the path cuts a stream after {} of silence; {}{}", Shown(silent.silence()), beat,
                  holds ? ", which holds streams open" : ""),
      fmt::format("set bridge.path_idle_timeouts={} at callboardd (the heartbeat becomes 40 % of "
                  "it), or raise it on the path (nginx: proxy_read_timeout 1h, proxy_send_timeout "
                  "1h)",
                  absl::FormatDuration(idle)),
      kExitPath);
}

}  // namespace

void ExaminePath(Examination& doctor, const std::string& url, absl::Duration silence) {
  const auto place = ParseUrl(url);
  if (!place) {
    return doctor.Tell("path", false, fmt::format("'{}' is no URL this can measure", url),
                       "give one such as http://tools.studio.example:9765/mcp; https is not spoken",
                       kExitUsage);
  }
  core::AsioEventLoop loop;
  net::HttpClient client(loop, net::MakeTcpConnector(loop, place->host, place->port),
                         place->authority, {});
  bool beats_over = false;
  bool silent_over = false;
  const auto stop_if_over = [&] {
    if (beats_over && silent_over) loop.Stop();
  };
  ProbeStream beats(loop, client, *place, "beats", [&] {
    beats_over = true;
    // Where the first probe fails the second would as well.
    if (beats.head().status != 200) loop.Stop();
    stop_if_over();
  });
  ProbeStream silent(loop, client, *place, "silent", [&] {
    silent_over = true;
    stop_if_over();
  });
  const core::Timer beats_end = loop.After(kBeatsWatched, [&] {
    beats.Stop();
    beats_over = true;
    stop_if_over();
  });
  const core::Timer silent_end = loop.After(silence, [&] {
    silent.Stop();
    silent_over = true;
    stop_if_over();
  });
  loop.Run();
  if (!TellHead(doctor, url, beats)) return;
  TellBuffering(doctor, beats);
  TellIdleTimeout(doctor, silent, beats, silence);
}

}  // namespace callboard::apps
