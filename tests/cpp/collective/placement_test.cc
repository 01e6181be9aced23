#include "csrc/collective/hierarchy/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace keras_ring {
namespace {

using Ranks = std::vector<int>;

Placement Of(const std::string& hosts) {
  std::vector<std::string> host_ids;
  for (char host : hosts) host_ids.emplace_back(1, host);
  return Placement(host_ids);
}

TEST(PlacementTest, HostsAreInTheOrderOfTheirLowestRanks) {
  const Placement placement = Of("zazab");
  EXPECT_EQ(placement.num_hosts(), 3);
  EXPECT_EQ(placement.ranks(0), Ranks({0, 2}));
  EXPECT_EQ(placement.ranks(1), Ranks({1, 3}));
  EXPECT_EQ(placement.ranks(2), Ranks({4}));
  EXPECT_EQ(placement.host(3), 1);
  EXPECT_EQ(placement.local_rank(3), 1);
}

TEST(PlacementTest, LanesAreAsManyAsTheSmallestHostHasRanks) {
  const Placement placement = Of("aabbbcc");
  EXPECT_EQ(placement.num_lanes(), 2);
  EXPECT_EQ(placement.Lane(0), Ranks({0, 2, 5}));
  EXPECT_EQ(placement.Lane(1), Ranks({1, 3, 6}));
  EXPECT_EQ(placement.num_ranks(), 7);
}

TEST(PlacementTest, OneHostAndHostsOfOneRankAreNoHierarchy) {
  EXPECT_FALSE(Of("a").is_hierarchical());
  EXPECT_FALSE(Of("aaa").is_hierarchical());
  EXPECT_FALSE(Of("abc").is_hierarchical());
  EXPECT_TRUE(Of("aab").is_hierarchical());
  EXPECT_TRUE(Of("aba").is_hierarchical());
}

// Any placement: everybody is somewhere once, and lanes agree.
TEST(PlacementTest, RandomPlacements) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 500; ++i) {
    const int size = 1 + static_cast<int>(random() % 20);
    const int hosts = 1 + static_cast<int>(random() % 6);
    std::string letters;
    for (int rank = 0; rank < size; ++rank) {
      letters += static_cast<char>('a' + random() % hosts);
    }
    const Placement placement = Of(letters);
    for (int rank = 0; rank < size; ++rank) {
      const Ranks& of_host = placement.ranks(placement.host(rank));
      EXPECT_EQ(of_host[placement.local_rank(rank)], rank);
      for (int other : of_host) EXPECT_EQ(letters[other], letters[rank]);
    }
    for (int lane = 0; lane < placement.num_lanes(); ++lane) {
      const Ranks ranks = placement.Lane(lane);
      EXPECT_EQ(ranks.size(), static_cast<size_t>(placement.num_hosts()));
      for (int host = 0; host < placement.num_hosts(); ++host) {
        EXPECT_EQ(placement.host(ranks[host]), host) << letters;
        EXPECT_EQ(placement.local_rank(ranks[host]), lane) << letters;
      }
    }
  }
}

}  // namespace
}  // namespace keras_ring
