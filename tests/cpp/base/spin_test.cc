#include "csrc/base/spin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "csrc/base/deadline.h"

namespace keras_ring {
namespace {

constexpr Duration kBudget = std::chrono::microseconds(20);

// How often the condition is looked at in a wait that is in vain. Once: there
// was no spin.
int LooksInVain(Spinner& spinner) {
  int looks = 0;
  EXPECT_FALSE(spinner.Until([&] {
    ++looks;
    return false;
  }));
  return looks;
}

// A wait that ends at the second look.
bool SucceedLater(Spinner& spinner) {
  int looks = 0;
  return spinner.Until([&] { return ++looks == 2; });
}

// How many waits in vain do not spin before one does.
int SkipsBeforeASpin(Spinner& spinner) {
  int skips = 0;
  while (LooksInVain(spinner) == 1) ++skips;
  return skips;
}

TEST(Spinner, WithoutABudgetItLooksOnce) {
  Spinner spinner(Duration::zero());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(LooksInVain(spinner), 1);
  EXPECT_TRUE(spinner.Until([] { return true; }));
  EXPECT_FALSE(SucceedLater(spinner));
}

TEST(Spinner, SeesWhatBecomesTrueMeanwhile) {
  Spinner spinner(std::chrono::seconds(1));
  EXPECT_TRUE(SucceedLater(spinner));
}

TEST(Spinner, GivesUp) {
  Spinner spinner(std::chrono::milliseconds(5));
  const TimePoint began = std::chrono::steady_clock::now();
  EXPECT_GT(LooksInVain(spinner), 1);
  // It may stop before its budget ends, where others want the core.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

// Four spins in vain, then 1, 2, 4, ... 64 skips before each next one.
TEST(Spinner, SkipsMoreAndMoreAfterFailures) {
  int most_spins = 0;
  const Deadline deadline = Deadline::AfterSeconds(60);
  for (int attempt = 0; attempt < 50 || most_spins < 4; ++attempt) {
    ASSERT_FALSE(deadline.expired()) << "at most " << most_spins << " spins";
    Spinner spinner(kBudget);
    int spins = 1;
    ASSERT_GT(LooksInVain(spinner), 1);
    while (LooksInVain(spinner) > 1) ++spins;
    // Fewer if others needed the core meanwhile; so as many attempts as it
    // takes.
    ASSERT_LE(spins, 4);
    most_spins = std::max(most_spins, spins);
    std::vector<int> skips = {1 + SkipsBeforeASpin(spinner)};
    for (int i = 0; i < 7; ++i) skips.push_back(SkipsBeforeASpin(spinner));
    ASSERT_EQ(skips, (std::vector<int>{1, 2, 4, 8, 16, 32, 64, 64}));
  }
}

TEST(Spinner, ASuccessMakesItSpinAgain) {
  Spinner spinner(kBudget);
  for (int i = 0; i < 4; ++i) LooksInVain(spinner);
  SkipsBeforeASpin(spinner);
  // Skips of 2 or more are due now; a success at the first look ends none.
  EXPECT_TRUE(spinner.Until([] { return true; }));
  EXPECT_EQ(LooksInVain(spinner), 1);
  while (!SucceedLater(spinner)) {
  }
  EXPECT_GT(LooksInVain(spinner), 1);
}

}  // namespace
}  // namespace keras_ring
