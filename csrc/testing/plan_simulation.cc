#include "csrc/testing/plan_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

namespace keras_ring {
namespace {

class Simulation {
 public:
  Simulation(std::vector<SendReceivePlan>& plans,
             const PlanSimulationOptions& options)
      : plans_(plans), options_(options), random_(options.seed) {
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      for (size_t i = 0; i < plans[rank].outgoing.size(); ++i) {
        flows_.push_back({static_cast<int>(rank), i, /*sends=*/true});
      }
      for (size_t i = 0; i < plans[rank].incoming.size(); ++i) {
        flows_.push_back({static_cast<int>(rank), i, /*sends=*/false});
      }
    }
  }

  bool Run() {
    for (SendReceivePlan& plan : plans_) Advance(plan);
    while (Step()) {
    }
    return std::all_of(plans_.begin(), plans_.end(), IsDone);
  }

 private:
  // A stream of a rank's plan, and how much of its next segment has moved.
  struct Flow {
    int rank;
    size_t stream;
    bool sends;
    size_t offset = 0;
  };

  static void Advance(SendReceivePlan& plan) {
    if (plan.advance) plan.advance(plan);
  }

  static bool IsDone(const SendReceivePlan& plan) {
    for (const Outgoing& outgoing : plan.outgoing) {
      if (outgoing.sent < outgoing.segments.size()) return false;
    }
    for (const Incoming& incoming : plan.incoming) {
      if (incoming.received < incoming.segments.size()) return false;
    }
    return true;
  }

  // One event; false: there is none any more.
  bool Step() {
    std::vector<size_t> possible;
    for (size_t f = 0; f < flows_.size(); ++f) {
      if (CanMove(flows_[f])) possible.push_back(f);
    }
    if (possible.empty()) return false;
    // Some flow stands still for a while.
    if (stuck_for_ == 0) {
      stuck_ = random_() % flows_.size();
      stuck_for_ = random_() % 200 + 1;
    }
    --stuck_for_;
    size_t chosen = possible[random_() % possible.size()];
    if (chosen == stuck_ && possible.size() > 1) {
      possible.erase(std::find(possible.begin(), possible.end(), stuck_));
      chosen = possible[random_() % possible.size()];
    }
    // As a transport does, which may move several segments before it tells.
    Flow& flow = flows_[chosen];
    bool told = true;
    do {
      if (Move(flow)) told = false;
    } while (random_() % 4 != 0 && CanMove(flow));
    if (!told) Advance(plans_[flow.rank]);
    return true;
  }

  std::string& Pipe(int from, int to) { return pipes_[{from, to}]; }

  bool CanMove(const Flow& flow) {
    const SendReceivePlan& plan = plans_[flow.rank];
    if (flow.sends) {
      const Outgoing& stream = plan.outgoing[flow.stream];
      return stream.sent < std::min(stream.released, stream.segments.size()) &&
             Pipe(flow.rank, stream.peer).size() < options_.pipe_bytes;
    }
    const Incoming& stream = plan.incoming[flow.stream];
    if (stream.received >= std::min(stream.allowed, stream.segments.size())) {
      return false;
    }
    return !Pipe(stream.peer, flow.rank).empty() ||
           stream.segments[stream.received].bytes == 0;
  }

  size_t Some(size_t most) {
    return most == 0 ? 0 : 1 + random_() % std::min(most, options_.max_bytes);
  }

  // Whether a segment has moved in full.
  bool Move(Flow& flow) {
    SendReceivePlan& plan = plans_[flow.rank];
    size_t segment_bytes;
    size_t* count;
    if (flow.sends) {
      Outgoing& stream = plan.outgoing[flow.stream];
      const ConstSegment& segment = stream.segments[stream.sent];
      std::string& pipe = Pipe(flow.rank, stream.peer);
      const size_t bytes = Some(std::min(segment.bytes - flow.offset,
                                         options_.pipe_bytes - pipe.size()));
      pipe.append(static_cast<const char*>(segment.data) + flow.offset, bytes);
      flow.offset += bytes;
      segment_bytes = segment.bytes;
      count = &stream.sent;
    } else {
      Incoming& stream = plan.incoming[flow.stream];
      const Segment& segment = stream.segments[stream.received];
      std::string& pipe = Pipe(stream.peer, flow.rank);
      const size_t bytes =
          Some(std::min(segment.bytes - flow.offset, pipe.size()));
      pipe.copy(static_cast<char*>(segment.data) + flow.offset, bytes);
      pipe.erase(0, bytes);
      flow.offset += bytes;
      segment_bytes = segment.bytes;
      count = &stream.received;
    }
    if (flow.offset < segment_bytes) return false;
    flow.offset = 0;
    ++*count;
    return true;
  }

  std::vector<SendReceivePlan>& plans_;
  const PlanSimulationOptions options_;
  std::mt19937_64 random_;
  std::vector<Flow> flows_;
  std::map<std::pair<int, int>, std::string> pipes_;
  size_t stuck_ = 0;
  size_t stuck_for_ = 0;
};

}  // namespace

bool RunPlans(std::vector<SendReceivePlan>& plans,
              const PlanSimulationOptions& options) {
  return Simulation(plans, options).Run();
}

}  // namespace keras_ring
