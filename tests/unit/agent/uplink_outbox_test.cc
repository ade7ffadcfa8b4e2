// The outbox against a receiver whose link is cut at any moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend_agent/outbox.h"
#include "core/runtime/random.h"

namespace callboard::tests {
namespace {

// Holds what a control plane holds of one call.
struct Receiver {
  void Take(const v1::AgentItem& item) {
    if (item.has_chunk()) return TakeChunk(item.chunk());
    const v1::CallEvent& event = item.call_event();
    if (event.n() <= have_n || partial) return;
    ASSERT_EQ(event.n(), have_n + 1) << "a hole";
    if (event.has_log() && event.log().has_size()) {
      partial = true;
      size = event.log().size();
      body.clear();
      return;
    }
    if (event.has_outcome() && event.outcome().body().has_size()) {
      partial = of_outcome = true;
      size = event.outcome().body().size();
      body.clear();
      return;
    }
    have_n = event.n();
    if (event.has_log()) logs.push_back(event.log().inline_());
    if (event.has_progress()) progress.push_back(std::stoi(event.progress().inline_()));
    if (event.has_outcome()) outcomes.push_back(event.outcome().body().inline_());
  }
  void TakeChunk(const v1::Chunk& chunk) {
    if (!partial || chunk.n() != have_n + 1) return;
    ASSERT_EQ(chunk.offset(), body.size());
    body += chunk.bytes();
    if (body.size() < size) return;
    (of_outcome ? outcomes : logs).push_back(body);
    partial = of_outcome = false;
    body.clear();
    ++have_n;
  }

  uint64_t have_n = 0;
  bool partial = false;
  bool of_outcome = false;
  uint64_t size = 0;
  std::string body;
  std::vector<std::string> logs;
  std::vector<int> progress;
  std::vector<std::string> outcomes;
};

TEST(Outbox, WhateverIsCutEverythingArrivesOnceAndInOrder) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    core::SeededRandom random(seed);
    agent::Outbox outbox(64 << 10, 256);
    Receiver receiver;
    std::vector<std::string> logs;
    int progress = 0;
    std::string result(random.Below(300'000), 'r');
    int to_say = 60;
    bool attached = false;
    for (int step = 0; step < 2'000 && receiver.outcomes.empty(); ++step) {
      switch (random.Below(6)) {
        case 0:
          if (to_say-- > 0) {
            logs.emplace_back(random.Below(8) == 0 ? random.Below(200'000) : 10, 'l');
            outbox.AddLog(agent::Payload(logs.back()));
          } else if (to_say == -1) {
            outbox.AddOutcome({}, agent::Payload(result));
          }
          break;
        case 1:
          if (to_say > 0) {
            std::string text = std::to_string(++progress);
            text.resize(1 + random.Below(30'000) + text.size(), ' ');
            outbox.AddProgress(agent::Payload(std::move(text)));
          }
          break;
        case 2:
          if (random.Below(10) == 0) {
            outbox.Detach();
            attached = false;
          }
          break;
        case 3:
          if (!attached) {
            outbox.Attach(receiver.have_n, receiver.body.size(), 64 << 10);
            attached = true;
          }
          break;
        case 4:
          outbox.Acknowledge(receiver.have_n, receiver.body.size(),
                             random.Below(4) == 0 ? 1 << 20 : 0);
          break;
        default: {
          agent::FrameBuilder frame(256 << 10);
          frame.Narrow(random.Below(256 << 10));
          outbox.Fill(frame, "call", 1, 64 << 10);
          EXPECT_LE(frame.bytes(), 256u << 10);
          if (random.Below(10) == 0) {  // lost with its link
            outbox.Detach();
            attached = false;
            break;
          }
          for (const v1::AgentItem& item : frame.frame().items()) receiver.Take(item);
        }
      }
    }
    ASSERT_EQ(receiver.outcomes, std::vector<std::string>{result});
    EXPECT_EQ(receiver.logs, logs);
    EXPECT_TRUE(std::is_sorted(receiver.progress.begin(), receiver.progress.end()));
    if (!receiver.progress.empty()) {
      EXPECT_EQ(receiver.progress.back(), progress);
    }
  }
}

}  // namespace
}  // namespace callboard::tests
