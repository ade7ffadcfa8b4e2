// What a simulated world leaves behind: a hash over all that happened, the last events, the first
// violation.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "core/runtime/event_loop.h"

namespace callboard::sim {

// One per world, outlives everything in it. Keeps the last kKept events. The hash depends on
// nothing but the events, their order and their times, so that one seed has one hash.
class Trace {
 public:
  // `print`: every event also goes to stdout.
  Trace(const core::EventLoop& loop, uint64_t seed, bool print);

  // Something that happened, as a sentence.
  void Add(std::string text);
  // Something that happened too often for a sentence.
  void Count(uint64_t value) { Mix(value); }
  // For a replay only: printed, and no part of the world's events.
  bool printing() const { return print_; }
  void Print(std::string_view text) const;
  // A fact for the totals ("calls", "faults").
  void Total(std::string_view what) { ++totals_[std::string(what)]; }

  // The first one is kept, the world stops at it.
  void Violate(std::string_view invariant, std::string_view detail);
  bool violated() const { return !violation_.empty(); }
  // Seed, virtual time, invariant and the last events; empty if nothing was violated.
  std::string Failure() const;
  const std::string& violation() const { return violation_; }

  uint64_t hash() const { return hash_; }
  uint64_t total(std::string_view what) const;
  const std::map<std::string, uint64_t, std::less<>>& totals() const { return totals_; }

 private:
  static constexpr size_t kKept = 50;

  void Mix(uint64_t value);
  std::string Stamp() const;

  const core::EventLoop& loop_;
  const uint64_t seed_;
  const bool print_;
  const absl::Time begin_;
  uint64_t hash_ = 14695981039346656037ull;
  std::deque<std::string> kept_;
  std::string violation_;
  std::map<std::string, uint64_t, std::less<>> totals_;
};

}  // namespace callboard::sim
