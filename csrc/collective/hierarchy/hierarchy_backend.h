// The backend for ranks on several hosts that share memory where they can.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_

#include "csrc/collective/backend.h"
#include "csrc/collective/hierarchy/host_stage.h"
#include "csrc/collective/net/connect_transport.h"

namespace keras_ring {

// The memory that the ranks of a host share for it depends only on the job.
HostStageOptions StageOptionsFor(int num_hosts, int ranks_per_host);

// Its collective over another transport between the hosts, for jobs in which
// HierarchyAvailable returns OK.
Status HierarchyAvailable(const BackendDeps& deps);
Result<std::unique_ptr<Collective>> MakeHierarchy(const BackendDeps& deps,
                                                  Mesh& mesh,
                                                  TransportMaker connect,
                                                  Deadline deadline);

// Uses TCP.
extern const CollectiveBackend kHierarchyBackend;

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_
