// TcpTransport: the Transport over one TCP link per peer.
#ifndef KERAS_RING_COMM_TCP_TRANSPORT_H_
#define KERAS_RING_COMM_TCP_TRANSPORT_H_

#include <atomic>
#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/mutex.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/comm/link.h"
#include "csrc/comm/socket.h"
#include "csrc/comm/transport.h"

namespace keras_ring {

class TcpTransport final : public Transport {
 public:
  // Takes the links with the peers that Run will name. `counters` must outlive
  // the transport. `ranks`: those of `size`.
  static Result<std::unique_ptr<TcpTransport>> Create(
      int rank, int size, Links peers, Duration idle_limit, Counters& counters,
      const RankSet& ranks = {});

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status Run(Duplex& duplex) override;
  void Abort(const Status& cause) override;

 private:
  TcpTransport(int rank, int size, Links peers, Duration idle_limit,
               Counters& counters, const RankSet& ranks);
  // "rank 3"
  std::string RankText(int rank) const;
  std::string Silence(const Duplex& duplex, bool sending, bool receiving) const;
  Status CheckPeer(int peer) const;
  // Break keeps the first cause; both return it.
  Status Break(const Status& cause);
  Status FirstCause();

  const int rank_;
  const int size_;
  const Links peers_;
  const Duration idle_limit_;
  Counters& counters_;
  const RankSet ranks_;
  Socket wake_;  // signalled by Abort, and from then on

  // Set after broken_, and read first: the loop asks at every turn.
  std::atomic<bool> is_broken_{false};
  Mutex mutex_;
  Status broken_ KR_GUARDED_BY(mutex_);  // the first cause
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TCP_TRANSPORT_H_
