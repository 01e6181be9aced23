// A backend: one implementation of the collectives of a job.
#ifndef KERAS_RING_COLLECTIVE_BACKEND_H_
#define KERAS_RING_COLLECTIVE_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/idle_limit.h"
#include "csrc/base/meter.h"
#include "csrc/base/options.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/device/device.h"

namespace keras_ring {

class HostGroup;
class Mesh;
namespace cuda {
class CudaAccess;
}

// The parts that a backend is made of. All of them must outlive the collective.
struct BackendDeps {
  const Options& options;  // rank and size are those in `ranks`
  RankSet ranks;
  const HostGroup* host;  // null if this host's ranks do not share memory
  const std::vector<std::string>& host_ids;  // by rank
  // True if the ranks of each host share memory: equal on all ranks.
  bool hosts_share_memory;
  std::shared_ptr<IdleLimit> idle_limit;
  Duration spin;  // how long a thread looks for what it waits for
  const Clock& clock;
  Counters& counters;
  TraceSink* trace;  // or null
  // For the backends of devices: what they use, and the collective of host
  // memory.
  cuda::CudaAccess* gpus = nullptr;
  Collective* host_collective = nullptr;
};

struct CollectiveBackend {
  const char* name;   // value of KERAS_RING_COLLECTIVE, or _GPU_COLLECTIVE
  DeviceKind device;  // where the tensors that it serves are
  // True if it reads the arenas in which ranks put tensors for their host.
  bool reads_arenas;
  // Returns OK, or why the backend cannot serve this job: equal on all ranks.
  Status (*available)(const BackendDeps& deps);
  // Connects this rank through `mesh`; all ranks must call it.
  Result<std::unique_ptr<Collective>> (*make)(const BackendDeps& deps,
                                              Mesh& mesh, Deadline deadline);
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_BACKEND_H_
