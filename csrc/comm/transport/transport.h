// Transport: moves bytes between ranks, for the data plane.
#ifndef KERAS_RING_COMM_TRANSPORT_TRANSPORT_H_
#define KERAS_RING_COMM_TRANSPORT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace keras_ring {

// A piece of memory that moves as a unit.
struct Segment {
  void* data = nullptr;
  size_t bytes = 0;
};
struct ConstSegment {
  const void* data = nullptr;
  size_t bytes = 0;
};

// The data that one rank sends to one peer, in this order.
struct Outgoing {
  int peer = -1;  // rank
  std::vector<ConstSegment> segments;
  size_t released = 0;  // segments[i] may leave once i < released
  size_t sent = 0;      // set by the transport: segments that left in full
};

// The data that one rank receives from one peer, in this order.
struct Incoming {
  int peer = -1;
  std::vector<Segment> segments;
  size_t allowed = 0;   // segments[i] may be written to once i < allowed
  size_t received = 0;  // set by the transport: segments that came in full
};

// The events that a plan waits for besides its streams: progress of other ranks
// of the host, which they report through shared memory.
class PlanEvents {
 public:
  virtual ~PlanEvents() = default;
  // Returns whether something may have happened since the plan was last
  // advanced.
  virtual bool Happened() = 0;
  // For sleeping. Between Arm and Disarm `descriptor` becomes readable when
  // something happens; Arm fails if something has happened.
  virtual int descriptor() const = 0;
  virtual bool Arm() = 0;
  virtual void Disarm() = 0;
  // Fails if the awaited event will never happen.
  virtual Status Check() = 0;
  // "for rank 3, of this host"; empty if only streams are waited for.
  virtual std::string Awaited() const = 0;
};

// One rank's part of a collective: what it sends to and receives from each
// peer, all at once.
//
// Every algorithm here is a SendReceivePlan: they differ in the lists, and in
// which segment makes which others possible. So a schedule is a plain value
// that tests can read, and each transport has a single loop for pipelining.
struct SendReceivePlan {
  // Numbers the collective. It is sent before the first segment and must match
  // at the receiver: two ranks that run different lists get an error here
  // instead of each other's bytes.
  uint64_t tag = 0;
  // Each peer appears once.
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  // Called before anything moves, and whenever `sent` or `received` of a stream
  // has grown, or one of `events` may have happened. Does what that makes
  // possible, and raises `released` and `allowed`. So received bytes are used
  // before more is read into memory that was not allowed yet. Null: all is
  // released and allowed from the beginning.
  std::function<void(SendReceivePlan& plan)> advance;
  // Null: only the streams are waited for.
  PlanEvents* events = nullptr;
  // Set by `advance` if there is more to do than the streams show.
  bool busy = false;

  // Returns the rank from which it still receives, if it is a single one; else
  // -1.
  int OnlySource() const {
    int source = -1;
    for (const Incoming& one : incoming) {
      if (one.received == one.segments.size()) continue;
      if (source >= 0) return -1;
      source = one.peer;
    }
    return source;
  }

  // Returns whether there is no peer to send to or to receive from.
  bool empty() const { return outgoing.empty() && incoming.empty(); }
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Runs `plan` to its end: returns when all segments are received and all are
  // handed to the system. One caller at a time. Fails with
  //   kUnavailable       a peer closed or reset the connection (text names
  //                      the rank),
  //   kDeadlineExceeded  no byte moved for the transport's limit, or a link is
  //                      stuck (text names the rank),
  //   kInternal          tags differ, or the plan waits for nothing,
  // or with the cause given to Abort. After a failure the transport is broken
  // for good: the streams are at unknown positions.
  virtual Status Run(SendReceivePlan& plan) = 0;

  // Thread-safe: makes the running and every later Run fail with `cause`.
  // The first cause is kept.
  virtual void Abort(const Status& cause) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_TRANSPORT_H_
