#include "csrc/testing/local_host_group.h"

#include <sys/mman.h>

#include <numeric>

namespace keras_ring {

std::vector<std::unique_ptr<HostGroup>> CreateLocalHostGroups(
    const std::vector<int>& ranks, const HostGroupLayout& layout,
    const std::vector<std::shared_ptr<const SharedMemory>>& arenas) {
  std::vector<HostGroup::Member> members;
  for (int rank : ranks) {
    Result<HostGroup::Member> member = NewHostGroupMember(
        rank, layout, arenas.empty() ? nullptr : arenas[members.size()]);
    KR_CHECK(member.ok());
    members.push_back(std::move(member).value());
  }
  std::vector<std::unique_ptr<HostGroup>> groups;
  for (size_t index = 0; index < ranks.size(); ++index) {
    groups.push_back(
        std::make_unique<HostGroup>(members, static_cast<int>(index), layout));
  }
  return groups;
}

std::vector<std::unique_ptr<HostGroup>> CreateLocalHostGroups(
    int size, const HostGroupLayout& layout,
    const std::vector<std::shared_ptr<const SharedMemory>>& arenas) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return CreateLocalHostGroups(ranks, layout, arenas);
}

void KeepInChildren(const std::vector<std::unique_ptr<HostGroup>>& groups,
                    const HostGroupLayout& layout) {
  const HostGroup& group = *groups.front();  // all share the segments
  for (int i = 0; i < group.size(); ++i) {
    char* const segment = group.control(i) - HostFacts::kBytes;
    KR_CHECK(madvise(segment, layout.total(), MADV_DOFORK) == 0);
  }
}

}  // namespace keras_ring
