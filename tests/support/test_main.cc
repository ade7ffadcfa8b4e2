// main() of every test binary: sets Abseil's deadlock detector before anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"

int main(int argc, char** argv) {
  // Debian's Abseil aborts on a suspected lock-order cycle, and gRPC takes locks in both orders.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kReport);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
