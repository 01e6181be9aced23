// SilenceText: describes a plan in which nothing moves, for a transport.
#ifndef KERAS_RING_COMM_TRANSPORT_SILENCE_H_
#define KERAS_RING_COMM_TRANSPORT_SILENCE_H_

#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/rank_set.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// `senders` and `receivers`: the peers that it waits for, counted in `ranks`.
// `events` may be null.
std::string SilenceText(const std::vector<int>& senders,
                        const std::vector<int>& receivers,
                        const PlanEvents* events, Duration idle,
                        const RankSet& ranks);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_SILENCE_H_
