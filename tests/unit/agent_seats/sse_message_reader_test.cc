// Tests of reading messages from server-sent events.
#include "backend_agent/backends/sse_message_reader.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/memory_spool.h"

namespace callboard::agent {
namespace {

std::vector<std::string> Read(std::string_view bytes, size_t slice) {
  tests::MemorySpool spool;
  SseMessageReader reader(spool, 1000);
  std::vector<std::string> messages;
  while (!bytes.empty()) {
    EXPECT_TRUE(reader
                    .Feed(bytes.substr(0, slice),
                          [&](Payload message) { messages.emplace_back(message.view()); })
                    .ok());
    bytes.remove_prefix(std::min(slice, bytes.size()));
  }
  return messages;
}

TEST(SseMessageReader, GivesTheSameMessagesHoweverTheBytesAreCut) {
  const std::string_view stream =
      "\xEF\xBB\xBFid: 1\ndata:\n\n"
      ": comment\r\n"
      "event: message\r\nid: 2\r\ndata: {\"a\":1}\r\n\r\n"
      "data:{\"b\":\r"
      "data: 2}\r\r"
      "retry: 5\n\n"
      "datafoo: x\n\n"
      "data: unfinished";
  for (size_t slice : {1u, 2u, 3u, 7u, 1000u}) {
    EXPECT_EQ(Read(stream, slice), (std::vector<std::string>{"{\"a\":1}", "{\"b\": 2}"})) << slice;
  }
}

TEST(SseMessageReader, RefusesAMessageOverTheLimit) {
  tests::MemorySpool spool;
  SseMessageReader reader(spool, 10);
  const absl::Status status = reader.Feed("data: 12345678901\n\n", [](Payload) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace callboard::agent
