// What it costs to check, route and edit a JSON-RPC message as text.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>

#include "core/mcp/json.h"
#include "core/mcp/jsonrpc.h"

namespace callboard::core {
namespace {

// A tools/call with an argument text of the given size and a 23-digit integer.
std::string ToolsCall(size_t text_bytes) {
  return fmt::format(
      R"({{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":)"
      R"({{"text":"{}","seed":12345678901234567890123,"nodes":[{{"path":"/a","w":0.1}}]}},)"
      R"("_meta":{{"progressToken":3}}}}}})",
      std::string(text_bytes, 'x'));
}

void ParseChecked(benchmark::State& state) {
  const std::string text = ToolsCall(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(ParseJsonRpc(text, /*validate=*/true));
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
}
BENCHMARK(ParseChecked)->Arg(64)->Arg(1'000)->Arg(100'000);

void ParseTrusted(benchmark::State& state) {
  const std::string text = ToolsCall(static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(ParseJsonRpc(text, /*validate=*/false));
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
}
BENCHMARK(ParseTrusted)->Arg(64)->Arg(1'000)->Arg(100'000)->Arg(10'000'000);

void SetProgressToken(benchmark::State& state) {
  const std::string text = ToolsCall(static_cast<size_t>(state.range(0)));
  const auto message = ParseJsonRpc(text, /*validate=*/false);
  for (auto _ : state) {
    benchmark::DoNotOptimize(SetPath(message->params, {"_meta", "progressToken"}, "123456"));
  }
}
BENCHMARK(SetProgressToken)->Arg(64)->Arg(1'000)->Arg(100'000);

}  // namespace
}  // namespace callboard::core
