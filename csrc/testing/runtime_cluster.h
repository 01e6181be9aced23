// RuntimeCluster: whole runtimes of one job in one process, connected as they
// would be on hosts of their own or on shared ones.
#ifndef KERAS_RING_TESTING_RUNTIME_CLUSTER_H_
#define KERAS_RING_TESTING_RUNTIME_CLUSTER_H_

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/collective/collective.h"
#include "csrc/comm/transport/transport.h"
#include "csrc/cuda/driver.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

struct RuntimeClusterSetup {
  // False: control goes through socket pairs and tensors through a
  // LocalTransport. True: as in a real job, control messages between ranks of
  // one host go through memory, and so do the tensors if there is only one.
  bool shares_memory = false;
  Duration spin = Duration::zero();
  // Ranks that share memory, all on one host, also have a collective of device
  // tensors, by this driver. Null: they have none. Must outlive the runtimes.
  const cuda::Driver* driver = nullptr;
  // What the loops go by. Must outlive the runtimes.
  const Clock* clock = &SystemTime();
  // Is told of all ranks alike; or null. Must outlive the runtimes.
  TraceSink* trace = nullptr;
  // May put something around a rank's transport (where there is one) or its
  // collective.
  std::function<std::unique_ptr<Transport>(int rank,
                                           std::unique_ptr<Transport>)>
      wrap_transport;
  std::function<std::unique_ptr<Collective>(int rank,
                                            std::unique_ptr<Collective>)>
      wrap_collective;
};

// Connected and not started, by rank.
struct RuntimeClusterParts {
  std::vector<RuntimeDeps> deps;
  // The descriptors of each rank's control connections; `deps` own them.
  std::vector<std::vector<int>> control;
};
RuntimeClusterParts ConnectRuntimes(const std::vector<std::string>& host_ids,
                                    const Options& options,
                                    const RuntimeClusterSetup& setup,
                                    const RankSet& set = {});

class RuntimeCluster {
 public:
  RuntimeCluster(const std::vector<std::string>& host_ids,
                 const Options& options, const RuntimeClusterSetup& setup = {});
  // Shuts down what a test has not.
  ~RuntimeCluster();

  int size() const { return static_cast<int>(runtimes_.size()); }
  Runtime& at(int rank) { return *runtimes_[rank]; }
  std::shared_ptr<Runtime> shared(int rank) { return runtimes_[rank]; }
  // Ends every rank, all at once.
  void ShutdownAll();
  // Ends a rank and closes its connections, as the end of a process does.
  void Destroy(int rank) { runtimes_[rank].reset(); }
  // Breaks the control connections of a rank that runs, as its death would.
  void CutOff(int rank);

 private:
  std::vector<std::vector<int>> control_;  // see RuntimeClusterParts
  std::vector<std::shared_ptr<Runtime>> runtimes_;
};

// An operation on float32 that waits for its result.
struct FloatOperation {
  std::vector<float> input, output;
  std::promise<Status> finished;
  std::future<Status> status = finished.get_future();
};

// Enqueues a Sum of `values` under `name`; the operation must outlive it.
Status EnqueueSum(Runtime& runtime, const std::string& name,
                  FloatOperation& operation);

// Waits for the end of an operation, at most 30 s.
Status Await(FloatOperation& operation);

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_RUNTIME_CLUSTER_H_
