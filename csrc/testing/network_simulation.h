// NetworkSimulation: the plans of all ranks of a group in virtual time.
//
// Executes the very plans that a transport would run, without their bytes: what
// a rank sends leaves its processor, its network interface, the peer's
// interface and the peer's processor one after the other, and each of these
// does one thing at a time. So interfaces and processors are shared as they
// are. Of switches there are those of racks, whose links upwards the ranks of a
// rack share; all else between interfaces is latency.
#ifndef KERAS_RING_TESTING_NETWORK_SIMULATION_H_
#define KERAS_RING_TESTING_NETWORK_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "csrc/comm/transport/transport.h"
#include "csrc/testing/processor_noise.h"

namespace keras_ring {

// Seconds, and seconds per byte.
struct NetworkModel {
  double latency = 10e-6;     // from one interface to the other
  double byte = 8 / 100e9;    // of a rank's interface, in each direction
  double message = 2e-6;      // of the processor, for a send or a receive
  double send_byte = 0;       // of the processor, for what it sends
  double receive_byte = 0;    // likewise
  size_t quantum = 63 << 10;  // that one send takes
  size_t window = 4 << 20;    // under way between two ranks
  // Processors that all ranks share. 0: each has its own.
  int shared_processors = 0;
  // Whether each rank has another processor of its own, which sends and
  // receives. Not with shared ones.
  bool io_threads = false;
  // How many ranks' interfaces share the links of a rack. 0: all are in one.
  int rack_ranks = 0;
  // Whether the ranks of a rack are numbered in a row. Else they are dealt out,
  // one to each rack in turn.
  bool racks_in_order = true;
  // How much more the interfaces of a rack carry than its links upwards, in
  // each direction.
  double oversubscription = 1;
  NoiseModel noise;
  uint64_t seed = 1;  // of the noise
};

class NetworkSimulation {
 public:
  // plans[rank], which must outlive the object.
  NetworkSimulation(std::vector<SendReceivePlan>& plans,
                    const NetworkModel& model);

  // For what a plan's `advance` does: the processor of the rank that advances
  // is busy for so long.
  void Spend(double seconds) { spent_ += seconds; }
  // When that began, with what it has spent since.
  double now() const { return now_ + spent_; }
  // What interrupts the rank that advances while it, or another processor that
  // works for it, is busy for so long.
  double NoiseDuring(double busy) { return noise_.During(advancing_, busy); }
  // Before Run(): a rank does nothing until then.
  void StartAt(int rank, double time) { ranks_[rank].free = time; }
  // For the same: the rank is to be advanced again at `time`, whatever moves.
  void AdvanceAt(double time) {
    events_.push({time, advancing_, Kind::kAdvance});
  }

  // Whether all ranks came to their ends.
  bool Run();
  // When the last did.
  double time() const { return time_; }
  // Of the rank with the most.
  int64_t max_sends() const;
  int64_t max_bytes() const;
  // Of all ranks.
  double processor_time() const { return processor_time_; }

 private:
  // What is under way from one rank to another.
  struct Pipe {
    int to = 0;
    size_t bytes = 0;                              // sent and not received
    std::deque<std::pair<double, size_t>> pieces;  // and when they arrive
  };
  struct Stream {
    Pipe* pipe = nullptr;
    size_t may = 0;     // segments that may move, as the plan had said
    size_t offset = 0;  // in the segment that moves next
  };
  struct Rank {
    double free = 0;  // when its processor is
    double io_free =
        0;  // when that is which sends and receives, if it is apart
    // What is to leave its interface, in order; the first is leaving.
    std::deque<std::pair<Pipe*, size_t>> egress;
    double ingress_free = 0;  // when nothing comes in
    int64_t sends = 0;
    int64_t bytes = 0;
    bool done = false;
    bool happened = false;  // what its plan waits for besides the streams
    std::vector<Stream> out, in;
  };
  // Of a rack: when its links upwards are free, in either direction.
  struct Rack {
    double up_free = 0;
    double down_free = 0;
  };

  enum class Kind : uint8_t { kTurn, kAdvance, kLeaves, kHasLeft };
  struct Event {
    double at;
    int rank;
    Kind kind;
    bool operator>(const Event& other) const { return at > other.at; }
  };
  void Wake(double at, int rank) { events_.push({at, rank, Kind::kTurn}); }
  void Turn(double now, int rank);
  // Of a rank with a processor for its streams: theirs, and the plan's.
  void IoTurn(double now, int rank);
  void AdvanceTurn(double now, int rank);
  // Its time on the processor.
  double Advance(double now, int rank);
  // Lets all streams of a rank move; whether one did, and for how long its
  // processor is busy.
  bool MoveStreams(double now, int rank, double* busy);
  // The first of a rank's egress begins to leave, or is gone.
  void Leave(double now, int rank);
  void HasLeft(double now, int rank);
  int RackOf(int rank) const;
  // When so many bytes have passed the links between the racks of two ranks.
  // They enter them from `now` on and cannot leave before `earliest`.
  double PassRacks(double now, int from, int to, size_t bytes, double earliest);
  // Their time on the processor; negative: nothing can move.
  double Send(double now, int rank, Outgoing& outgoing, Stream& stream);
  double Receive(double now, Incoming& incoming, Stream& stream);
  static bool IsDone(const SendReceivePlan& plan);

  std::vector<SendReceivePlan>& plans_;
  const NetworkModel model_;
  ProcessorNoise noise_;
  std::vector<Rank> ranks_;
  std::vector<Rack> racks_;
  std::map<std::pair<int, int>, Pipe> pipes_;  // by the two ranks
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  // When the shared processors are free.
  std::priority_queue<double, std::vector<double>, std::greater<>> processors_;
  int advancing_ = 0;
  double now_ = 0;  // of the rank that advances
  double spent_ = 0;
  double time_ = 0;
  double processor_time_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_NETWORK_SIMULATION_H_
