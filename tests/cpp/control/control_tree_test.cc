#include "csrc/control/control_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ControlTree, OneHostIsFlat) {
  ControlTree root = BuildControlTree({"a", "a", "a"}, 0);
  EXPECT_TRUE(root.is_root());
  EXPECT_THAT(root.Peers(), ElementsAre(1, 2));
  ControlTree leaf = BuildControlTree({"a", "a", "a"}, 2);
  EXPECT_EQ(leaf.parent, 0);
  EXPECT_THAT(leaf.Peers(), ElementsAre(0));
}

TEST(ControlTree, LeadersFormATreeOfTheirOwn) {
  // Leaders 0, 1, 2, 3 by first appearance; fan-out 2.
  const std::vector<std::string> hosts = {"a", "b", "c", "d", "b", "d"};
  ControlTree root = BuildControlTree(hosts, 0, 2);
  EXPECT_THAT(root.children.at(1), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(root.children.at(2), ElementsAre(2));
  ControlTree one = BuildControlTree(hosts, 1, 2);
  EXPECT_EQ(one.parent, 0);
  EXPECT_THAT(one.children.at(3), ElementsAre(3, 5));
  EXPECT_THAT(one.children.at(4), ElementsAre(4));
  EXPECT_EQ(BuildControlTree(hosts, 5, 2).parent, 3);
  EXPECT_EQ(root.levels_below, 3);
  EXPECT_EQ(one.levels_below, 2);
  EXPECT_EQ(BuildControlTree(hosts, 2, 2).levels_below, 0);
  EXPECT_EQ(BuildControlTree(hosts, 3, 2).levels_below, 1);
}

TEST(ControlTree, IsATreeForAnyHosts) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int size = 1 + random() % 40, fanout = 1 + random() % 4;
    std::vector<std::string> hosts;
    for (int r = 0; r < size; ++r) {
      hosts.push_back(std::to_string(random() % 7));
    }
    for (int r = 0; r < size; ++r) {
      ControlTree tree = BuildControlTree(hosts, r, fanout);
      std::vector<int32_t> below = {r};
      for (const auto& [child, ranks] : tree.children) {
        ASSERT_EQ(BuildControlTree(hosts, child, fanout).parent, r);
        below.insert(below.end(), ranks.begin(), ranks.end());
      }
      std::sort(below.begin(), below.end());
      ASSERT_EQ(std::adjacent_find(below.begin(), below.end()), below.end());
      if (r == 0) {
        ASSERT_EQ(below.size(), hosts.size());
      } else {
        ControlTree above = BuildControlTree(hosts, tree.parent, fanout);
        ASSERT_EQ(above.children.at(r), below);
      }
    }
  }
}

TEST(JobTree, DeputiesOfHostsWithALinkHaveOneToo) {
  // Leaders 0, 1, 2, 3, deputies 0, 4, 2, 5; fan-out 2, so 3 is below 1.
  const std::vector<std::string> hosts = {"a", "b", "c", "d", "b", "d"};
  EXPECT_THAT(BuildJobTree(hosts, 0, 2).deputies, ElementsAre(4));
  EXPECT_THAT(BuildJobTree(hosts, 4, 2).deputies, ElementsAre(0, 5));
  EXPECT_THAT(BuildJobTree(hosts, 5, 2).deputies, ElementsAre(4));
  for (int leader : {1, 2, 3}) {
    EXPECT_THAT(BuildJobTree(hosts, leader, 2).deputies, IsEmpty());
  }
  EXPECT_THAT(BuildJobTree(hosts, 4, 2).Peers(), ElementsAre(1, 0, 5));
  // A third rank of a host is no deputy.
  EXPECT_THAT(BuildJobTree({"a", "a", "a", "b"}, 1).deputies, ElementsAre(3));
  EXPECT_THAT(BuildJobTree({"a", "a", "a", "b"}, 2).deputies, IsEmpty());
}

// Whoever dies: from any other rank a word reaches every rank.
TEST(JobTree, HoldsTogetherWithoutAnyRankOfAHostOfSeveral) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    const int size = 2 + random() % 30, fanout = 1 + random() % 4;
    std::vector<std::string> hosts;
    for (int r = 0; r < size; ++r) {
      hosts.push_back(std::to_string(random() % 6));
    }
    std::vector<std::vector<int>> peers;
    for (int r = 0; r < size; ++r) {
      peers.push_back(BuildJobTree(hosts, r, fanout).Peers());
      std::vector<int> sorted = peers.back();
      std::sort(sorted.begin(), sorted.end());
      ASSERT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
    }
    for (int r = 0; r < size; ++r) {
      for (int peer : peers[r]) {
        ASSERT_EQ(std::count(peers[peer].begin(), peers[peer].end(), r), 1);
      }
    }
    for (int dead = 0; dead < size; ++dead) {
      if (std::count(hosts.begin(), hosts.end(), hosts[dead]) == 1) continue;
      // Of the dead rank's host, where the word begins: its deputy or leader.
      std::vector<bool> heard(size, false);
      std::vector<int> tell;
      for (int r = 0; r < size; ++r) {
        if (r == dead || hosts[r] != hosts[dead]) continue;
        heard[r] = true;  // by its watch
        tell.push_back(r);
      }
      while (!tell.empty()) {
        const int rank = tell.back();
        tell.pop_back();
        for (int peer : peers[rank]) {
          if (peer == dead || heard[peer]) continue;
          heard[peer] = true;
          tell.push_back(peer);
        }
      }
      ASSERT_EQ(std::count(heard.begin(), heard.end(), false), 1)
          << "without rank " << dead;
    }
  }
}

TEST(ControlTree, SizeOne) {
  ControlTree tree = BuildControlTree({"a"}, 0);
  EXPECT_TRUE(tree.is_root());
  EXPECT_THAT(tree.Peers(), IsEmpty());
}

}  // namespace
}  // namespace keras_ring
