// A backend: one way to make the collectives of a job.
#ifndef KERAS_RING_COLLECTIVE_BACKEND_H_
#define KERAS_RING_COLLECTIVE_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/device.h"
#include "csrc/base/idle_limit.h"
#include "csrc/base/meter.h"
#include "csrc/base/options.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/collective/collective.h"

namespace keras_ring {

class HostGroup;
class Mesh;

// What a backend may be made of. All of it outlives the collective.
struct BackendDeps {
  const Options& options;  // rank and size are those in `ranks`
  RankSet ranks;
  const HostGroup* host;  // null if this host's ranks do not share memory
  const std::vector<std::string>& host_ids;  // by rank
  // Whether the ranks of each host share memory: alike on all of them.
  bool hosts_share_memory;
  std::shared_ptr<IdleLimit> idle_limit;
  Duration spin;  // how long a thread looks for what it waits for
  const Clock& clock;
  Counters& counters;
  TraceSink* trace;  // or null
};

struct CollectiveBackend {
  const char* name;   // a value of KERAS_RING_COLLECTIVE
  DeviceKind device;  // of the tensors that it serves
  bool reads_arenas;  // where ranks put tensors for those of their host
  // OK, or why it cannot serve this job: alike on all ranks.
  Status (*available)(const BackendDeps& deps);
  // Connects this rank by `mesh`; all ranks call it.
  Result<std::unique_ptr<Collective>> (*make)(const BackendDeps& deps,
                                              Mesh& mesh, Deadline deadline);
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_BACKEND_H_
