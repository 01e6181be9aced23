#include "csrc/collective/collective.h"

#include <algorithm>

namespace keras_ring {
namespace {

struct Run {
  BlockingCollective& collective;

  Status operator()(const AllreduceArgs& args) {
    return collective.Allreduce(args);
  }
  Status operator()(const AllgatherArgs& args) {
    return collective.Allgather(args);
  }
  Status operator()(const BroadcastArgs& args) {
    return collective.Broadcast(args);
  }
  Status operator()(const ReducescatterArgs& args) {
    return collective.Reducescatter(args);
  }
  Status operator()(const AlltoallArgs& args) {
    return collective.Alltoall(args);
  }
};

}  // namespace

void Collective::Tune(Tunable tunable, int64_t value) {
  for (const TunableRange& range : Tunables()) {
    if (range.tunable != tunable) continue;
    return Set(tunable, std::clamp(value, range.low, range.high));
  }
}

void BlockingCollective::Start(const CollectiveArgs& args, Done done) {
  done(std::visit(Run{*this}, args));
}

}  // namespace keras_ring
