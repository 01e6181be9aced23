#include "csrc/control/step_meter.h"

#include <gtest/gtest.h>

#include "csrc/testing/controller_cluster.h"

namespace keras_ring {
namespace {

using std::chrono::milliseconds;

TEST(StepMeter, CountsEqualStepsOnly) {
  Counters counters;
  StepMeter meter(counters);
  TimePoint now{};
  const Request of_40_bytes = AllreduceRequest("a", 10);
  Request two = AllreduceRequest("b", 5);
  two.tensors.push_back(two.tensors.front());
  const auto step = [&](StepEnd end, milliseconds time) {
    meter.OnReady(end, of_40_bytes, now);
    meter.OnReady(StepEnd::kNone, two, now + time / 2);
    now += time;
  };
  step(StepEnd::kNone, milliseconds(1));
  step(StepEnd::kUnequal, milliseconds(10));
  EXPECT_EQ(counters.steps, 0u);
  step(StepEnd::kEqual, milliseconds(20));  // ends that of 10 ms
  EXPECT_EQ(counters.steps, 1u);
  EXPECT_EQ(counters.step_ns, 10'000'000u);
  EXPECT_EQ(counters.step_bytes, 80u);
  EXPECT_EQ(counters.step_tensors, 3u);
  step(StepEnd::kUnequal, milliseconds(30));  // ends that of 20 ms
  EXPECT_EQ(counters.steps, 1u);
  step(StepEnd::kEqual, milliseconds(1));
  EXPECT_EQ(counters.steps, 2u);
  EXPECT_EQ(counters.step_ns, 40'000'000u);
}

}  // namespace
}  // namespace keras_ring
