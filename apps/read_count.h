// Reads an integer setting into a variable of its own type.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/config/settings.h"

namespace callboard::apps {

template <class T>
void ReadCount(core::Settings& settings, std::string_view key, T* value, int64_t min) {
  auto number = static_cast<int64_t>(*value);
  settings.Read(key, &number, min, 1'000'000'000);
  *value = static_cast<T>(number);
}

}  // namespace callboard::apps
