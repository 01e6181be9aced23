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

TEST(ControlTree, SizeOne) {
  ControlTree tree = BuildControlTree({"a"}, 0);
  EXPECT_TRUE(tree.is_root());
  EXPECT_THAT(tree.Peers(), IsEmpty());
}

}  // namespace
}  // namespace keras_ring
