#include "csrc/control/bucket_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class BucketGateTest : public ::testing::Test {
 protected:
  // Names that go on when `name` comes.
  std::vector<std::string> Add(const std::string& name) {
    auto request = std::make_shared<Request>();
    request->name = name;
    std::vector<RequestPtr> released;
    gate_.Add(request, now_, released);
    return Names(released);
  }
  std::vector<std::string> ReleaseDue() {
    std::vector<RequestPtr> released;
    gate_.ReleaseDue(now_, released);
    return Names(released);
  }
  std::vector<std::string> SetPlan(
      const std::vector<std::vector<std::string>>& buckets) {
    std::vector<RequestPtr> released;
    gate_.SetPlan(buckets, released);
    return Names(released);
  }
  static std::vector<std::string> Names(
      const std::vector<RequestPtr>& requests) {
    std::vector<std::string> names;
    for (const RequestPtr& request : requests) names.push_back(request->name);
    return names;
  }

  BucketGate gate_;
  TimePoint now_{};
};

TEST_F(BucketGateTest, WithoutAPlanAllGoesOn) {
  EXPECT_THAT(Add("a"), ElementsAre("a"));
  EXPECT_FALSE(gate_.holds());
}

TEST_F(BucketGateTest, ABucketGoesOnWhenItIsComplete) {
  SetPlan({{"a", "b", "c"}, {"d"}});
  for (int step = 0; step < 3; ++step) {
    EXPECT_THAT(Add("c"), IsEmpty());
    EXPECT_THAT(Add("d"), ElementsAre("d"));
    EXPECT_THAT(Add("x"), ElementsAre("x")) << "not planned";
    EXPECT_THAT(Add("a"), IsEmpty());
    EXPECT_TRUE(gate_.holds());
    EXPECT_THAT(Add("b"), UnorderedElementsAre("a", "b", "c"));
    EXPECT_FALSE(gate_.holds());
    EXPECT_FALSE(gate_.NextRelease());
  }
}

TEST_F(BucketGateTest, ALateOneDoesNotHoldTheOthersForLong) {
  SetPlan({{"a", "b", "c"}});
  Add("a");
  now_ += BucketGate::kMaxHold / 2;
  Add("b");
  EXPECT_EQ(gate_.NextRelease(), now_ + BucketGate::kMaxHold);
  now_ += BucketGate::kMaxHold - Duration(1);
  EXPECT_THAT(ReleaseDue(), IsEmpty());
  now_ += Duration(1);
  EXPECT_THAT(ReleaseDue(), ElementsAre("a", "b"));
  EXPECT_FALSE(gate_.holds());
  EXPECT_THAT(Add("c"), ElementsAre("c"));
  // The next step is as planned.
  EXPECT_THAT(Add("a"), IsEmpty());
  EXPECT_THAT(Add("b"), IsEmpty());
  EXPECT_THAT(Add("c"), ElementsAre("a", "b", "c"));
}

TEST_F(BucketGateTest, OneThatNeverComesEndsTheRoundWhenAnotherComesAgain) {
  SetPlan({{"a", "b", "c"}});
  Add("a");
  Add("b");
  now_ += BucketGate::kMaxHold;
  ReleaseDue();
  EXPECT_THAT(Add("b"), IsEmpty()) << "the next step";
  EXPECT_THAT(Add("b"), ElementsAre("b")) << "the one after that: the first "
                                             "goes on, the second is held";
  EXPECT_TRUE(gate_.holds());
  EXPECT_THAT(Add("c"), IsEmpty());
  EXPECT_THAT(Add("a"), ElementsAre("b", "c", "a"));
}

TEST_F(BucketGateTest, ANewPlanLetsGoWhatTheOldOneHeld) {
  SetPlan({{"a", "b"}, {"c", "d"}});
  Add("a");
  Add("d");
  EXPECT_THAT(SetPlan({{"a", "c"}}), ElementsAre("a", "d"));
  EXPECT_FALSE(gate_.holds());
  EXPECT_THAT(Add("c"), IsEmpty());
  EXPECT_THAT(Add("a"), ElementsAre("c", "a"));
}

// Whatever comes, in whatever order and with whatever pauses, goes on exactly
// once, and nothing stays after its time.
TEST_F(BucketGateTest, EverythingGoesOnOnce) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::map<std::string, int> balance;
    auto count = [&balance](const std::vector<std::string>& names) {
      for (const std::string& name : names) --balance[name];
    };
    for (int event = 0; event < 300; ++event) {
      switch (random() % 10) {
        case 0: {
          std::vector<std::vector<std::string>> plan;
          for (int name = 0; name < 12; ++name) {
            if (plan.empty() || random() % 3 == 0) plan.emplace_back();
            if (random() % 5 > 0) plan.back().push_back(std::to_string(name));
          }
          count(SetPlan(plan));
          break;
        }
        case 1:
          now_ += Duration(random() % (2 * BucketGate::kMaxHold.count()));
          count(ReleaseDue());
          if (gate_.holds()) {
            ASSERT_TRUE(gate_.NextRelease());
            ASSERT_GT(*gate_.NextRelease(), now_);
          }
          break;
        default: {
          const std::string name = std::to_string(random() % 14);
          ++balance[name];
          count(Add(name));
        }
      }
      ASSERT_EQ(gate_.holds(), gate_.NextRelease().has_value());
    }
    now_ += BucketGate::kMaxHold;
    count(ReleaseDue());
    ASSERT_FALSE(gate_.holds());
    for (const auto& [name, left] : balance) ASSERT_EQ(left, 0) << name;
  }
}

}  // namespace
}  // namespace keras_ring
