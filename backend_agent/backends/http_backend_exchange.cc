// Implementation of one message to an HttpBackend.
#include "backend_agent/backends/http_backend_exchange.h"

#include <algorithm>
#include <utility>

#include "backend_agent/backends/trace_headers.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/strings.h"
#include "fmt/format.h"

namespace callboard::agent {

namespace {

// Of an error answer that is not for us, as much as a person wants to read.
constexpr size_t kErrorTextMax = 512;
constexpr int kRedirectsMax = 3;

absl::Status TooLarge(uint64_t size, uint64_t limit) {
  return core::MakeError(
      absl::StatusCode::kResourceExhausted,
      fmt::format("result of {} bytes exceeds the limit of {} bytes", size, limit));
}

}  // namespace

HttpBackend::Exchange::Exchange(HttpBackend* backend, uint64_t id, std::string text,
                                bool expects_reply, core::TraceContext trace,
                                net::HeaderList modern_headers)
    : backend_(backend),
      id_(id),
      expects_reply_(expects_reply),
      text_(std::move(text)),
      trace_(std::move(trace)),
      modern_headers_(std::move(modern_headers)),
      body_(backend->spool_, backend->config_.result_bytes_max) {}

HttpBackend::Exchange::~Exchange() {
  if (!over_) backend_->exchanges_.erase(id_);
}

void HttpBackend::Exchange::Post() {
  if (!modern()) {
    session_ = backend_->session_;
    session_headers_ = backend_->MessageHeaders();
    had_revision_ = !backend_->revision_.empty();
  }
  net::HeaderList headers = modern() ? modern_headers_ : session_headers_;
  headers.emplace_back("Content-Type", "application/json");
  headers.emplace_back("Accept", "application/json, text/event-stream");
  AddTraceHeaders(trace_, &headers);
  http_ = backend_->client_.Send("POST", backend_->path_, std::move(headers), text_, this);
}

void HttpBackend::Exchange::Drop() {
  over_ = true;
  backend_ = nullptr;
  resume_timer_.Cancel();
  check_.reset();
  http_.reset();
}

// ---- the answer -------------------------------------------------------------------------------

void HttpBackend::Exchange::OnHead(net::HttpResponseHead head) {
  if (over_) return;
  backend_->OnAnswered();
  status_ = head.status;
  if (const std::string* location = head.Header("location"); location != nullptr) {
    location_ = *location;
  }
  if (status_ / 100 != 3) text_ = std::string();
  const std::string* session = head.Header("mcp-session-id");
  if (session != nullptr && status_ < 300 && !resuming_ && !modern()) backend_->session_ = *session;
  const std::string* type = head.Header("content-type");
  const uint64_t limit = backend_->config_.result_bytes_max;
  if (type != nullptr && type->starts_with("text/event-stream") && status_ < 300) {
    sse_.emplace(backend_->spool_, limit);
  } else if (resuming_) {
    // There is nothing to resume any more; the call may have run all the same.
    EndEarly(lost_);
  } else if (head.content_length && *head.content_length > limit) {
    EndEarly(TooLarge(*head.content_length, limit));
  }
}

void HttpBackend::Exchange::OnBody(std::string_view piece) {
  if (over_) return;
  absl::Status status;
  if (sse_) {
    status = sse_->Feed(piece, [this](Payload message) { TakeMessage(std::move(message)); });
    if (!sse_->last_id().empty() && sse_->last_id() != last_id_) {
      last_id_ = sse_->last_id();
      resumes_ = 0;
    }
    if (sse_->retry()) server_retry_ = sse_->retry();
  } else {
    status = body_.Append(piece);
  }
  if (!status.ok()) EndEarly(std::move(status));
}

void HttpBackend::Exchange::TakeMessage(Payload message) {
  // Only where it matters, since it reads the message once more.
  if (!last_id_.empty() || !sse_->last_id().empty()) {
    const auto parsed = core::ParseJsonRpc(message.view(), false);
    answered_ = answered_ || (parsed.ok() && parsed->id == fmt::format("{}", id_) &&
                              (parsed->kind == core::JsonRpcMessage::Kind::kResult ||
                               parsed->kind == core::JsonRpcMessage::Kind::kError));
  }
  backend_->PostMessage(std::move(message), id_);
}

void HttpBackend::Exchange::OnEnd(absl::Status status, bool reached) {
  if (over_) return;
  if (sse_ || resuming_) {
    if (!resuming_) lost_ = status;
    if (CanResume()) return ResumeLater(std::move(status));
    if (!status.ok()) backend_->Ask();
    return End(resuming_ && !answered_ ? lost_ : std::move(status), true);
  }
  if (!status.ok()) {
    // Refused, or broken off: is anybody there?
    backend_->Ask();
    return End(std::move(status), reached);
  }
  reply_ = body_.Take();
  if (had_revision_ && SessionCheck::MaySaySo(status_, reply_.view())) return CheckSession();
  status = status_ / 100 == 3 ? JudgeRedirect() : Judge();
  if (status.ok() && status_ / 100 == 3) {
    ++redirects_;
    // Later: this is inside the exchange that would go.
    backend_->loop_.Post(lifetime_.Wrap([this] {
      if (!over_) Post();
    }));
    return;
  }
  if (status.ok() && !expects_reply_) backend_->OnNotificationTaken();
  End(std::move(status), true);
}

absl::Status HttpBackend::Exchange::Judge() {
  Payload body = std::move(reply_);
  std::string_view text = body.view();
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  if (status_ == 404 && !session_.empty()) return SessionForgotten();
  if (status_ < 300) {
    if (core::IsObject(text) || core::IsArray(text)) {
      backend_->PostMessage(std::move(body), id_);
    } else if (!text.empty()) {
      return core::MakeError(
          absl::StatusCode::kInternal,
          fmt::format("the backend answered HTTP {} with a body that is no JSON object: {}",
                      status_, text.substr(0, kErrorTextMax)));
    }
    return absl::OkStatus();
  }
  if (auto message = core::ParseJsonRpc(text, true);
      message.ok() && message->kind == core::JsonRpcMessage::Kind::kError &&
      message->id == fmt::format("{}", id_)) {
    backend_->PostMessage(std::move(body), id_);
    return absl::OkStatus();
  }
  // Nobody who speaks Streamable HTTP answers initialize like that: maybe HTTP+SSE of 2024-11-05.
  const bool no_streamable_http =
      !modern() && !had_revision_ && (status_ == 400 || status_ == 404 || status_ == 405);
  return core::MakeError(
      no_streamable_http ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInternal,
      fmt::format("the backend answered HTTP {} {}: {}", status_, net::HttpReason(status_),
                  text.substr(0, kErrorTextMax)));
}

absl::Status HttpBackend::Exchange::SessionForgotten() {
  // Unless there is a newer one already.
  if (backend_->session_ == session_) backend_->session_.clear();
  return absl::NotFoundError("the backend does not know the MCP session any more");
}

void HttpBackend::Exchange::CheckSession() {
  check_ = std::make_unique<SessionCheck>(
      backend_->loop_, backend_->client_, backend_->path_, session_headers_,
      backend_->config_.probe_timeout,
      [this](bool forgotten) { End(forgotten ? SessionForgotten() : Judge(), true); });
}

absl::Status HttpBackend::Exchange::JudgeRedirect() {
  const auto path = PathWithin(backend_->config_.url, location_);
  if ((status_ == 307 || status_ == 308) && path && redirects_ < kRedirectsMax) {
    backend_->path_ = *path;
    return absl::OkStatus();
  }
  // The next one begins where it is configured, not where this one got to.
  backend_->path_ = backend_->config_.url.path;
  return core::MakeError(
      absl::StatusCode::kInternal,
      fmt::format("the backend answered HTTP {} {} with a redirect to '{}', which is not followed; "
                  "configure the URL it leads to",
                  status_, net::HttpReason(status_), location_.substr(0, kErrorTextMax)));
}

// ---- resuming ---------------------------------------------------------------------------------

bool HttpBackend::Exchange::CanResume() const {
  return expects_reply_ && !modern() && !answered_ && !last_id_.empty() && backend_->up_ &&
         resumes_ < backend_->config_.resumes_max;
}

void HttpBackend::Exchange::ResumeLater(absl::Status status) {
  if (!status.ok()) backend_->Ask();
  const HttpBackendConfig& config = backend_->config_;
  absl::Duration wait = server_retry_.value_or(config.resume_wait);
  if (resumes_ > 0) wait = std::max(wait, config.resume_wait) * (1 << (resumes_ - 1));
  ++resumes_;
  resuming_ = true;
  sse_.reset();
  resume_timer_ =
      backend_->loop_.After(std::min(wait, config.resume_wait_max), [this] { Resume(); });
}

void HttpBackend::Exchange::Resume() {
  net::HeaderList headers = backend_->MessageHeaders();
  headers.emplace_back("Accept", "text/event-stream");
  headers.emplace_back("Last-Event-ID", last_id_);
  http_ = backend_->client_.Send("GET", backend_->path_, std::move(headers), "", this);
}

// ---- the end ----------------------------------------------------------------------------------

void HttpBackend::Exchange::End(absl::Status status, bool reached) {
  over_ = true;
  backend_->exchanges_.erase(id_);
  backend_->PostEnd(id_, std::move(status), reached);
}

void HttpBackend::Exchange::EndEarly(absl::Status status) {
  End(std::move(status), true);
  backend_->loop_.Post(lifetime_.Wrap([this] { http_.reset(); }));
}

}  // namespace callboard::agent
