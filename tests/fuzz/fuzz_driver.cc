// Drives one fuzzer: replays its corpus, then mutates what reaches new code until its time is over.
//
//   fuzz_NAME [--seconds N] [--seed S] [--keep FOLDER] CORPUS_FOLDER_OR_FILE...
//
// The code under test is compiled with -fsanitize-coverage=trace-pc: an input that reaches code no
// input has reached before joins the pool (and FOLDER). What breaks a promise or a sanitizer is
// written to fuzz-finding-NAME in the current folder; give that file alone to see it again.
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/runtime/random.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;

constexpr size_t kInputBytesMax = 4096;
constexpr size_t kPoolMax = 4000;
constexpr size_t kSites = 1 << 18;

// Code reached so far and by the input at hand; call sites hash to places.
unsigned char g_reached[kSites];
bool g_new_site = false;

std::string g_input;
std::string g_finding_file;

void WriteFinding() {
  std::ofstream out(g_finding_file, std::ios::binary);
  out.write(g_input.data(), static_cast<std::streamsize>(g_input.size()));
  out.close();
  std::fprintf(stderr, "fuzz: the input is in %s (%zu bytes)\n", g_finding_file.c_str(),
               g_input.size());
}

void OnSignal(int number) {
  WriteFinding();
  signal(number, SIG_DFL);
  raise(number);
}

// Whether it reached new code.
bool Run(std::string input) {
  g_input = std::move(input);
  g_new_site = false;
  // An exact copy on the heap, so that the sanitizer sees a read beyond the end.
  const std::vector<uint8_t> bytes(g_input.begin(), g_input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  return g_new_site;
}

std::string Mutate(const std::vector<std::string>& pool, callboard::core::Random& random) {
  static constexpr std::string_view kTokens[] = {"\r\n",
                                                 "\r\n\r\n",
                                                 "\r",
                                                 "\n\n",
                                                 ":",
                                                 "data:",
                                                 "id:",
                                                 "retry:",
                                                 "\xef\xbb\xbf",
                                                 "\\u",
                                                 "\"",
                                                 "{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ",",
                                                 "0",
                                                 "-1",
                                                 "1e400",
                                                 "null",
                                                 "\\",
                                                 "\xe2\x80",
                                                 "\xc2",
                                                 "\x80",
                                                 "\0",
                                                 "\"id\"",
                                                 "\"id\":",
                                                 "\"method\":\"m\"",
                                                 "\xed\xa0\x80",
                                                 "Content-Length: ",
                                                 "Transfer-Encoding: chunked\r\n",
                                                 "0\r\n\r\n",
                                                 "HTTP/1.1",
                                                 "\xff\xff\xff\xff\x0f"};
  std::string text = pool[random.Below(pool.size())];
  for (uint64_t left = 1 + random.Below(4); left > 0; --left) {
    const size_t at = random.Below(text.size() + 1);
    const size_t length = std::min<size_t>(1 + random.Below(16), text.size() - at);
    switch (random.Below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random.Below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random.Below(256));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, std::string(kTokens[random.Below(std::size(kTokens))]));
        break;
      case 4:
        text.insert(random.Below(text.size() + 1), text.substr(at, length));
        break;
      case 5: {
        const std::string& other = pool[random.Below(pool.size())];
        text = text.substr(0, at) + other.substr(random.Below(other.size() + 1));
        break;
      }
      default:
        text.insert(at, random.Bytes(1 + random.Below(4)));
    }
  }
  if (text.size() > kInputBytesMax) text.resize(kInputBytesMax);
  return text;
}

std::vector<std::string> ReadCorpus(const std::vector<std::string>& places) {
  std::vector<fs::path> files;
  for (const std::string& place : places) {
    if (!fs::is_directory(place)) {
      files.emplace_back(place);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(place)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "fuzz: cannot read %s\n", file.c_str());
      std::exit(2);
    }
    inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return inputs;
}

}  // namespace

// Called from every branch of instrumented code.
extern "C" void __sanitizer_cov_trace_pc() {
  const auto pc = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  unsigned char& reached = g_reached[(pc * 0x9E3779B97F4A7C15ull) >> 46];
  if (reached == 0) {
    reached = 1;
    g_new_site = true;
  }
}

int main(int argc, char** argv) {
  int seconds = 0;
  uint64_t seed = 1;
  std::string keep;
  std::vector<std::string> places;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option.starts_with("--") && i + 1 == argc) {
      std::fprintf(stderr, "fuzz: %s needs a value\n", option.c_str());
      return 2;
    }
    if (option == "--seconds") {
      seconds = std::atoi(argv[++i]);
    } else if (option == "--seed") {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (option == "--keep") {
      keep = argv[++i];
    } else {
      places.push_back(option);
    }
  }
  const std::string name = fs::path(argv[0]).filename();
  g_finding_file = "fuzz-finding-" + name;
  __sanitizer_set_death_callback(WriteFinding);
  signal(SIGABRT, OnSignal);

  std::vector<std::string> pool = ReadCorpus(places);
  if (pool.empty()) {
    std::fprintf(stderr, "fuzz: no corpus given\n");
    return 2;
  }
  for (const std::string& input : pool) Run(input);

  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(seconds);
  callboard::core::SeededRandom random(seed);
  const size_t given = pool.size();
  uint64_t runs = given;
  while (Clock::now() < end) {
    for (int burst = 0; burst < 64; ++burst, ++runs) {
      if (!Run(Mutate(pool, random)) || pool.size() >= kPoolMax) continue;
      pool.push_back(g_input);
      if (keep.empty()) continue;
      std::ofstream out(fs::path(keep) / ("found-" + std::to_string(pool.size())),
                        std::ios::binary);
      out.write(g_input.data(), static_cast<std::streamsize>(g_input.size()));
    }
  }
  std::printf("%s: %llu inputs, %zu of the corpus, %zu found, %td places of code; no finding\n",
              name.c_str(), static_cast<unsigned long long>(runs), given, pool.size() - given,
              std::count(std::begin(g_reached), std::end(g_reached), 1));
  return 0;
}
