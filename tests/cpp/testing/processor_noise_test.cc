#include "csrc/testing/processor_noise.h"

#include <gtest/gtest.h>

namespace keras_ring {
namespace {

TEST(ProcessorNoiseTest, ThereIsNoneUnlessItIsAskedFor) {
  ProcessorNoise noise(NoiseModel(), 2, 1);
  EXPECT_EQ(noise.During(0, 1e6), 0);
  EXPECT_EQ(noise.During(1, 1e6), 0);
}

TEST(ProcessorNoiseTest, ComesAsOftenAsItShall) {
  NoiseModel model;
  model.short_rate = 20;
  model.long_rate = 0.5;
  ProcessorNoise noise(model, 1, 1);
  double taken = 0;
  for (int i = 0; i < 1000000; ++i) taken += noise.During(0, 1e-2);
  const double expected = 1e4 * (20 * 50e-6 + 0.5 * 1e-3);
  EXPECT_NEAR(taken, expected, 0.05 * expected);
}

TEST(ProcessorNoiseTest, ProcessorsAreInterruptedAtDifferentTimes) {
  NoiseModel model;
  model.long_rate = 1;
  ProcessorNoise noise(model, 2, 1);
  int same = 0;
  for (int i = 0; i < 1000; ++i) {
    same += noise.During(0, 0.1) == noise.During(1, 0.1);
  }
  EXPECT_LT(same, 950);
}

TEST(ProcessorNoiseTest, ASeedRepeatsIt) {
  NoiseModel model;
  model.short_rate = 10;
  const auto run = [&model](uint64_t seed) {
    ProcessorNoise noise(model, 3, seed);
    std::vector<double> taken;
    for (int i = 0; i < 100; ++i) taken.push_back(noise.During(i % 3, 0.1));
    return taken;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace keras_ring
