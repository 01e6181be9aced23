// Transport: moves bytes between ranks, for the data plane.
#ifndef KERAS_RING_COMM_TRANSPORT_TRANSPORT_H_
#define KERAS_RING_COMM_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "csrc/base/status.h"

namespace keras_ring {

// A piece of memory that moves in one go.
struct Segment {
  void* data = nullptr;
  size_t bytes = 0;
};
struct ConstSegment {
  const void* data = nullptr;
  size_t bytes = 0;
};

// One rank's part of a collective: an ordered list of segments to send to one
// peer and of segments to receive from another, both at once.
//
// Every algorithm here (ring allreduce, ring allgather, chain broadcast) is a
// SendReceivePlan: what differs is the lists and which receive releases which
// send. So the schedule is a plain value that tests can read, and pipelining
// lives in one loop per transport.
struct SendReceivePlan {
  // Numbers the collective. Travels before the first segment and must match
  // at the receiver: two ranks that run different lists get an error here
  // instead of each other's bytes.
  uint64_t tag = 0;

  int to = -1;  // rank; -1 when there is nothing to send
  std::vector<ConstSegment> sends;
  // sends[i] may leave once i < released.
  size_t released = 0;

  int from = -1;  // rank; -1 when there is nothing to receive
  std::vector<Segment> receives;
  // Called in order, after receives[i] has arrived in full and before
  // receives[i + 1] is written to (so both may name the same scratch memory).
  // Returns the new value of `released`.
  std::function<size_t(size_t i)> on_received;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Runs `duplex` to its end: returns when all segments are received and all
  // are handed to the system. One caller at a time. Fails with
  //   kUnavailable       the peer closed or reset the connection (text names
  //                      the rank),
  //   kDeadlineExceeded  no byte moved for the transport's limit, or a link is
  //                      stuck (text names the rank),
  //   kInternal          tags differ,
  // or with the cause given to Abort. After a failure the transport is broken
  // for good: the streams are at unknown positions.
  virtual Status Run(SendReceivePlan& duplex) = 0;

  // Thread-safe: makes the running and every later Run fail with `cause`.
  // The first cause is kept.
  virtual void Abort(const Status& cause) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_TRANSPORT_H_
