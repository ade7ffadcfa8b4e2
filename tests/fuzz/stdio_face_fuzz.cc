// Fuzzes the stdio face between a client's lines and a server's bytes: nothing crashes, and each
// request with an id is answered once by the end of its hard timer.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/stdio/http_transport.h"
#include "apps/stdio/line_splitter.h"
#include "apps/stdio/stdio_face.h"
#include "core/mcp/id_at_edges.h"
#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"
#include "core/runtime/random.h"
#include "fmt/format.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/memory_stream.h"
#include "tests/support/virtual_loop.h"
#include "tests/unit/net/raw_peer.h"

using namespace callboard;
using core::JsonRpcMessage;

namespace {

constexpr size_t kLineBytesMax = 1024;
constexpr size_t kOutputLinesMax = 100'000;
constexpr std::array kStatuses = {200, 202, 204, 301, 400, 401, 403, 404,
                                  405, 408, 409, 429, 500, 502, 503, 504};

// What may come of each id, as the client has used it, and what has.
struct Ids {
  std::map<std::string, int> expected;  // requests, and what can be told to be one in part
  std::map<std::string, int> possible;  // besides: what stands in batches, and at edges
  std::map<std::string, int> cancelled;
  std::map<std::string, int> answered;
};

bool IsUsable(std::string_view id) { return core::IsString(id) || core::IsNumber(id); }

// The client's end of its pipes.
class Client final : public apps::LineOutput {
 public:
  void Write(std::string line) override {
    FUZZ_CHECK(line.find('\n') == std::string::npos);
    FUZZ_CHECK(++lines_ < kOutputLinesMax);
    if (!reads) unsent_ += line.size();
    const auto message = core::ParseJsonRpc(line, /*validate=*/false);
    // An error of which nobody can tell whom it answers has no id.
    if (!message.ok()) {
      FUZZ_CHECK(core::FindMember(line, "error").has_value());
      return;
    }
    const bool response = message->kind == JsonRpcMessage::Kind::kResult ||
                          message->kind == JsonRpcMessage::Kind::kError;
    if (!response || !IsUsable(message->id)) return;
    const std::string id(message->id);
    const int answered = ++ids.answered[id];
    FUZZ_CHECK(answered <= ids.expected[id] + ids.possible[id]);
  }
  size_t unsent_bytes() const override { return unsent_; }
  void ReadAll() { unsent_ = 0; }

  // Before the face has it.
  void Note(const std::string& line) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos && line[first] == '[') {
      (void)core::ForEachElement(line, [this](std::string_view element) {
        NoteMessage(std::string(element), ids.possible);
        return true;
      });
      return;
    }
    NoteMessage(line, ids.expected);
  }

  Ids ids;
  bool reads = true;

 private:
  void NoteMessage(const std::string& text, std::map<std::string, int>& counts) {
    const auto message = core::ParseJsonRpc(text, /*validate=*/true);
    if (!message.ok()) {
      const bool json = message.status().code() == absl::StatusCode::kFailedPrecondition;
      const auto id = json ? core::FindMember(text, "id") : std::nullopt;
      if (id && IsUsable(*id)) ++counts[std::string(*id)];
    } else if (message->kind == JsonRpcMessage::Kind::kRequest) {
      ++counts[std::string(message->id)];
    } else if (message->method == "notifications/cancelled") {
      const auto id = core::FindMember(message->params, "requestId");
      if (id) ++ids.cancelled[std::string(*id)];
    }
  }

  size_t unsent_ = 0;
  size_t lines_ = 0;
};

// The server's end of every connection.
class Server {
 public:
  explicit Server(tests::MemoryNetwork& network) : listener_(network.Listen()) {
    listener_->Start([this](std::unique_ptr<net::ByteStream> stream) {
      peers_.push_back(std::make_unique<tests::RawPeer>(std::move(stream)));
    });
  }

  // Which connection a byte means: those of the newest requests come first. nullptr: none is open.
  tests::RawPeer* Pick(uint8_t selector) {
    std::erase_if(peers_, [](const auto& peer) { return peer->ended(); });
    if (peers_.empty()) return nullptr;
    return peers_[peers_.size() - 1 - selector % peers_.size()].get();
  }
  void Leave(const tests::RawPeer* peer) {
    std::erase_if(peers_, [peer](const auto& one) { return one.get() == peer; });
  }

  // The id of the message that was posted there last, raw.
  static std::string IdOf(const tests::RawPeer& peer) {
    const size_t head = peer.received.rfind("\r\n\r\n");
    if (head == std::string::npos) return "0";
    const auto id = core::FindMember(std::string_view(peer.received).substr(head + 4), "id");
    return std::string(id.value_or("0"));
  }

 private:
  std::unique_ptr<net::Listener> listener_;
  std::vector<std::unique_ptr<tests::RawPeer>> peers_;
};

// "$" stands for the id that is asked with, "|" for a line feed.
std::string Expand(std::string_view text, const std::string& id) {
  std::string out;
  for (const char c : text) {
    if (c == '$') {
      out += id;
    } else {
      out += c == '|' ? '\n' : c;
    }
  }
  return out;
}

apps::FaceConfig Config() {
  apps::FaceConfig config;
  config.hard_wait = absl::Seconds(20);
  config.request_max = absl::Seconds(40);
  config.reconnect.budget = absl::Seconds(12);
  config.reconnect.connect_budget = absl::Seconds(6);
  config.requests_max = 8;
  config.request_bytes_max = 8192;
  config.notes_max = 8;
  config.note_bytes_max = 2048;
  config.asks_max = 4;
  config.names_max = 4;
  config.output_bytes_max = 512;
  return config;
}

// All that is between the two, in virtual time.
class Stage {
 public:
  void Do(std::string_view step) {
    const char what = step.front();
    const std::string_view rest = step.substr(1);
    const auto byte = [&](size_t at) {
      return at < rest.size() ? static_cast<uint8_t>(rest[at]) : uint8_t{0};
    };
    switch (what) {
      case '>':  // the client writes a line
        Feed(std::string(rest) + "\n");
        break;
      case 'A': {  // an answer begins: connection, status, kind, and its body up to here
        tests::RawPeer* const peer = server_.Pick(byte(0));
        if (peer == nullptr) break;
        const std::string id = Server::IdOf(*peer);
        const std::string body = Expand(rest.substr(std::min<size_t>(3, rest.size())), id);
        const bool whole = byte(2) % 4 < 2;
        peer->Send(fmt::format(
            "HTTP/1.1 {} X\r\n{}{}{}\r\n{}", kStatuses[byte(1) % kStatuses.size()],
            byte(2) % 2 == 0 ? "Content-Type: application/json\r\n"
                             : "Content-Type: text/event-stream\r\n",
            byte(2) % 8 < 4 ? "Mcp-Session-Id: s1\r\n" : "",
            whole ? fmt::format("Content-Length: {}\r\n", body.size()) : std::string(), body));
        break;
      }
      case 'P': {  // a piece of one that has begun
        tests::RawPeer* const peer = server_.Pick(byte(0));
        if (peer == nullptr) break;
        peer->Send(Expand(rest.substr(std::min<size_t>(1, rest.size())), Server::IdOf(*peer)));
        break;
      }
      case 'X':  // a connection ends
        if (const tests::RawPeer* const peer = server_.Pick(byte(0))) server_.Leave(peer);
        break;
      case 'B':  // all of them break
        network_.Break();
        break;
      case 'N':  // nobody listens, or somebody does again
        network_.RefuseConnects(byte(0) % 2 == 0);
        break;
      case 'T':  // time passes
        loop_.RunFor(absl::Milliseconds(10) * (1 << byte(0) % 12));
        break;
      case 'U':  // the client reads no more, or all there is
        client_.reads = byte(0) % 2 == 1;
        if (!client_.reads) break;
        client_.ReadAll();
        face_->OnOutputRead();
        break;
      case 'Q':  // the client has closed its end
        ended_ = true;
        face_->OnInputEnd();
        break;
      default:
        break;
    }
    loop_.RunReady();
    FUZZ_CHECK(face_->open_requests() <= Config().requests_max + Config().names_max + 1);
  }

  void End() {
    client_.reads = true;
    client_.ReadAll();
    face_->OnOutputRead();
    // Twice its bounds: a request's own time-out is added to the hard timer, and a stream that
    // lives renews that.
    loop_.RunFor(2 * (Config().hard_wait + 2 * Config().request_max));
    if (!ended_) {
      FUZZ_CHECK(face_->open_requests() == 0);
      for (const auto& [id, expected] : client_.ids.expected) {
        FUZZ_CHECK(client_.ids.answered[id] >= expected - client_.ids.cancelled[id]);
      }
      face_->OnInputEnd();
    }
    loop_.RunFor(absl::Minutes(1));
    FUZZ_CHECK(done_ == 1);
  }

 private:
  void Feed(const std::string& bytes) {
    splitter_.Feed(
        bytes,
        [this](std::string line) {
          if (!ended_) client_.Note(line);
          face_->OnLine(std::move(line));
        },
        [this](apps::LineSplitter::TooLong line) {
          ++client_.ids.possible[core::FindIdAtEdges(line.head, line.tail)];
          face_->OnTooLongLine(line);
        });
  }

  tests::VirtualLoop loop_;
  core::SeededRandom random_{7};
  tests::MemoryNetwork network_{loop_, random_, {}};
  Server server_{network_};
  apps::HttpTransport transport_{
      loop_, network_.MakeConnector(), {"127.0.0.1:9765", "/mcp", {}, /*message_bytes_max=*/2048}};
  Client client_;
  apps::LineSplitter splitter_{kLineBytesMax};
  int done_ = 0;
  bool ended_ = false;
  std::unique_ptr<apps::StdioFace> face_ =
      std::make_unique<apps::StdioFace>(loop_, random_, transport_, client_, Config(),
                                        "http://127.0.0.1:9765/mcp", [this] { ++done_; });
};

}  // namespace

// One step a line; see Stage::Do.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Stage stage;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view step = bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (!step.empty()) stage.Do(step);
  }
  stage.End();
  return 0;
}
