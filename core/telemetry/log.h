// Structured logging: an event name plus fields, the same field names everywhere.
#pragma once

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace callboard::core {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// One field. Names in use: session, call, instance, agent, job, seat, peer, reason, duration_ms.
struct LogField {
  template <class T>
  LogField(std::string_view field_name, const T& field_value)
      : name(field_name), value(fmt::format("{}", field_value)) {}
  std::string_view name;
  std::string value;
};

// True if events of that level go anywhere: ask before making costly fields.
bool LogEnabled(LogLevel level);
// One line "time level event field=value ..." on stderr. Callable from any thread. A thread of its
// own writes what has come in 50 ms together; lines beyond 1 MiB waiting are dropped and counted
// rather than waited for.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

inline void LogDebug(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, event, fields);
}
inline void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, event, fields);
}
inline void LogWarn(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarn, event, fields);
}
inline void LogError(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, event, fields);
}

// For main(), before other threads log: without it nothing is logged (tests, the simulation).
void StartLogging(LogLevel level);
// For main(), when no other thread logs any more: writes what is waiting and ends logging.
void StopLogging();
// From now on; after StartLogging().
void SetLogLevel(LogLevel level);
// Names of the levels; false if `name` is none of them.
inline constexpr std::array<std::string_view, 5> kLogLevels = {"debug", "info", "warn", "error",
                                                               "off"};
bool ParseLogLevel(std::string_view name, LogLevel* level);

}  // namespace callboard::core
