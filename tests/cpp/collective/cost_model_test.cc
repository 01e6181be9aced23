#include "csrc/collective/net/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "csrc/collective/net/levels.h"

namespace keras_ring {
namespace {

using ::testing::HasSubstr;

constexpr LinkModel kLinks{/*latency=*/10, /*message=*/1, /*byte=*/0.5};

TEST(CostModelTest, TimesByHand) {
  // Of four: a hop, three messages of 8 bytes.
  EXPECT_DOUBLE_EQ(AllreduceFewHopsTime(kLinks, {4}, 8), 10 + 3 * (1 + 4));
  // Two hops, in each three messages of a quarter.
  EXPECT_DOUBLE_EQ(AllreduceFewBytesTime(kLinks, {4}, 8),
                   2 * (10 + 3 * (1 + 1)));
  // In groups of three: to a member and back, and between the four groups.
  EXPECT_DOUBLE_EQ(AllreduceFewHopsTime(kLinks, {3, 4}, 12),
                   2 * (10 + 2 * (1 + 6)) + 10 + 3 * (1 + 6));
  EXPECT_DOUBLE_EQ(AllreduceFewBytesTime(kLinks, {3, 4}, 12),
                   2 * (10 + 2 * (1 + 2)) + 2 * (10 + 3 * (1 + 0.5)));
  // From the root to three; or through all of them, in segments of 4.
  EXPECT_DOUBLE_EQ(BroadcastFewHopsTime(kLinks, 4, 12), 10 + 3 * (1 + 6));
  EXPECT_DOUBLE_EQ(BroadcastFewBytesTime(kLinks, 4, 12, 4),
                   3 * (10 + 1 + 2) + 4);
}

TEST(CostModelTest, ABandwidthBoundIsReached) {
  const LinkModel links{/*latency=*/0, /*message=*/0, /*byte=*/1};
  for (int size : {3, 8, 512, 4096}) {
    for (int side : {2, 8, size}) {
      const double bound = 2.0 * (size - 1) / size * 1e9;
      const double time =
          AllreduceFewBytesTime(links, LargestGroups(size, side), 1000000000);
      // Groups of which some have a member more.
      EXPECT_GE(time, 0.99 * bound) << size << " " << side;
      EXPECT_LE(time, 1.2 * bound) << size << " " << side;
    }
  }
}

TEST(CostModelTest, SmallInFewHopsLargeInFewBytes) {
  const LinkModel links;
  for (const std::vector<int>& groups :
       {std::vector<int>{3}, {4}, {32}, {8, 8}, {23, 23}}) {
    const auto few_hops = [&](size_t bytes) {
      return AllreduceTakesFewHops(links, Preference::kByModel, groups, bytes);
    };
    EXPECT_TRUE(few_hops(4));
    EXPECT_FALSE(few_hops(64 << 20));
    // Once only, on the way from one to the other.
    bool was = true;
    for (size_t bytes = 4; bytes < 64 << 20; bytes += bytes / 2) {
      EXPECT_LE(few_hops(bytes), was) << bytes;
      was = few_hops(bytes);
    }
  }
  EXPECT_TRUE(BroadcastTakesFewHops(links, Preference::kByModel, 8, 4, 512));
  EXPECT_FALSE(
      BroadcastTakesFewHops(links, Preference::kByModel, 8, 64 << 20, 512));
}

TEST(CostModelTest, APreferenceIsFollowed) {
  const LinkModel links;
  for (size_t bytes : {4, 64 << 20}) {
    EXPECT_TRUE(AllreduceTakesFewHops(links, Preference::kFewHops, {4}, bytes));
    EXPECT_FALSE(
        AllreduceTakesFewHops(links, Preference::kFewBytes, {4}, bytes));
    // Of two, the one is the other, and a hop less.
    EXPECT_TRUE(
        AllreduceTakesFewHops(links, Preference::kFewBytes, {2}, bytes));
    EXPECT_TRUE(
        BroadcastTakesFewHops(links, Preference::kFewHops, 4, bytes, 512));
    EXPECT_FALSE(
        BroadcastTakesFewHops(links, Preference::kFewBytes, 4, bytes, 512));
  }
}

// Either way sends the same; a hop against half of the sums.
TEST(CostModelTest, APairAddsHalfWhereThatCounts) {
  const LinkModel links{/*latency=*/10, /*message=*/1, /*byte=*/0.5,
                        /*fold=*/0.25};
  EXPECT_DOUBLE_EQ(PairFewHopsTime(links, 8), 10 + 1 + 4 + 2);
  EXPECT_DOUBLE_EQ(PairFewBytesTime(links, 8), 2 * (10 + 1 + 2) + 1);
  // Until half of the sums takes as long as a message.
  EXPECT_TRUE(PairTakesFewHops(links, Preference::kByModel, 88));
  EXPECT_FALSE(PairTakesFewHops(links, Preference::kByModel, 96));
  EXPECT_TRUE(PairTakesFewHops(links, Preference::kFewHops, 96));
  EXPECT_FALSE(PairTakesFewHops(links, Preference::kFewBytes, 88));
  EXPECT_TRUE(PairTakesFewHops({}, Preference::kByModel, 4));
  EXPECT_FALSE(PairTakesFewHops({}, Preference::kByModel, 16 << 20));
}

TEST(CostModelTest, ATableForPeople) {
  const std::string text =
      ExplainAllreduce(LinkModel(), Preference::kByModel, {4}, "an allreduce");
  EXPECT_THAT(text, HasSubstr("an allreduce of\n"));
  EXPECT_THAT(text, HasSubstr("links: 20.0 us, 10.00 Gbit/s"));
  EXPECT_THAT(text, HasSubstr("            4 B        29.0 us         58.0 us "
                              "   in few hops\n"));
  EXPECT_THAT(text, HasSubstr("64 MiB"));
  EXPECT_THAT(text, HasSubstr("in few bytes\n"));
}

}  // namespace
}  // namespace keras_ring
