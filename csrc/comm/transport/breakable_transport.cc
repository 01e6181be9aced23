#include "csrc/comm/transport/breakable_transport.h"

#include <utility>

namespace keras_ring {

BreakableTransport::BreakableTransport(TransportDeps deps, Socket wake)
    : deps_(std::move(deps)),
      meter_(deps_.counters, deps_.trace),
      spinner_(deps_.spin),
      wake_(std::move(wake)) {}

void BreakableTransport::Abort(const Status& cause) {
  (void)Break(cause);
  Signal(wake_);
}

Status BreakableTransport::Break(const Status& cause) {
  (void)broken_.Set(cause);
  is_broken_ = true;
  return broken_.Get();
}

std::string BreakableTransport::RankText(int rank) const {
  return "rank " + std::to_string(deps_.ranks.Global(rank));
}

}  // namespace keras_ring
