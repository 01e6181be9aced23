#include "csrc/testing/local_host_group.h"

namespace keras_ring {

std::vector<std::unique_ptr<HostGroup>> CreateLocalHostGroups(
    int size, const HostGroupLayout& layout,
    const std::vector<std::shared_ptr<const SharedMemory>>& arenas) {
  std::vector<HostGroup::Member> members;
  for (int rank = 0; rank < size; ++rank) {
    Result<HostGroup::Member> member = NewHostGroupMember(
        rank, layout, arenas.empty() ? nullptr : arenas[rank]);
    KR_CHECK(member.ok());
    members.push_back(std::move(member).value());
  }
  std::vector<std::unique_ptr<HostGroup>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(std::make_unique<HostGroup>(members, rank, layout));
  }
  return groups;
}

}  // namespace keras_ring
