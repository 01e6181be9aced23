// CollectiveCalls: a Collective as a test calls it, from one thread: every call
// waits until it is done.
#ifndef KERAS_RING_TESTING_COLLECTIVE_CALLS_H_
#define KERAS_RING_TESTING_COLLECTIVE_CALLS_H_

#include <future>
#include <utility>
#include <vector>

#include "csrc/collective/collective.h"

namespace keras_ring {

class CollectiveCalls {
 public:
  // `collective` must outlive the object.
  explicit CollectiveCalls(Collective& collective) : collective_(collective) {}

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
    std::promise<Status> outcome;
    collective_.Start(
        args, [&outcome](const Status& status) { outcome.set_value(status); });
    return outcome.get_future().get();
  }

  Collective& collective_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_COLLECTIVE_CALLS_H_
