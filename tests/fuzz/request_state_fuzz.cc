// Fuzzes the requestState of parked calls: nothing is opened that was not sealed for that request.
#include <string>

#include "core/runtime/random.h"
#include "server/flows/request_state.h"
#include "tests/fuzz/fuzz_target.h"

using namespace callboard;
using callboard::server::CallId;
using callboard::server::RequestState;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static core::SeededRandom random(1);
  static RequestState states("key", random);
  static const CallId call = CallId::New(random, 1);
  static const std::string sealed = states.Seal({call, 1'000'000}, "binding");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)states.MakerOf(text);

  const auto opened = states.Open(text, "binding", 1);
  FUZZ_CHECK(opened.ok() == (text == sealed));
  FUZZ_CHECK(!states.Open(text, "another", 1).ok());
  // A part of it in place of the sealed text's own.
  std::string changed = sealed;
  changed.replace(size % sealed.size(), size, text);
  FUZZ_CHECK(states.Open(changed, "binding", 1).ok() == (changed == sealed));
  // The binding is whatever the client sent.
  const std::string own = states.Seal({call, static_cast<int64_t>(size)}, text);
  FUZZ_CHECK(states.Open(own, text, -1).ok());
  FUZZ_CHECK(states.Open(own, text, static_cast<int64_t>(size)).status().code() ==
             absl::StatusCode::kDeadlineExceeded);
  FUZZ_CHECK(!states.Open(own, std::string(text) + "x", -1).ok());
  return 0;
}
