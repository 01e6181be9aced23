#include "csrc/comm/rendezvous/sub_mesh.h"

#include <utility>

namespace keras_ring {

SubMesh::SubMesh(Mesh& job, RankSet set) : job_(job), set_(std::move(set)) {
  KR_CHECK(!set_.is_job());
  for (int32_t rank : set_.members()) {
    members_.push_back(job_.members()[rank]);
  }
}

Result<Links> SubMesh::Connect(LinkUse use, const std::vector<int>& peers,
                               Deadline deadline) {
  KR_CHECK(use.set == 0);
  KR_ASSIGN_OR_RETURN(auto links, job_.Connect(LinkUse(use.kind, set_.number()),
                                               set_.Global(peers), deadline));
  Links of_set;
  for (auto& [rank, link] : links) {
    of_set.emplace(set_.Local(rank), std::move(link));
  }
  return of_set;
}

}  // namespace keras_ring
