// Tests of Lifetime.
#include "core/runtime/lifetime.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

namespace callboard::core {
namespace {

TEST(Lifetime, WrappedCallbacksRunOnlyWhileItLives) {
  std::optional<Lifetime> lifetime(std::in_place);
  int sum = 0;
  auto add = lifetime->Wrap([&](int n) { sum += n; });
  add(2);
  EXPECT_EQ(sum, 2);
  lifetime.reset();
  add(5);
  EXPECT_EQ(sum, 2);
}

TEST(Lifetime, RenewSilencesEarlierCallbacksOnly) {
  Lifetime lifetime;
  int calls = 0;
  auto before = lifetime.Wrap([&] { ++calls; });
  lifetime.Renew();
  auto after = lifetime.Wrap([&] { calls += 10; });
  before();
  after();
  EXPECT_EQ(calls, 10);
}

TEST(Lifetime, ForwardsMoveOnlyArguments) {
  const Lifetime lifetime;
  std::unique_ptr<int> got;
  auto take = lifetime.Wrap([&](std::unique_ptr<int> value) { got = std::move(value); });
  take(std::make_unique<int>(7));
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(*got, 7);
}

TEST(Lifetime, WatchTellsOfDestruction) {
  std::optional<Lifetime> lifetime(std::in_place);
  const auto watch = lifetime->Watch();
  EXPECT_FALSE(watch.expired());
  lifetime.reset();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace callboard::core
