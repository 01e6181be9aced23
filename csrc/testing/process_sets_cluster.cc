#include "csrc/testing/process_sets_cluster.h"

#include <sys/socket.h>

#include <thread>
#include <utility>

namespace keras_ring {

ProcessSetsCluster::ProcessSetsCluster(std::vector<std::string> host_ids,
                                       const Options& options,
                                       const RuntimeClusterSetup& setup,
                                       std::vector<SetNumbers>* numbers)
    : host_ids_(std::move(host_ids)),
      options_(options),
      setup_(setup),
      own_numbers_(host_ids_.size()) {
  if (numbers == nullptr) numbers = &own_numbers_;
  RuntimeClusterParts job = ConnectRuntimes(host_ids_, options_, setup_);
  {
    MutexLock lock(mutex_);
    parts_[0].control = std::move(job.control);
  }
  for (int rank = 0; rank < size(); ++rank) {
    sets_.push_back(std::make_shared<ProcessSets>(
        Runtime::Start(std::move(job.deps[rank])).value(),
        [this, rank](const RankSet& set, Deadline) {
          return Connect(rank, set);
        },
        (*numbers)[rank]));
  }
}

ProcessSetsCluster::~ProcessSetsCluster() {
  std::vector<std::thread> threads;
  for (const auto& sets : sets_) {
    threads.emplace_back([&sets] { sets->Shutdown(""); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::shared_ptr<Runtime> ProcessSetsCluster::runtime(int rank, int64_t set) {
  Result<std::shared_ptr<Runtime>> runtime = at(rank).RuntimeOf(set);
  KR_CHECK(runtime.ok());
  return *runtime;
}

Result<RuntimeDeps> ProcessSetsCluster::Connect(int rank, const RankSet& set) {
  if (fault_) KR_RETURN_IF_ERROR(fault_(rank, set));
  MutexLock lock(mutex_);
  RuntimeClusterParts& parts = parts_[set.number()];
  if (parts.deps.empty()) {
    std::vector<std::string> hosts;
    for (int32_t member : set.members()) hosts.push_back(host_ids_[member]);
    parts = ConnectRuntimes(hosts, options_, setup_, set);
  }
  RuntimeDeps deps = std::move(parts.deps[set.Local(rank)]);
  deps.report_loss =
      [job = std::weak_ptr<Runtime>(sets_[rank]->job())](const Status& cause) {
        const auto runtime = job.lock();
        if (runtime) runtime->Break(cause);
        return runtime != nullptr;
      };
  return deps;
}

void ProcessSetsCluster::CutOff(int rank, uint32_t set) {
  MutexLock lock(mutex_);
  for (int fd : parts_.at(set).control[rank]) {
    KR_CHECK(shutdown(fd, SHUT_RDWR) == 0);
  }
}

}  // namespace keras_ring
