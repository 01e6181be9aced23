// HostGroup: the ranks of one host. Each has a segment of memory that all of
// them map, and bells that all of them can ring.
#ifndef KERAS_RING_COMM_HOST_HOST_GROUP_H_
#define KERAS_RING_COMM_HOST_HOST_GROUP_H_

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/comm/host/liveness.h"
#include "csrc/comm/host/shared_memory.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

// Facts about a rank, which it writes at the beginning of its segment.
struct HostFacts {
  static constexpr size_t kBytes = 4096;
  cpu_set_t cores;  // that it may use
  // The CPU quota in cores, and the id of the control group that shares it; 0:
  // there is no quota. See CpuQuota.
  double quota_cores;
  uint64_t quota_group;
  uint64_t arena_bytes;     // 0: it has none
  uint32_t maps_no_arenas;  // addresses do not suffice
  LivenessFutex liveness;   // see DeathWatch
};

// The size of each part of a rank's segment: equal on all ranks of the host.
struct HostGroupLayout {
  // For the control plane (see LocalLink) and for the collectives. Multiples of
  // 64.
  size_t control_bytes = 0;
  size_t data_bytes = 0;
  size_t total() const {
    return HostFacts::kBytes + control_bytes + data_bytes;
  }
};

class HostGroup {
 public:
  struct Member {
    int rank = 0;  // in the set of ranks that the group belongs to
    std::shared_ptr<SharedMemory> segment;
    // Eventfds that wake its control thread, and the thread that runs its
    // collectives.
    std::shared_ptr<Socket> bell;
    std::shared_ptr<Socket> data_bell;
    // The arena that holds the rank's tensors, if they are in shared memory;
    // else null. Other ranks may read it. Null for all ranks if a rank cannot
    // map all arenas.
    std::shared_ptr<const SharedMemory> arena;
  };

  // Meets the other ranks of this host, which all call this. `ranks`: theirs
  // and this one, ascending. `links`: an authenticated connection to each other
  // rank (on the lowest rank, the leader) or to the leader (on the others).
  // `arena`: this rank's, or null. Succeeds on all ranks or fails on all with
  // the cause. `set`: the set that `ranks` are counted in.
  static Result<std::unique_ptr<HostGroup>> Form(
      const std::vector<int>& ranks, int own_rank,
      const HostGroupLayout& layout, std::shared_ptr<const SharedMemory> arena,
      const Links& links, Deadline deadline, const RankSet& set = {});
  // The same for some of the ranks of the job's group. Their arenas are those
  // that the job's group has mapped; they are not mapped again.
  static Result<std::unique_ptr<HostGroup>> FormWithin(
      const HostGroup& job, const RankSet& set, const std::vector<int>& ranks,
      int own_rank, const HostGroupLayout& layout, const Links& links,
      Deadline deadline);

  HostGroup(std::vector<Member> members, int local_rank,
            const HostGroupLayout& layout, RankSet ranks = {})
      : members_(std::move(members)),
        local_rank_(local_rank),
        layout_(layout),
        ranks_(std::move(ranks)) {}

  int size() const { return static_cast<int>(members_.size()); }
  // The index of this rank among those of the host, which are in rank order.
  int local_rank() const { return local_rank_; }
  int rank(int local_rank) const { return members_[local_rank].rank; }
  // The same as a rank of the job, for messages.
  int global_rank(int local_rank) const {
    return ranks_.Global(rank(local_rank));
  }
  std::vector<int> global_ranks() const;  // by local rank
  // The local rank of a rank; -1 if it is on another host.
  int LocalRankOf(int rank) const;

  char* control(int local_rank) const {
    return members_[local_rank].segment->data() + HostFacts::kBytes;
  }
  char* data(int local_rank) const {
    return control(local_rank) + layout_.control_bytes;
  }
  size_t data_bytes() const { return layout_.data_bytes; }
  LivenessFutex& liveness(int local_rank) const;
  const Socket& bell(int local_rank) const {
    return *members_[local_rank].bell;
  }
  const Socket& data_bell(int local_rank) const {
    return *members_[local_rank].data_bell;
  }

  // Returns null if the rank has no arena.
  const SharedMemory* arena(int local_rank) const {
    return members_[local_rank].arena.get();
  }

  // Returns how many cores the ranks may use together: the cores that they may
  // run on, or fewer where there is a CPU quota. 0 if that is less than one.
  int NumUsableCores() const;

 private:
  const std::vector<Member> members_;
  const int local_rank_;
  const HostGroupLayout layout_;
  const RankSet ranks_;
};

// Creates this rank's own member.
Result<HostGroup::Member> NewHostGroupMember(
    int rank, const HostGroupLayout& layout,
    std::shared_ptr<const SharedMemory> arena = nullptr);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_HOST_GROUP_H_
