// The algorithms that a job is configured to use between hosts.
#ifndef KERAS_RING_COLLECTIVE_NET_ALGORITHMS_H_
#define KERAS_RING_COLLECTIVE_NET_ALGORITHMS_H_

#include <cstdint>

#include "csrc/base/options.h"
#include "csrc/base/tunable.h"
#include "csrc/collective/adasum.h"
#include "csrc/collective/net/cost_model.h"

namespace keras_ring {

// Must be equal on all ranks.
struct Algorithms {
  LinkModel links;
  Preference allreduce = Preference::kByModel;
  Preference broadcast = Preference::kByModel;
  // If true, groups of an allreduce have two members: binomial trees, or
  // recursive halving and doubling.
  bool in_pairs = false;
  // If true, these go round the ring even if all ranks are linked.
  bool ring_allreduce = false;
  bool ring_allgather = false;
  bool ring_reducescatter = false;
  bool ring_alltoall = false;
  int64_t adasum_round = Adasum::kRoundBytes;  // see Adasum
};

// The range of the tunable preference; `now` is its value.
TunableRange PreferenceRange(Preference now);

// Returns the algorithms that the options name, with the usual links.
Algorithms AlgorithmsOf(const Options& options);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_ALGORITHMS_H_
