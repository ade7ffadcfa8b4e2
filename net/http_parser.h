// Beast's HTTP/1.1 parsers without its I/O, filling our own types. Included only inside net.
#pragma once

#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "net/http_client.h"
#include "net/http_server.h"

namespace callboard::net {

namespace beast_http = boost::beast::http;
using BeastError = boost::beast::error_code;

// What both parsers share: the header list, its bound and the trailer rule. One object per message.
template <bool kIsRequest>
class HttpParser : public beast_http::basic_parser<kIsRequest> {
 public:
  // Parses as much of `bytes` as possible and returns how many were consumed; the rest must come
  // again with more behind it. `ec` need_more asks for that, other values are final.
  size_t Feed(std::string_view bytes, BeastError& ec);

  // Bytes of the head parsed so far.
  size_t head_bytes() const { return head_bytes_; }

 protected:
  explicit HttpParser(size_t header_bytes_max);

  virtual void OnBodyPiece(std::string_view piece) = 0;
  virtual void OnContentLength(uint64_t length) = 0;
  void CountHeadBytes(size_t bytes, BeastError& ec);

  HeaderList headers_;
  bool http11_ = true;

 private:
  using View = boost::beast::string_view;

  void on_field_impl(beast_http::field name, View name_text, View value, BeastError& ec) override;
  void on_header_impl(BeastError& ec) override;
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, BeastError& ec) override;
  std::size_t on_body_impl(View body, BeastError& ec) override;
  void on_chunk_header_impl(std::uint64_t size, View extensions, BeastError& ec) override;
  std::size_t on_chunk_body_impl(std::uint64_t remain, View body, BeastError& ec) override;
  void on_finish_impl(BeastError& ec) override;

  size_t header_bytes_max_;
  size_t head_bytes_ = 0;
  bool between_chunks_ = false;
};

class RequestParser final : public HttpParser<true> {
 public:
  RequestParser(size_t header_bytes_max, size_t body_bytes_max);

  // The whole request; valid once is_done().
  HttpRequest TakeRequest();
  bool http11() const { return http11_; }
  // The client waits for "100 Continue" before it sends its body.
  bool expects_continue() const;
  // Value of a header of the request so far.
  std::string_view HeaderSoFar(std::string_view name) const;

 private:
  void on_request_impl(beast_http::verb method, boost::beast::string_view method_text,
                       boost::beast::string_view target, int version, BeastError& ec) override;
  void on_response_impl(int, boost::beast::string_view, int, BeastError&) override {}
  void OnBodyPiece(std::string_view piece) override;
  void OnContentLength(uint64_t length) override { content_length_ = length; }

  HttpRequest request_;
  uint64_t content_length_ = 0;
};

// One element (head, chunk head, body piece) per Feed, so that the caller can hand on each piece
// from outside the parser.
class ResponseParser final : public HttpParser<false> {
 public:
  // `no_body`: the answer to a HEAD.
  ResponseParser(size_t header_bytes_max, bool no_body);

  HttpResponseHead TakeHead();
  int status() const { return status_; }
  // The body bytes found by the last Feed, a view into what it was fed.
  std::string_view TakePiece() { return std::exchange(piece_, {}); }

 private:
  void on_request_impl(beast_http::verb, boost::beast::string_view, boost::beast::string_view, int,
                       BeastError&) override {}
  void on_response_impl(int code, boost::beast::string_view reason, int version,
                        BeastError& ec) override;
  void OnBodyPiece(std::string_view piece) override { piece_ = piece; }
  void OnContentLength(uint64_t) override {}

  int status_ = 0;
  std::string_view piece_;
};

// Value of the first header of that name, ignoring case; nullptr if there is none.
const std::string* FindHeader(const HeaderList& headers, std::string_view name);
bool EqualsIgnoringCase(std::string_view a, std::string_view b);

// "name: value\r\n"; line breaks and NULs inside become spaces, so that no value can forge a
// header.
void AppendHeader(std::string& head, std::string_view name, std::string_view value);

}  // namespace callboard::net
