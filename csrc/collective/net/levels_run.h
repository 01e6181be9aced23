// LevelsRun: a collective over the levels of groups, an exchange on each.
#ifndef KERAS_RING_COLLECTIVE_NET_LEVELS_RUN_H_
#define KERAS_RING_COLLECTIVE_NET_LEVELS_RUN_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "csrc/base/meter.h"
#include "csrc/base/status.h"
#include "csrc/collective/net/exchange.h"
#include "csrc/collective/net/exchange_run.h"
#include "csrc/collective/net/levels.h"
#include "csrc/collective/scratch_buffer.h"
#include "csrc/collective/spans.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// Which ranks have values, and which want results. The `part` of a chunk that
// belongs to ranks [begin, end) is contiguous, and that of the ranks after them
// follows.
struct Traffic {
  enum class Kind {
    kAllreduce,
    kBroadcast,      // the root has all values
    kAllgather,      // each rank has the values of its part
    kReducescatter,  // each rank wants the results of its part
  };
  Kind kind = Kind::kAllreduce;
  int root = 0;
  std::function<Range(int64_t chunk, int begin, int end)> part;
};

struct LevelsShape {
  // The number of chunks in flight on the lowest level; half as many on the
  // next one, and so on. In a stream the result of a chunk follows the values
  // of `lag` later ones. With the same number above, it would wait there for
  // values of which the level below has just sent its share, so that each chunk
  // would pass all levels, there and back, by itself.
  int64_t lag = 1;
  // True if few messages matter more than few bytes: one shot on the top, and
  // below one member of each group takes all.
  bool is_small = false;
  Traffic traffic;
};

class LevelsRun {
 public:
  // `groups`: from PlanLevels. `ranks`: ranks of the transport, by those in
  // `groups`. `below` reduces `chunks` of `row`. `scratch`: one buffer per
  // group, without another user meanwhile. All references must outlive the
  // object.
  LevelsRun(const std::vector<Group>& groups, const std::vector<int>& ranks,
            const std::vector<Range>& chunks, const LevelsShape& shape,
            InnerLevel& below, const FoldMethod& method, const Spans& row,
            std::deque<ScratchBuffer>& scratch, const Meter& meter);

  // See ExchangeRun.
  Status AddTo(SendReceivePlan& plan);
  bool Advance(SendReceivePlan& plan);
  int64_t num_done() const { return runs_.front().num_done(); }

 private:
  std::deque<ExchangeSchedule> schedules_;
  std::deque<ExchangeRun> runs_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_LEVELS_RUN_H_
