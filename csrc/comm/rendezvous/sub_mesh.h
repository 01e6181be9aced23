// SubMesh: the Mesh of a process set, a view of the job's.
#ifndef KERAS_RING_COMM_RENDEZVOUS_SUB_MESH_H_
#define KERAS_RING_COMM_RENDEZVOUS_SUB_MESH_H_

#include <vector>

#include "csrc/base/rank_set.h"
#include "csrc/comm/rendezvous/mesh.h"

namespace keras_ring {

// Its members are those of the set, by their rank in it, and its links belong
// to the set.
class SubMesh final : public Mesh {
 public:
  // `job` must outlive the object.
  SubMesh(Mesh& job, RankSet set);

  int rank() const override { return set_.Local(job_.rank()); }
  const std::vector<Member>& members() const override { return members_; }
  Result<Links> Connect(LinkUse use, const std::vector<int>& peers,
                        Deadline deadline) override;
  // Aborts the mesh of the whole job.
  void Abort(const Status& cause) override { job_.Abort(cause); }

 private:
  Mesh& job_;
  const RankSet set_;
  std::vector<Member> members_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_SUB_MESH_H_
