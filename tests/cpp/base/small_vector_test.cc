#include "csrc/base/small_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(SmallVector, HoldsWhatIsPushedOnBothSidesOfItsInlineRoom) {
  for (int count : {0, 1, 2, 3, 100}) {
    SmallVector<int, 2> vector;
    std::vector<int> expected;
    for (int i = 0; i < count; ++i) {
      vector.push_back(i * i);
      expected.push_back(i * i);
    }
    EXPECT_EQ(vector.empty(), count == 0);
    EXPECT_THAT(vector, ElementsAreArray(expected));
    for (int i = 0; i < count; ++i) EXPECT_EQ(vector[i], i * i);
  }
}

TEST(SmallVector, ElementsThatFitLieInside) {
  SmallVector<int> vector = {7};
  const char* begin = reinterpret_cast<const char*>(&vector);
  const char* at = reinterpret_cast<const char*>(vector.data());
  EXPECT_GE(at, begin);
  EXPECT_LT(at, begin + sizeof(vector));
}

TEST(SmallVector, WhatWasMovedFromIsEmptyAndUsable) {
  for (size_t count : {1, 5}) {
    SmallVector<int> from;
    for (size_t i = 0; i < count; ++i) from.push_back(3);
    SmallVector<int> to = std::move(from);
    EXPECT_EQ(to.size(), count);
    EXPECT_TRUE(from.empty());
    from.push_back(1);
    from.push_back(2);
    EXPECT_THAT(from, ElementsAre(1, 2));
    from = std::move(to);
    EXPECT_EQ(from.size(), count);
    EXPECT_EQ(from.front(), 3);
    EXPECT_TRUE(to.empty());
    to.push_back(9);
    EXPECT_THAT(to, ElementsAre(9));
  }
}

}  // namespace
}  // namespace keras_ring
