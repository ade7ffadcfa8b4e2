// Implementation of the parsers and of header look-up.
#include "net/http_parser.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace callboard::net {

namespace {

// Bytes of a body reserved before any arrived; the whole announced length once so many have come.
constexpr size_t kFirstReserveBytes = 64 * 1024;

// The shortest thing that can follow a chunk: "0\r\n\r\n".
constexpr size_t kShortestChunkBytes = 5;

std::string_view ToStd(boost::beast::string_view text) { return {text.data(), text.size()}; }

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

const std::string* FindHeader(const HeaderList& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (EqualsIgnoringCase(key, name)) return &value;
  }
  return nullptr;
}

void AppendHeader(std::string& head, std::string_view name, std::string_view value) {
  const size_t begin = head.size();
  head.append(name).append(": ").append(value);
  std::replace_if(
      head.begin() + static_cast<std::ptrdiff_t>(begin), head.end(),
      [](char c) { return c == '\r' || c == '\n' || c == '\0'; }, ' ');
  head.append("\r\n");
}

template <bool kIsRequest>
HttpParser<kIsRequest>::HttpParser(size_t header_bytes_max) : header_bytes_max_(header_bytes_max) {
  this->header_limit(static_cast<std::uint32_t>(
      std::min<size_t>(header_bytes_max, std::numeric_limits<std::uint32_t>::max())));
}

template <bool kIsRequest>
size_t HttpParser<kIsRequest>::Feed(std::string_view bytes, BeastError& ec) {
  // Beast asserts that a last chunk it has begun to parse comes back with at least its shortest
  // length; waiting for that many bytes loses nothing, as no message ends with fewer.
  if (between_chunks_ && bytes.size() < kShortestChunkBytes) {
    ec = beast_http::error::need_more;
    return 0;
  }
  return this->put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
}

template <bool kIsRequest>
void HttpParser<kIsRequest>::CountHeadBytes(size_t bytes, BeastError& ec) {
  head_bytes_ += bytes;
  if (head_bytes_ > header_bytes_max_) ec = beast_http::error::header_limit;
}

template <bool kIsRequest>
void HttpParser<kIsRequest>::on_field_impl(beast_http::field name, View name_text, View value,
                                           BeastError& ec) {
  // ": " and the line end.
  CountHeadBytes(name_text.size() + value.size() + 4, ec);
  if (ec || this->is_header_done()) return;  // trailers are counted and dropped
  if (name == beast_http::field::transfer_encoding &&
      (!http11_ || !EqualsIgnoringCase(ToStd(value), "chunked"))) {
    ec = beast_http::error::bad_transfer_encoding;
    return;
  }
  headers_.emplace_back(ToStd(name_text), ToStd(value));
}

template <bool kIsRequest>
void HttpParser<kIsRequest>::on_header_impl(BeastError&) {
  between_chunks_ = this->chunked();
}

template <bool kIsRequest>
void HttpParser<kIsRequest>::on_body_init_impl(const boost::optional<std::uint64_t>& length,
                                               BeastError&) {
  if (length) OnContentLength(*length);
}

template <bool kIsRequest>
std::size_t HttpParser<kIsRequest>::on_body_impl(View body, BeastError&) {
  OnBodyPiece(ToStd(body));
  return body.size();
}

template <bool kIsRequest>
void HttpParser<kIsRequest>::on_chunk_header_impl(std::uint64_t size, View, BeastError&) {
  between_chunks_ = size == 0;
}

template <bool kIsRequest>
std::size_t HttpParser<kIsRequest>::on_chunk_body_impl(std::uint64_t remain, View body,
                                                       BeastError&) {
  between_chunks_ = remain == body.size();
  OnBodyPiece(ToStd(body));
  return body.size();
}

template <bool kIsRequest>
void HttpParser<kIsRequest>::on_finish_impl(BeastError&) {
  between_chunks_ = false;
}

template class HttpParser<true>;
template class HttpParser<false>;

RequestParser::RequestParser(size_t header_bytes_max, size_t body_bytes_max)
    : HttpParser(header_bytes_max) {
  body_limit(body_bytes_max);
  eager(true);
  headers_.reserve(12);
}

void RequestParser::on_request_impl(beast_http::verb, boost::beast::string_view method_text,
                                    boost::beast::string_view target, int version, BeastError& ec) {
  request_.method = ToStd(method_text);
  request_.target = ToStd(target);
  http11_ = version >= 11;
  CountHeadBytes(method_text.size() + target.size() + 12, ec);
}

void RequestParser::OnBodyPiece(std::string_view piece) {
  std::string& body = request_.body;
  if (body.empty()) {
    body.reserve(std::min<size_t>(std::max<size_t>(content_length_, piece.size()),
                                  std::max(kFirstReserveBytes, piece.size())));
  } else if (body.size() + piece.size() > body.capacity() && content_length_ > body.capacity()) {
    body.reserve(content_length_);
  }
  body.append(piece);
}

HttpRequest RequestParser::TakeRequest() {
  request_.headers = std::move(headers_);
  return std::move(request_);
}

std::string_view RequestParser::HeaderSoFar(std::string_view name) const {
  const std::string* value = FindHeader(headers_, name);
  return value != nullptr ? std::string_view(*value) : std::string_view();
}

bool RequestParser::expects_continue() const {
  return http11_ && EqualsIgnoringCase(HeaderSoFar("Expect"), "100-continue");
}

ResponseParser::ResponseParser(size_t header_bytes_max, bool no_body)
    : HttpParser(header_bytes_max) {
  body_limit(boost::none);
  skip(no_body);
}

void ResponseParser::on_response_impl(int code, boost::beast::string_view reason, int version,
                                      BeastError& ec) {
  if (code < 100) {
    ec = beast_http::error::bad_status;
    return;
  }
  status_ = code;
  http11_ = version >= 11;
  CountHeadBytes(reason.size() + 15, ec);
}

HttpResponseHead ResponseParser::TakeHead() {
  HttpResponseHead head;
  head.status = status_;
  if (auto length = content_length()) head.content_length = *length;
  head.headers = std::move(headers_);
  return head;
}

}  // namespace callboard::net
