// Implementation of the process' figures, from /proc.
#include "core/telemetry/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "absl/time/time.h"

namespace callboard::core {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The field of /proc/self/stat of that number, counted from 1 as in proc(5), from 3 on.
std::optional<uint64_t> StatField(int number) {
  const std::string text = ReadAll("/proc/self/stat");
  // The name before may contain anything, a parenthesis too.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= number; ++i) fields >> field;
  std::istringstream value(field);
  uint64_t result = 0;
  if (!(value >> result)) return std::nullopt;
  return result;
}

std::optional<uint64_t> BootTime() {
  std::istringstream lines(ReadAll("/proc/stat"));
  std::string word;
  uint64_t seconds = 0;
  while (lines >> word) {
    if (word == "btime" && lines >> seconds) return seconds;
  }
  return std::nullopt;
}

std::optional<size_t> OpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  size_t count = 0;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  if (error || count == 0) return std::nullopt;
  return count - 1;  // the iterator's own
}

}  // namespace

void WriteProcessMetrics(MetricsText& text) {
  text.Gauge("callboard_build_info", "The version that runs; always 1.")
      .Sample(1, {{"version", CALLBOARD_VERSION}});

  std::istringstream memory(ReadAll("/proc/self/statm"));
  uint64_t pages = 0;
  uint64_t resident_pages = 0;
  if (memory >> pages >> resident_pages) {
    const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    text.Gauge("process_resident_memory_bytes", "Resident memory.")
        .Sample(resident_pages * page_bytes);
    text.Gauge("process_virtual_memory_bytes", "Virtual memory.").Sample(pages * page_bytes);
  }
  if (const auto files = OpenFiles()) {
    text.Gauge("process_open_fds", "Open file descriptors.").Sample(*files);
  }
  rlimit files_max{};
  if (getrlimit(RLIMIT_NOFILE, &files_max) == 0) {
    text.Gauge("process_max_fds", "File descriptors this process may have.")
        .Sample(files_max.rlim_cur);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    text.Counter("process_cpu_seconds_total", "Processor time used, user and system.")
        .Sample(absl::DurationFromTimeval(usage.ru_utime) +
                absl::DurationFromTimeval(usage.ru_stime));
  }
  const auto started_ticks = StatField(22);
  const auto boot = BootTime();
  if (started_ticks && boot) {
    const auto ticks_a_second = static_cast<double>(sysconf(_SC_CLK_TCK));
    text.Gauge("process_start_time_seconds", "When the process was started, Unix time.")
        .Sample(static_cast<double>(*boot) + static_cast<double>(*started_ticks) / ticks_a_second);
  }
}

}  // namespace callboard::core
