#include "csrc/control/step_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "csrc/testing/controller_cluster.h"

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int kManySteps = 20;

class StepPlannerTest : public ::testing::Test {
 protected:
  StepPlannerTest() {
    // Slots 0 to 9, of 4 bytes each.
    for (int i = 0; i < 10; ++i) Insert(AllreduceRequest(std::to_string(i), 1));
  }
  void Insert(const Request& request) {
    auto agreed = std::make_shared<Response>();
    agreed->request = request;
    cache_.Insert(agreed, 1);
  }

  // Each slot comes while the one before still waits.
  void Together(StepPlanner& planner, std::vector<StepPlanner::Slot> slots) {
    for (StepPlanner::Slot slot : slots) planner.OnReady(slot);
    planner.OnDecided(slots);
    planner.OnExecuted();
  }
  // Each slot comes when the one before is through.
  void OneByOne(StepPlanner& planner, std::vector<StepPlanner::Slot> slots) {
    for (StepPlanner::Slot slot : slots) Together(planner, {slot});
  }

  ResponseCache cache_{100};
  StepPlanner planner_{cache_, 1000};
};

TEST_F(StepPlannerTest, WhatComesTogetherInEqualStepsSharesABucket) {
  for (int step = 0; step < 4; ++step) {
    EXPECT_FALSE(planner_.NewPlan()) << step;
    Together(planner_, {2, 0, 1});
    Together(planner_, {5, 4});
  }
  planner_.OnReady(0);  // ends the fourth step
  std::optional<StepPlan> plan = planner_.NewPlan();
  ASSERT_TRUE(plan);
  EXPECT_THAT(*plan,
              UnorderedElementsAre(ElementsAre(0, 1, 2), ElementsAre(4, 5)));
  EXPECT_EQ(planner_.BucketOf(0), planner_.BucketOf(2));
  EXPECT_EQ(planner_.BucketOf(3), -1);
  EXPECT_EQ(planner_.BucketSize(planner_.BucketOf(5)), 2u);
  EXPECT_FALSE(planner_.NewPlan()) << "told once";
}

// An eager program that waits for each result.
TEST_F(StepPlannerTest, WhatComesOnlyAfterAnotherIsThroughIsApart) {
  for (int step = 0; step < kManySteps; ++step) OneByOne(planner_, {0, 1, 2});
  std::optional<StepPlan> plan = planner_.NewPlan();
  ASSERT_TRUE(plan);
  EXPECT_THAT(*plan, UnorderedElementsAre(ElementsAre(0), ElementsAre(1),
                                          ElementsAre(2)));
}

TEST_F(StepPlannerTest, TheOrderOfReadinessMayVary) {
  std::vector<StepPlanner::Slot> slots = {0, 1, 2, 3, 4};
  for (int step = 0; step < kManySteps; ++step) {
    Together(planner_, slots);
    std::next_permutation(slots.begin(), slots.end());
  }
  std::optional<StepPlan> plan = planner_.NewPlan();
  ASSERT_TRUE(plan);
  EXPECT_THAT(*plan, ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
}

TEST_F(StepPlannerTest, BucketsAreBounded) {
  StepPlanner planner(cache_, 12);
  for (int step = 0; step < kManySteps; ++step) {
    Together(planner, {0, 1, 2, 3, 4, 5, 6});
  }
  std::optional<StepPlan> plan = planner.NewPlan();
  ASSERT_TRUE(plan);
  EXPECT_THAT(*plan,
              UnorderedElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5),
                                   ElementsAre(6)));
}

TEST_F(StepPlannerTest, OnlyWhatMayShareACollectiveSharesABucket) {
  Request doubles = AllreduceRequest("doubles", 1);
  doubles.tensors.front().dtype = DType::kFloat64;
  Insert(doubles);  // slot 10
  doubles.name = "more";
  Insert(doubles);  // slot 11
  Request barrier;
  barrier.name = "barrier";
  barrier.kind = RequestKind::kBarrier;
  Insert(barrier);  // slot 12
  for (int step = 0; step < kManySteps; ++step) {
    Together(planner_, {0, 10, 1, 12, 11, 2});
  }
  std::optional<StepPlan> plan = planner_.NewPlan();
  ASSERT_TRUE(plan);
  EXPECT_THAT(*plan,
              UnorderedElementsAre(ElementsAre(0, 1, 2), ElementsAre(10, 11),
                                   ElementsAre(12)));
}

TEST_F(StepPlannerTest, UnequalStepsTeachNothing) {
  for (int step = 0; step < kManySteps; ++step) {
    Together(planner_, {0, 1, 2});
    if (step % 2 == 0) Together(planner_, {3});
  }
  EXPECT_FALSE(planner_.NewPlan());
}

TEST_F(StepPlannerTest, AStepWithSomethingElseLeavesThePlanAlone) {
  for (int step = 0; step < kManySteps; ++step) Together(planner_, {0, 1, 2});
  ASSERT_TRUE(planner_.NewPlan());
  Together(planner_, {0, 1, 2, 7});
  for (int step = 0; step < kManySteps; ++step) Together(planner_, {0, 1, 2});
  EXPECT_FALSE(planner_.NewPlan());
}

TEST_F(StepPlannerTest, AnotherProgramGetsAnotherPlan) {
  for (int step = 0; step < kManySteps; ++step) Together(planner_, {0, 1, 2});
  ASSERT_TRUE(planner_.NewPlan());
  for (int step = 0; step < kManySteps; ++step) Together(planner_, {5, 6});
  std::optional<StepPlan> plan = planner_.NewPlan();
  ASSERT_TRUE(plan);
  EXPECT_THAT(*plan, ElementsAre(ElementsAre(5, 6)));
}

TEST_F(StepPlannerTest, APlanThatFailsIsGivenUpAndTriedLessAndLess) {
  int waited = 0;
  for (int plans = 0; plans < 4; ++plans) {
    int steps = 0;
    std::optional<StepPlan> plan;
    while (!(plan = planner_.NewPlan())) {
      Together(planner_, {0, 1});
      ASSERT_LT(++steps, 1000);
    }
    EXPECT_THAT(*plan, ElementsAre(ElementsAre(0, 1)));
    EXPECT_GT(steps, 3 * waited / 2);
    waited = steps;
    // Once is nothing, nor is now and then, nor all in one step.
    for (int step = 0; step < 10; ++step) {
      for (int part = 0; part < 10; ++part) planner_.OnMissed(0);
      Together(planner_, {0, 1});
      planner_.OnComplete(0);
      Together(planner_, {0, 1});
    }
    EXPECT_FALSE(planner_.NewPlan());
    int missed = 0;
    while (!(plan = planner_.NewPlan())) {
      planner_.OnMissed(0);
      ASSERT_LT(++missed, 10);
      if (planner_.num_buckets() > 0) Together(planner_, {0, 1});
    }
    EXPECT_THAT(*plan, IsEmpty());
    EXPECT_EQ(planner_.BucketOf(0), -1);
  }
}

TEST_F(StepPlannerTest, AnotherBoundMakesThePlanAnew) {
  for (int step = 0; step < kManySteps; ++step) Together(planner_, {0, 1, 2});
  ASSERT_TRUE(planner_.NewPlan());
  planner_.SetBucketBytes(1000);  // as before
  EXPECT_FALSE(planner_.NewPlan());
  planner_.OnReady(0);
  planner_.SetBucketBytes(8);
  planner_.SetBucketBytes(9);
  std::optional<StepPlan> plan = planner_.NewPlan();
  ASSERT_TRUE(plan);
  EXPECT_THAT(*plan, IsEmpty());
  EXPECT_EQ(planner_.BucketOf(0), -1);
  int steps = 0;
  while (!(plan = planner_.NewPlan())) {
    Together(planner_, {0, 1, 2});
    ASSERT_LT(++steps, 7);
  }
  EXPECT_THAT(*plan, UnorderedElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST_F(StepPlannerTest, TellsEqualStepsFromOthers) {
  const auto first_of = [this](std::vector<StepPlanner::Slot> slots) {
    const StepEnd end = planner_.OnReady(slots.front());
    for (size_t i = 1; i < slots.size(); ++i) {
      EXPECT_EQ(planner_.OnReady(slots[i]), StepEnd::kNone);
    }
    return end;
  };
  EXPECT_EQ(first_of({0, 1}), StepEnd::kNone);
  EXPECT_EQ(first_of({0, 1}), StepEnd::kUnequal);  // before it was nothing
  EXPECT_EQ(first_of({1, 0}), StepEnd::kEqual);
  EXPECT_EQ(first_of({0, 1, 2}), StepEnd::kEqual);
  EXPECT_EQ(first_of({0, 1}), StepEnd::kUnequal);
  EXPECT_EQ(first_of({0, 1}), StepEnd::kUnequal);
  EXPECT_EQ(first_of({0, 1}), StepEnd::kEqual);
}

TEST_F(StepPlannerTest, SlotsThatAreGoneAreNotPlanned) {
  for (int step = 0; step < 3; ++step) Together(planner_, {0, 1});
  Insert(AllreduceRequest("0", 2));  // evicts slot 0
  for (int step = 0; step < kManySteps; ++step) Together(planner_, {0, 1});
  std::optional<StepPlan> plan = planner_.NewPlan();
  EXPECT_TRUE(!plan || plan->empty());
}

TEST_F(StepPlannerTest, NamesThatNeverComeAgainTakeNoEndOfMemory) {
  for (StepPlanner::Slot slot = 100; slot < 200000; ++slot) {
    planner_.OnReady(slot);
  }
  EXPECT_FALSE(planner_.NewPlan());
}

}  // namespace
}  // namespace keras_ring
