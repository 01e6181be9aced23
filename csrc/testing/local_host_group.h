// Host groups of ranks that are threads of one process.
#ifndef KERAS_RING_TESTING_LOCAL_HOST_GROUP_H_
#define KERAS_RING_TESTING_LOCAL_HOST_GROUP_H_

#include <memory>
#include <vector>

#include "csrc/comm/host/host_group.h"

namespace keras_ring {

// By index. `arenas`: of each index, or none at all. They share one mapping of
// each segment, so that TSAN sees what the ranks do to each other.
std::vector<std::unique_ptr<HostGroup>> CreateLocalHostGroups(
    const std::vector<int>& ranks, const HostGroupLayout& layout,
    const std::vector<std::shared_ptr<const SharedMemory>>& arenas = {});
// Of the ranks 0, 1, ...
std::vector<std::unique_ptr<HostGroup>> CreateLocalHostGroups(
    int size, const HostGroupLayout& layout,
    const std::vector<std::shared_ptr<const SharedMemory>>& arenas = {});
// The segments of these groups go to the children that this process forks, each
// of which may then be one of the ranks.
void KeepInChildren(const std::vector<std::unique_ptr<HostGroup>>& groups,
                    const HostGroupLayout& layout);

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_LOCAL_HOST_GROUP_H_
