// CollectiveCalls: a Collective as a test calls it, from one thread: every call
// waits until it is done.
#ifndef KERAS_RING_TESTING_COLLECTIVE_CALLS_H_
#define KERAS_RING_TESTING_COLLECTIVE_CALLS_H_

#include <future>
#include <utility>
#include <vector>

#include "csrc/collective/collective.h"
#include "csrc/testing/device_arguments.h"

namespace keras_ring {

class CollectiveCalls {
 public:
  // `collective` must outlive the object.
  explicit CollectiveCalls(Collective& collective) : collective_(collective) {}
  // The same for tensors that are copied to a device, and results that are
  // copied back.
  CollectiveCalls(Collective& collective, int rank, DeviceRegion* region)
      : collective_(collective), rank_(rank), region_(region) {}

  Status Allreduce(const AllreduceArgs& args) { return Run(args); }
  Status Allgather(const AllgatherArgs& args) { return Run(args); }
  Status Broadcast(const BroadcastArgs& args) { return Run(args); }
  Status Reducescatter(const ReducescatterArgs& args) { return Run(args); }
  Status Alltoall(const AlltoallArgs& args) { return Run(args); }
  std::vector<TunableRange> Tunables() const { return collective_.Tunables(); }
  void Tune(Tunable tunable, int64_t value) {
    collective_.Tune(tunable, value);
  }
  void Abort(const Status& cause) { collective_.Abort(cause); }

 private:
  Status Run(const CollectiveArgs& args) {
    if (region_ == nullptr) return Await(args);
    DeviceArguments there(args, rank_, *region_);
    Status status = Await(there.args());
    there.Finish();
    return status;
  }
  Status Await(const CollectiveArgs& args) {
    std::promise<Status> outcome;
    collective_.Start(
        args, [&outcome](const Status& status) { outcome.set_value(status); });
    return outcome.get_future().get();
  }

  Collective& collective_;
  const int rank_ = 0;
  DeviceRegion* const region_ = nullptr;  // null: the host's memory
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_COLLECTIVE_CALLS_H_
