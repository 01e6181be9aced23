// ShmCollective in the suite of all collectives, and what only it does.
#include "csrc/collective/shm_collective.h"

#include <chrono>
#include <random>
#include <thread>

#include "csrc/comm/arena.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

struct ShmFoundation {
  Counters counters;
  std::unique_ptr<HostGroup> group;
};

std::vector<CollectiveMember> MakeShm(int size,
                                      const ShmCollectiveOptions& options) {
  HostGroupLayout layout;
  layout.data_bytes = ShmCollective::DataBytes(size, options);
  std::vector<CollectiveMember> members;
  for (auto& group : CreateLocalHostGroups(size, layout)) {
    auto foundation = std::make_shared<ShmFoundation>();
    foundation->group = std::move(group);
    auto collective = std::make_unique<ShmCollective>(
        *foundation->group, options, foundation->counters);
    members.push_back({std::move(foundation), std::move(collective)});
  }
  return members;
}

// Parts of one cache line, so that nearly everything takes many chunks.
ShmCollectiveOptions SmallParts(Duration spin) {
  ShmCollectiveOptions options;
  options.part_bytes = 64;
  options.one_shot_bytes = 96;
  options.lockstep.spin = spin;
  return options;
}

std::vector<CollectiveMember> MakeSleeping(int size) {
  return MakeShm(size, SmallParts(Duration::zero()));
}
std::vector<CollectiveMember> MakeSpinning(int size) {
  return MakeShm(size, SmallParts(std::chrono::microseconds(100)));
}
std::vector<CollectiveMember> MakeUsual(int size) {
  return MakeShm(size, ShmCollectiveOptions());
}

// Puts some of the tensors of every allreduce into the rank's arena, and some
// nowhere: which, differs from rank to rank and from input to output.
class PartlyInArena final : public Collective {
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
  void Abort(const Status& cause) override { inner_.Abort(cause); }

 private:
  Collective& inner_;
  Arena& arena_;
  std::mt19937 random_;
};

struct ArenaFoundation {
  SystemClock clock;
  std::shared_ptr<Arena> arena;
  Counters counters;
  std::unique_ptr<HostGroup> group;
  std::unique_ptr<ShmCollective> collective;
};

std::vector<CollectiveMember> MakeDirect(int size) {
  ShmCollectiveOptions options = SmallParts(Duration::zero());
  options.direct_bytes = 0;
  options.direct_part_bytes = 128;
  HostGroupLayout layout;
  layout.data_bytes = ShmCollective::DataBytes(size, options);
  std::vector<std::shared_ptr<ArenaFoundation>> foundations;
  std::vector<std::shared_ptr<const SharedMemory>> memories;
  for (int rank = 0; rank < size; ++rank) {
    auto foundation = std::make_shared<ArenaFoundation>();
    auto arena = Arena::Create(size_t{1} << 30, foundation->clock);
    KR_CHECK(arena.ok());
    foundation->arena = std::move(arena).value();
    memories.emplace_back(foundation->arena, &foundation->arena->memory());
    foundations.push_back(std::move(foundation));
  }
  auto groups = CreateLocalHostGroups(size, layout, memories);
  std::vector<CollectiveMember> members;
  for (int rank = 0; rank < size; ++rank) {
    ArenaFoundation& foundation = *foundations[rank];
    foundation.group = std::move(groups[rank]);
    foundation.collective = std::make_unique<ShmCollective>(
        *foundation.group, options, foundation.counters);
    auto collective = std::make_unique<PartlyInArena>(*foundation.collective,
                                                      *foundation.arena, rank);
    members.push_back({foundations[rank], std::move(collective)});
  }
  return members;
}

INSTANTIATE_TEST_SUITE_P(
    Shm, CollectiveConformance,
    testing::Combine(
        testing::Values(CollectiveFactory{"sleeping", MakeSleeping},
                        CollectiveFactory{"spinning", MakeSpinning},
                        CollectiveFactory{"usual", MakeUsual},
                        CollectiveFactory{"direct", MakeDirect}),
        testing::ValuesIn(kConformanceSizes)),
    CollectiveConformance::Name);

}  // namespace
}  // namespace keras_ring
