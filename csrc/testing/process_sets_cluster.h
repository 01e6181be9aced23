// ProcessSetsCluster: the process sets of a whole job in one process.
#ifndef KERAS_RING_TESTING_PROCESS_SETS_CLUSTER_H_
#define KERAS_RING_TESTING_PROCESS_SETS_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/runtime/process_sets.h"
#include "csrc/testing/runtime_cluster.h"

namespace keras_ring {

class ProcessSetsCluster {
 public:
  // `numbers`: of the processes of the ranks, which may have been in jobs
  // before. Null: new ones.
  ProcessSetsCluster(std::vector<std::string> host_ids, const Options& options,
                     const RuntimeClusterSetup& setup = {},
                     std::vector<SetNumbers>* numbers = nullptr);
  // Shuts down what a test has not, all ranks at once.
  ~ProcessSetsCluster();

  int size() const { return static_cast<int>(host_ids_.size()); }
  ProcessSets& at(int rank) { return *sets_[rank]; }
  std::shared_ptr<ProcessSets> shared(int rank) { return sets_[rank]; }
  // Of set number `set` on `rank`, which is a member.
  std::shared_ptr<Runtime> runtime(int rank, int64_t set);

  // What a member finds when it connects with a set; OK if nothing is said.
  void SetConnectFault(std::function<Status(int rank, const RankSet&)> fault) {
    fault_ = std::move(fault);
  }
  // Breaks the control connections that a rank has in a set, as its death
  // would.
  void CutOff(int rank, uint32_t set) KR_EXCLUDES(mutex_);

 private:
  Result<RuntimeDeps> Connect(int rank, const RankSet& set) KR_EXCLUDES(mutex_);

  const std::vector<std::string> host_ids_;
  const Options options_;
  const RuntimeClusterSetup setup_;
  std::function<Status(int rank, const RankSet&)> fault_;
  std::vector<SetNumbers> own_numbers_;  // by rank
  Mutex mutex_;
  // By number. The first member that comes connects all of them.
  std::map<uint32_t, RuntimeClusterParts> parts_ KR_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<ProcessSets>> sets_;  // by rank
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_PROCESS_SETS_CLUSTER_H_
