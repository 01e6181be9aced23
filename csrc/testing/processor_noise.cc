#include "csrc/testing/processor_noise.h"

#include <limits>

namespace keras_ring {

ProcessorNoise::ProcessorNoise(const NoiseModel& model, int num_processors,
                               uint64_t seed)
    : model_(model), generator_(seed) {
  until_.reserve(num_processors);
  for (int i = 0; i < num_processors; ++i) {
    const double first_short = Draw(model.short_rate);
    until_.push_back({first_short, Draw(model.long_rate)});
  }
}

double ProcessorNoise::During(int processor, double busy) {
  Until& until = until_[processor];
  return Of(busy, model_.short_rate, model_.short_seconds, &until.next_short) +
         Of(busy, model_.long_rate, model_.long_seconds, &until.next_long);
}

double ProcessorNoise::Draw(double rate) {
  if (rate <= 0) return std::numeric_limits<double>::infinity();
  return std::exponential_distribution<double>(rate)(generator_);
}

double ProcessorNoise::Of(double busy, double rate, double seconds,
                          double* until) {
  double taken = 0;
  *until -= busy;
  while (*until < 0) {
    taken += seconds;
    *until += Draw(rate);
  }
  return taken;
}

}  // namespace keras_ring
