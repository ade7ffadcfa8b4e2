// Structured logging: an event name plus fields, the same field names everywhere.
#pragma once

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace callboard::core {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

// How lines are written: "time level event field=value ..." or one JSON object each.
enum class LogFormat { kText, kJson };

// One field; one without a name is left out. Names in use: session, call, instance (a seat's id),
// seat (its name), agent, trace, job, peer, reason, duration_ms.
struct LogField {
  template <class T>
  LogField(std::string_view field_name, const T& field_value)
      : name(field_name),
        value(fmt::format("{}", field_value)),
        bare(std::is_integral_v<T> && !std::is_same_v<T, char>) {}
  std::string_view name;
  std::string value;
  bool bare;  // a number or a truth value: JSON takes it without quotes
};

// True if events of that level go anywhere: ask before making costly fields.
bool LogEnabled(LogLevel level);
// One line on stderr; as JSON its members are time, level, event and the fields. Callable from any
// thread. A thread of its own writes what has come in 50 ms together; lines beyond 1 MiB waiting
// are dropped and counted rather than waited for.
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
void StartLogging(LogLevel level, LogFormat format = LogFormat::kText);
// For main(), when no other thread logs any more: writes what is waiting and ends logging.
void StopLogging();
// From now on; after StartLogging().
void SetLogLevel(LogLevel level);
// Names of the levels; false if `name` is none of them.
inline constexpr std::array<std::string_view, 5> kLogLevels = {"debug", "info", "warn", "error",
                                                               "off"};
bool ParseLogLevel(std::string_view name, LogLevel* level);
inline constexpr std::array<std::string_view, 2> kLogFormats = {"text", "json"};

}  // namespace callboard::core
