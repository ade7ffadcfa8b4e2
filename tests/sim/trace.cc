// Implementation of Trace.
#include "tests/sim/trace.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace callboard::sim {

Trace::Trace(const core::EventLoop& loop, uint64_t seed, bool print)
    : loop_(loop), seed_(seed), print_(print), begin_(loop.Now()) {}

void Trace::Mix(uint64_t value) {
  hash_ ^= value + static_cast<uint64_t>((loop_.Now() - begin_) / absl::Nanoseconds(1));
  hash_ *= 1099511628211ull;
  hash_ ^= hash_ >> 29;
}

std::string Trace::Stamp() const {
  return fmt::format("{:10.4f}", absl::ToDoubleSeconds(loop_.Now() - begin_));
}

void Trace::Add(std::string text) {
  uint64_t hash = 14695981039346656037ull;
  for (const char byte : text) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ull;
  }
  Mix(hash);
  std::string line = fmt::format("{} {}", Stamp(), text);
  if (print_) std::printf("%s\n", line.c_str());
  kept_.push_back(std::move(line));
  if (kept_.size() > kKept) kept_.pop_front();
}

void Trace::Print(std::string_view text) const {
  if (print_)
    std::printf("%s   %.*s\n", Stamp().c_str(), static_cast<int>(text.size()), text.data());
}

void Trace::Violate(std::string_view invariant, std::string_view detail) {
  if (violated()) return;
  Add(fmt::format("VIOLATION {}: {}", invariant, detail));
  violation_ = fmt::format("seed {} at {} s: {}: {}", seed_, Stamp(), invariant, detail);
}

std::string Trace::Failure() const {
  if (!violated()) return {};
  std::string text = violation_ + "\nlast events:\n";
  for (const std::string& line : kept_) text.append("  ").append(line).push_back('\n');
  return text.append(fmt::format("replay: tools/replay_seed {}\n", seed_));
}

uint64_t Trace::total(std::string_view what) const {
  const auto at = totals_.find(what);
  return at == totals_.end() ? 0 : at->second;
}

}  // namespace callboard::sim
