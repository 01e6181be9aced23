// RuntimeCluster: whole runtimes of one job in one process, connected by socket
// pairs (control) and a LocalTransport (data).
#ifndef KERAS_RING_TESTING_RUNTIME_CLUSTER_H_
#define KERAS_RING_TESTING_RUNTIME_CLUSTER_H_

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "csrc/runtime/runtime.h"

namespace keras_ring {

class RuntimeCluster {
 public:
  // `wrap` may put something around a rank's transport.
  using Wrap = std::function<std::unique_ptr<Transport>(
      int rank, std::unique_ptr<Transport> transport)>;
  RuntimeCluster(const std::vector<std::string>& host_ids,
                 const Options& options, const Wrap& wrap = nullptr);
  // Shuts down what a test has not.
  ~RuntimeCluster();

  int size() const { return static_cast<int>(runtimes_.size()); }
  Runtime& at(int rank) { return *runtimes_[rank]; }
  // Ends every rank, all at once.
  void ShutdownAll();

 private:
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
