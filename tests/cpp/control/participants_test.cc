#include "csrc/control/participants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ControlTree SomeTree() {
  ControlTree tree;
  tree.rank = 0;
  tree.size = 6;
  tree.children = {{1, {1}}, {2, {2, 3, 5}}, {4, {4}}};
  return tree;
}

TEST(ParticipantsTest, AContributorCountsWhileItSpeaksForSomebody) {
  const ControlTree tree = SomeTree();
  Participants participants(tree);
  EXPECT_EQ(participants.NumContributors(), 4u);
  EXPECT_THAT(participants.RanksOf(0), ElementsAre(0));
  EXPECT_THAT(participants.RanksOf(2), ElementsAre(2, 3, 5));

  EXPECT_FALSE(participants.Join({0, 3}));
  EXPECT_EQ(participants.NumContributors(), 3u);
  EXPECT_THAT(participants.RanksOf(0), IsEmpty());
  EXPECT_THAT(participants.RanksOf(2), ElementsAre(2, 5));

  EXPECT_FALSE(participants.Join({2, 5}));
  EXPECT_EQ(participants.NumContributors(), 2u);
  EXPECT_THAT(participants.RanksOf(2), IsEmpty());
  EXPECT_EQ(participants.joined().size(), 4u);
  EXPECT_TRUE(participants.joined().Contains(3));
  EXPECT_FALSE(participants.joined().Contains(4));
}

TEST(ParticipantsTest, OnceAllHaveJoinedNoneHas) {
  const ControlTree tree = SomeTree();
  Participants participants(tree);
  EXPECT_FALSE(participants.Join({1, 2, 3, 4, 5}));
  EXPECT_TRUE(participants.Join({0}));
  EXPECT_TRUE(participants.joined().empty());
  EXPECT_EQ(participants.NumContributors(), 4u);
  EXPECT_THAT(participants.RanksOf(2), ElementsAre(2, 3, 5));
}

// Commands keep it while more ranks join.
TEST(ParticipantsTest, TheListOfThoseThatHaveDoesNotChange) {
  const ControlTree tree = SomeTree();
  Participants participants(tree);
  participants.Join({4});
  const JoinedRanks before = participants.joined();
  participants.Join({1});
  EXPECT_THAT(std::vector<int32_t>(before.begin(), before.end()),
              ElementsAre(4));
  EXPECT_EQ(participants.joined().size(), 2u);
}

}  // namespace
}  // namespace keras_ring
