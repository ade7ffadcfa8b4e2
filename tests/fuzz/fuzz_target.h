// What a fuzzer is: one entry that takes any bytes, and checks that say which promise was broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// The entry of libFuzzer, so that the targets can also be linked with it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// A promise about the input at hand; the driver writes that input to a file.
#define FUZZ_CHECK(condition)                                                              \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)
