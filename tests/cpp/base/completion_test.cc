#include "csrc/base/completion.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace keras_ring {
namespace {

class CompletionTest : public testing::Test {
 protected:
  Completion New() {
    return Completion([this](const Status& s) { fired_.push_back(s); });
  }
  std::vector<Status> fired_;
};

TEST_F(CompletionTest, FiresOnce) {
  {
    Completion completion = New();
    completion.Fire(OkStatus());
    EXPECT_FALSE(completion.armed());
  }
  ASSERT_EQ(fired_.size(), 1u);
  EXPECT_TRUE(fired_[0].ok());
}

TEST_F(CompletionTest, ADroppedOneReportsIt) {
  { Completion completion = New(); }
  ASSERT_EQ(fired_.size(), 1u);
  EXPECT_EQ(fired_[0].code(), StatusCode::kInternal);
}

TEST_F(CompletionTest, MovingPassesTheDutyOn) {
  Completion target;
  {
    Completion source = New();
    target = std::move(source);
  }
  EXPECT_TRUE(fired_.empty());
  target.Fire(AbortedError("a"));
  ASSERT_EQ(fired_.size(), 1u);
  EXPECT_EQ(fired_[0], AbortedError("a"));
}

TEST_F(CompletionTest, OverwritingDropsTheOldOne) {
  Completion completion = New();
  completion = New();
  EXPECT_EQ(fired_.size(), 1u);
  completion.Disarm();
}

TEST_F(CompletionTest, DisarmedSaysNothing) {
  {
    Completion completion = New();
    completion.Disarm();
  }
  EXPECT_TRUE(fired_.empty());
}

TEST_F(CompletionTest, IsEmptyWhileItsCallbackRuns) {
  Completion completion;
  bool armed_inside = true;
  completion =
      Completion([&](const Status&) { armed_inside = completion.armed(); });
  completion.Fire(OkStatus());
  EXPECT_FALSE(armed_inside);
}

TEST(CompletionDeathTest, FiringTwiceIsABug) {
  Completion completion([](const Status&) {});
  completion.Fire(OkStatus());
  EXPECT_DEATH(completion.Fire(OkStatus()), "KR_CHECK");
}

}  // namespace
}  // namespace keras_ring
