// MeasureLinks: measures the constants of the cost model in this job.
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

// Makes each rank of `line` send to the next and receive from the one before,
// all at once, as in a collective. The ranks of the transport that are in
// `line` call this together; both neighbours must be linked. Sends a few
// messages.
Result<LinkModel> MeasureLinks(Transport& transport,
                               const std::vector<int>& line, Deadline deadline);

// Returns the slowest model that any rank has measured. All ranks call it;
// those that are in no line pass null. If none was measured, returns the usual
// model.
Result<LinkModel> AgreeOnLinks(Mesh& mesh, const LinkModel* own,
                               Deadline deadline);

// Both steps, on all ranks of the mesh: `line` is that of this rank, or empty.
Result<LinkModel> MeasureAndAgree(Transport& transport,
                                  const std::vector<int>& line, Mesh& mesh,
                                  Deadline deadline);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_MEASURE_LINKS_H_
