// MeasureLinks: the constants of the cost model, as this job finds them.
#ifndef KERAS_RING_COLLECTIVE_NET_MEASURE_LINKS_H_
#define KERAS_RING_COLLECTIVE_NET_MEASURE_LINKS_H_

#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/collective/net/cost_model.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// Has each rank of `line` send to the next and receive from the one before, all
// at once, as they do in a collective. The ranks of the transport that are in
// it call this together; both neighbours must be linked. Takes a few messages.
Result<LinkModel> MeasureLinks(Transport& transport,
                               const std::vector<int>& line, Deadline deadline);

// The slowest that any rank has found. All ranks call it; those that are in no
// line pass null. With nothing measured, the usual model.
Result<LinkModel> AgreeOnLinks(Mesh& mesh, const LinkModel* own,
                               Deadline deadline);

// Both, on all ranks of the mesh: `line` has those of this rank, or is empty.
Result<LinkModel> MeasureAndAgree(Transport& transport,
                                  const std::vector<int>& line, Mesh& mesh,
                                  Deadline deadline);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_MEASURE_LINKS_H_
