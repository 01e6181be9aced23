// Direct plans: collectives that only move bytes, each block straight from its
// rank to the rank that wants it.
#ifndef KERAS_RING_COLLECTIVE_NET_DIRECT_H_
#define KERAS_RING_COLLECTIVE_NET_DIRECT_H_

#include <cstdint>

#include "csrc/collective/collective.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// For rank `rank` in a group in which all ranks are linked. The rank's own
// block of an output is not touched.
SendReceivePlan PlanDirectAllgather(int rank, const AllgatherArgs& args);
SendReceivePlan PlanDirectAlltoall(int rank, int size,
                                   const AlltoallArgs& args);
// From the root to each of the others: for tensors so small that the root's
// link is no limit.
SendReceivePlan PlanDirectBroadcast(int rank, int size,
                                    const BroadcastArgs& args);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_DIRECT_H_
