#include "csrc/collective/net/algorithms.h"

#include <string>

namespace keras_ring {

TunableRange PreferenceRange(Preference now) {
  return {Tunable::kAllreducePreference, static_cast<int64_t>(now),
          static_cast<int64_t>(Preference::kByModel),
          static_cast<int64_t>(Preference::kFewBytes)};
}

Algorithms AlgorithmsOf(const Options& options) {
  Algorithms algorithms;
  const std::string& allreduce = options.allreduce;
  if (allreduce == "one_shot" || allreduce == "tree") {
    algorithms.allreduce = Preference::kFewHops;
  }
  if (allreduce == "two_shots" || allreduce == "halving_doubling") {
    algorithms.allreduce = Preference::kFewBytes;
  }
  algorithms.in_pairs = allreduce == "tree" || allreduce == "halving_doubling";
  if (options.broadcast == "direct") {
    algorithms.broadcast = Preference::kFewHops;
  }
  if (options.broadcast == "chain") {
    algorithms.broadcast = Preference::kFewBytes;
  }
  algorithms.ring_allreduce = allreduce == "ring";
  algorithms.ring_allgather = options.allgather == "ring";
  algorithms.ring_reducescatter = options.reducescatter == "ring";
  algorithms.ring_alltoall = options.alltoall == "ring";
  if (options.deterministic) algorithms.adasum_round = 0;
  return algorithms;
}

}  // namespace keras_ring
