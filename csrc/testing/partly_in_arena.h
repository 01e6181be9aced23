// PartlyInArena: a collective whose tensors lie in an arena, some of them.
#ifndef KERAS_RING_TESTING_PARTLY_IN_ARENA_H_
#define KERAS_RING_TESTING_PARTLY_IN_ARENA_H_

#include <cstring>
#include <random>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/logging.h"
#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/comm/host/arena.h"
#include "csrc/testing/collective_calls.h"

namespace keras_ring {

// Puts some of the tensors of every allreduce into the rank's arena, and some
// nowhere: which, differs from rank to rank and from input to output.
class PartlyInArena final : public BlockingCollective {
 public:
  PartlyInArena(Collective& inner, Arena& arena, int seed)
      : inner_(inner), arena_(arena), random_(seed) {}

  Status Allreduce(const AllreduceArgs& args) override {
    AllreduceArgs moved = args;
    std::vector<void*> blocks;
    auto in_arena = [&](const void* from, size_t bytes) {
      void* block = arena_.Allocate(bytes);
      KR_CHECK(block != nullptr);
      blocks.push_back(block);
      if (from != nullptr && bytes > 0) std::memcpy(block, from, bytes);
      return block;
    };
    for (TensorSpan& tensor : moved.tensors) {
      const size_t bytes = tensor.count * DTypeSize(args.dtype);
      if (random_() % 8 == 0) continue;
      const bool in_place = tensor.input == tensor.output;
      tensor.input = in_arena(tensor.input, bytes);
      if (random_() % 8 == 0) continue;
      tensor.output =
          in_place ? const_cast<void*>(tensor.input) : in_arena(nullptr, bytes);
    }
    const Status status = inner_.Allreduce(moved);
    for (size_t t = 0; t < args.tensors.size(); ++t) {
      const size_t bytes = args.tensors[t].count * DTypeSize(args.dtype);
      if (status.ok() && bytes > 0 &&
          args.tensors[t].output != moved.tensors[t].output) {
        std::memcpy(args.tensors[t].output, moved.tensors[t].output, bytes);
      }
    }
    // As a framework would: what was there is gone at once.
    for (void* block : blocks) {
      std::memset(block, 0xa5, arena_.BlockBytes(block));
      arena_.Free(block);
    }
    return status;
  }
  Status Allgather(const AllgatherArgs& args) override {
    return inner_.Allgather(args);
  }
  Status Broadcast(const BroadcastArgs& args) override {
    return inner_.Broadcast(args);
  }
  Status Reducescatter(const ReducescatterArgs& args) override {
    return inner_.Reducescatter(args);
  }
  Status Alltoall(const AlltoallArgs& args) override {
    return inner_.Alltoall(args);
  }
  void PeerGone(int) override {}
  void Abort(const Status& cause) override { inner_.Abort(cause); }

 private:
  CollectiveCalls inner_;
  Arena& arena_;
  std::mt19937 random_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_PARTLY_IN_ARENA_H_
