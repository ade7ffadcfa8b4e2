// The line of a program that ends itself.
#pragma once

#include <initializer_list>
#include <string_view>

#include "core/telemetry/log.h"

namespace callboard::core {

// Writes an error on the calling thread and at once; waits for no lock that another thread may
// hold.
void LogLastWords(std::string_view event, std::initializer_list<LogField> fields = {});

}  // namespace callboard::core
