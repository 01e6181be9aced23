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

CallArgs& CallOf(CollectiveArgs& args) {
  return std::visit([](auto& call) -> CallArgs& { return call; }, args);
}

const CallArgs& CallOf(const CollectiveArgs& args) {
  return std::visit([](const auto& call) -> const CallArgs& { return call; },
                    args);
}

void BlockingCollective::Start(const CollectiveArgs& args, Done done) {
  for (const auto& event : CallOf(args).ready) {
    Status reached = event->Wait();
    if (!reached.ok()) return done(reached);
  }
  done(std::visit(Run{*this}, args));
}

}  // namespace keras_ring
