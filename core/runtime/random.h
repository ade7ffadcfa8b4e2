// Randomness as an injected dependency: seeded in the simulation, from the system in production.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>

namespace callboard::core {

// Not thread-safe: one per loop.
class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t Next64() = 0;

  // Uniform in [0, bound); 0 when bound is 0.
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : Next64() % bound; }
  // Uniform in [0, 1).
  double Unit() { return static_cast<double>(Next64() >> 11) * 0x1.0p-53; }
  // `count` random bytes.
  std::string Bytes(size_t count);
  // `count` random bytes as lower-case hex digits (2 * count characters).
  std::string Hex(size_t count);
};

// Repeatable: the same seed gives the same sequence on every machine.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : engine_(seed) {}
  uint64_t Next64() override { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

// The system's cryptographic generator (getrandom(2)), buffered. For ids that must not be guessed.
class SecureRandom final : public Random {
 public:
  uint64_t Next64() override;

 private:
  uint64_t buffer_[32] = {};
  size_t left_ = 0;
};

}  // namespace callboard::core
