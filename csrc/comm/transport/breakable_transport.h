// BreakableTransport: what a transport that waits for peers is made from, and
// how it breaks.
#ifndef KERAS_RING_COMM_TRANSPORT_BREAKABLE_TRANSPORT_H_
#define KERAS_RING_COMM_TRANSPORT_BREAKABLE_TRANSPORT_H_

#include <atomic>
#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/idle_limit.h"
#include "csrc/base/meter.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/spin.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

struct TransportDeps {
  int rank;
  int size;
  // How long nothing may move. A slow rank may take that long: a waiting rank,
  // in a ring every rank, cannot tell which one is at fault.
  std::shared_ptr<const IdleLimit> idle_limit;
  // How long nothing may move until the cause is looked for and reported.
  Duration report_time;
  Counters& counters;  // must outlive the transport
  RankSet ranks = {};  // those of `size`, which peers are counted in
  TraceSink* trace = nullptr;
  Duration spin = Duration::zero();  // how long Run looks before it sleeps
};

class BreakableTransport : public Transport {
 public:
  int rank() const final { return deps_.rank; }
  int size() const final { return deps_.size; }
  void Abort(const Status& cause) final;

 protected:
  // `wake`: an eventfd.
  BreakableTransport(TransportDeps deps, Socket wake);

  const TransportDeps& deps() const { return deps_; }
  const Meter& meter() const { return meter_; }
  Spinner& spinner() { return spinner_; }
  // Readable once Abort was called.
  int wake_fd() const { return wake_.fd(); }

  // For every turn of a loop: it reads no more than a flag.
  bool is_broken() const { return is_broken_; }
  Status cause() const { return broken_.Get(); }
  // Keeps the first cause, and returns it.
  Status Break(const Status& cause);

  // "rank 3"
  std::string RankText(int rank) const;

 private:
  const TransportDeps deps_;
  const Meter meter_;
  Spinner spinner_;
  const Socket wake_;

  std::atomic<bool> is_broken_{false};  // set after broken_
  StickyStatus broken_;                 // the first cause
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_BREAKABLE_TRANSPORT_H_
