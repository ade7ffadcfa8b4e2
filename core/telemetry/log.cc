// Implementation of the log: lines are collected in memory and written by a thread of its own.
#include "core/telemetry/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "core/mcp/json.h"
#include "core/telemetry/last_words.h"

namespace callboard::core {
namespace {

constexpr size_t kWaitingBytesMax = 1 << 20;
// The writer sleeps this long before it writes what has come meanwhile: a line a call must not cost
// a wake-up a call.
constexpr std::chrono::milliseconds kCollect{50};

std::atomic<int> g_level{static_cast<int>(LogLevel::kOff)};
std::atomic<LogFormat> g_format{LogFormat::kText};

std::string FormatLine(LogLevel level, std::string_view event,
                       std::initializer_list<LogField> fields);

void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Collects lines from any thread; its own thread writes them to stderr. Bounded: lines beyond
// kWaitingBytesMax are dropped and their number is told.
class LogWriter {
 public:
  LogWriter() : thread_([this] { Write(); }) {}

  ~LogWriter() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void Add(std::string_view line) {
    bool wake = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (waiting_.size() + line.size() > kWaitingBytesMax) {
        ++dropped_;
        return;
      }
      wake = waiting_.empty();
      waiting_.append(line);
    }
    if (wake) wake_.notify_one();
  }

 private:
  void Write() {
    std::string lines;
    for (;;) {
      bool last = false;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        collected_.wait_for(lock, kCollect, [this] { return stopping_; });
        lines.clear();
        lines.swap(waiting_);
        if (dropped_ > 0) {
          lines += FormatLine(LogLevel::kWarn, "log_lines_dropped", {{"lines", dropped_}});
        }
        dropped_ = 0;
        last = stopping_;
      }
      WriteAll(lines);
      if (last) return;
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable collected_;
  std::string waiting_;
  uint64_t dropped_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

std::unique_ptr<LogWriter> g_writer;

constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                             {"info", LogLevel::kInfo},
                                                             {"warn", LogLevel::kWarn},
                                                             {"error", LogLevel::kError},
                                                             {"off", LogLevel::kOff}};

// A value with spaces or quotes is quoted, and control characters never break the line.
void AppendValue(std::string* line, std::string_view value) {
  const bool plain = !value.empty() && value.find_first_of(" \"=\n\r\t") == std::string_view::npos;
  if (plain) {
    line->append(value);
    return;
  }
  line->push_back('"');
  for (char c : value) {
    if (c == '"' || c == '\\') line->push_back('\\');
    line->push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  }
  line->push_back('"');
}

std::string FormatText(std::string_view time, std::string_view level, std::string_view event,
                       std::initializer_list<LogField> fields) {
  std::string line;
  line.append(time).append(" ").append(level).append(" ").append(event);
  for (const LogField& field : fields) {
    if (field.name.empty()) continue;
    line.push_back(' ');
    line.append(field.name);
    line.push_back('=');
    AppendValue(&line, field.value);
  }
  line.push_back('\n');
  return line;
}

std::string FormatJson(std::string_view time, std::string_view level, std::string_view event,
                       std::initializer_list<LogField> fields) {
  JsonObject line;
  line.String("time", time).String("level", level).String("event", event);
  for (const LogField& field : fields) {
    if (field.name.empty()) continue;
    if (field.bare) {
      line.Raw(field.name, field.value);
    } else {
      line.String(field.name, field.value);
    }
  }
  return line.Take().append("\n");
}

std::string FormatLine(LogLevel level, std::string_view event,
                       std::initializer_list<LogField> fields) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3S%Ez", absl::TimeFromTimespec(now),
                                            absl::LocalTimeZone());
  const std::string_view name = kLevels[static_cast<size_t>(level)].first;
  const bool json = g_format.load(std::memory_order_relaxed) == LogFormat::kJson;
  return json ? FormatJson(time, name, event, fields) : FormatText(time, name, event, fields);
}

}  // namespace

bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) >= g_level.load(std::memory_order_relaxed) &&
         level != LogLevel::kOff;
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (LogEnabled(level)) g_writer->Add(FormatLine(level, event, fields));
}

void LogLastWords(std::string_view event, std::initializer_list<LogField> fields) {
  if (LogEnabled(LogLevel::kError)) WriteAll(FormatLine(LogLevel::kError, event, fields));
}

void StartLogging(LogLevel level, LogFormat format) {
  g_format.store(format);
  g_writer = std::make_unique<LogWriter>();
  SetLogLevel(level);
}

void SetLogLevel(LogLevel level) { g_level.store(static_cast<int>(level)); }

void StopLogging() {
  g_level.store(static_cast<int>(LogLevel::kOff));
  g_writer = nullptr;
}

bool ParseLogLevel(std::string_view name, LogLevel* level) {
  for (const auto& [text, value] : kLevels) {
    if (text == name) {
      *level = value;
      return true;
    }
  }
  return false;
}

}  // namespace callboard::core
