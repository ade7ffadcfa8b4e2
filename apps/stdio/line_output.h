// Where lines for a stdio client go.
#pragma once

#include <cstddef>
#include <string>

namespace callboard::apps {

// Loop thread only.
class LineOutput {
 public:
  virtual ~LineOutput() = default;
  // `line` without its line feed. Never waits, never calls back from inside.
  virtual void Write(std::string line) = 0;
  // Not taken by the client yet.
  virtual size_t unsent_bytes() const = 0;
};

}  // namespace callboard::apps
