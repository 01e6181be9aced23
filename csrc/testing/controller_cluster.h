// ControllerCluster: the controllers of a whole job, without threads, sockets
// or time, driven one step at a time in any order.
#ifndef KERAS_RING_TESTING_CONTROLLER_CLUSTER_H_
#define KERAS_RING_TESTING_CONTROLLER_CLUSTER_H_

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/control/controller.h"

namespace keras_ring {

class ControllerCluster {
 public:
  ControllerCluster(const std::vector<std::string>& host_ids,
                    const ControllerOptions& options, int fanout = 8,
                    const RankSet& ranks = {});

  int size() const { return static_cast<int>(nodes_.size()); }
  Controller& at(int rank) { return *nodes_[rank].controller; }
  ManualClock& clock() { return clock_; }
  // What `rank` was told to do so far, in order.
  const std::vector<Command>& commands(int rank) const {
    return nodes_[rank].commands;
  }
  const std::vector<std::string>& reports(int rank) const {
    return nodes_[rank].reports;
  }
  const Counters& counters(int rank) const { return *nodes_[rank].counters; }
  // The first protocol error that any rank reported.
  const Status& error() const { return error_; }

  void Submit(int rank, Request request);
  // Links with a message in flight, as (from, to).
  std::vector<std::pair<int, int>> BusyLinks() const;
  // Delivers the oldest message of a busy link.
  void Deliver(std::pair<int, int> link);
  // Buckets that `rank` was given and has not executed.
  int Unexecuted(int rank) const { return nodes_[rank].unexecuted; }
  void Execute(int rank);
  void Timer(int rank);
  // Lets time pass as loops do: each rank looks when it has said that it will,
  // and at the end.
  void PassTime(Duration duration);
  void Leave(int rank, const std::string& reason);
  // Of the coordinator.
  void Tune(Tunable tunable, int64_t value);
  void Reconfigure(uint64_t generation);

  // While held, what happens to a controller gathers in it, as in a loop that
  // finds several events at once. It comes out with the next event that is not
  // held, or by Release, which tells whether there was something.
  void SetHeld(bool held) { held_ = held; }
  bool Release();

  // Delivers and executes until nothing is left to do.
  void Settle();

  uint64_t bytes_sent() const { return bytes_sent_; }
  // What `rank` was sent so far.
  struct Traffic {
    uint64_t messages = 0;
    uint64_t bytes = 0;
    uint64_t longest = 0;  // of the messages [bytes]
  };
  const Traffic& traffic_to(int rank) const { return nodes_[rank].traffic; }

 private:
  struct Node {
    std::unique_ptr<Counters> counters;
    std::unique_ptr<Controller> controller;
    std::vector<Command> commands;
    std::vector<std::string> reports;
    int unexecuted = 0;
    Traffic traffic;
  };
  void Collect(int rank);

  ManualClock clock_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, int>, std::deque<std::string>> links_;
  Status error_;
  uint64_t bytes_sent_ = 0;
  bool held_ = false;
  std::set<int> gathering_;  // ranks
};

// An allreduce of `count` float32 under `name`.
Request AllreduceRequest(const std::string& name, int64_t count);

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_CONTROLLER_CLUSTER_H_
