// ProcessorNoise: what takes a processor away from whoever computes on it.
#ifndef KERAS_RING_TESTING_PROCESSOR_NOISE_H_
#define KERAS_RING_TESTING_PROCESSOR_NOISE_H_

#include <cstdint>
#include <random>
#include <vector>

namespace keras_ring {

// Interruptions of two kinds, each of which comes at random, so many times per
// second of a processor. The defaults are none.
//
//   F. Petrini, D. J. Kerbyson, S. Pakin, "The Case of the Missing
//   Supercomputer Performance", SC 2003
struct NoiseModel {
  double short_seconds = 50e-6;  // a daemon, an interrupt
  double short_rate = 0;         // per second
  double long_seconds = 1e-3;    // another process's turn
  double long_rate = 0;          // per second
};

class ProcessorNoise {
 public:
  ProcessorNoise(const NoiseModel& model, int num_processors, uint64_t seed);

  // How long the interruptions take of a processor that works for `busy`
  // seconds from where it last stopped.
  double During(int processor, double busy);

 private:
  // Seconds of work until the next interruption.
  struct Until {
    double next_short;
    double next_long;
  };
  double Draw(double rate);
  // Those of one kind; `until` is moved on.
  double Of(double busy, double rate, double seconds, double* until);

  const NoiseModel model_;
  std::mt19937_64 generator_;
  std::vector<Until> until_;  // by processor
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_PROCESSOR_NOISE_H_
