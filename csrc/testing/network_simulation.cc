#include "csrc/testing/network_simulation.h"

#include <algorithm>

#include "csrc/base/round.h"

namespace keras_ring {
namespace {

// Returns the bytes of the segments from `first` to `last`, without the first
// `offset` of them; at most `most`.
template <typename Segments>
size_t BytesIn(const Segments& segments, size_t first, size_t last,
               size_t offset, size_t most) {
  size_t bytes = 0;
  for (size_t i = first; i < std::min(last, segments.size()) && bytes < most;
       ++i) {
    bytes += segments[i].bytes;
    if (i == first) bytes -= offset;
  }
  return std::min(bytes, most);
}

// Counts the segments that this many bytes complete, and empty ones after them.
template <typename Segments>
void Move(const Segments& segments, size_t last, size_t bytes, size_t* count,
          size_t* offset) {
  *offset += bytes;
  while (*count < std::min(last, segments.size()) &&
         *offset >= segments[*count].bytes) {
    *offset -= segments[(*count)++].bytes;
  }
}

}  // namespace

NetworkSimulation::NetworkSimulation(std::vector<SendReceivePlan>& plans,
                                     const NetworkModel& model)
    : plans_(plans),
      model_(model),
      noise_(model.noise, static_cast<int>(plans.size()), model.seed),
      ranks_(plans.size()) {
  if (model.rack_ranks > 0) {
    racks_.resize(DivideUp(static_cast<int>(plans.size()), model.rack_ranks));
  }
  for (int i = 0; i < model.shared_processors; ++i) processors_.push(0);
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    for (const Outgoing& outgoing : plans[rank].outgoing) {
      Pipe& pipe = pipes_[{rank, outgoing.peer}];
      pipe.to = outgoing.peer;
      ranks_[rank].out.push_back({&pipe});
    }
    for (const Incoming& incoming : plans[rank].incoming) {
      ranks_[rank].in.push_back({&pipes_[{incoming.peer, rank}]});
    }
  }
}

bool NetworkSimulation::IsDone(const SendReceivePlan& plan) {
  for (const Outgoing& outgoing : plan.outgoing) {
    if (outgoing.sent < outgoing.segments.size()) return false;
  }
  for (const Incoming& incoming : plan.incoming) {
    if (incoming.received < incoming.segments.size()) return false;
  }
  return !plan.busy;
}

bool NetworkSimulation::Run() {
  for (int rank = 0; rank < static_cast<int>(plans_.size()); ++rank) {
    const double busy = Advance(ranks_[rank].free, rank);
    ranks_[rank].free += busy;
    processor_time_ += busy;
    Wake(ranks_[rank].free, rank);
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    switch (event.kind) {
      case Kind::kTurn:
        Turn(event.at, event.rank);
        break;
      case Kind::kAdvance:
        AdvanceTurn(event.at, event.rank);
        break;
      case Kind::kLeaves:
        Leave(event.at, event.rank);
        break;
      case Kind::kHasLeft:
        HasLeft(event.at, event.rank);
        break;
    }
  }
  return std::all_of(plans_.begin(), plans_.end(), IsDone);
}

double NetworkSimulation::Advance(double now, int number) {
  SendReceivePlan& plan = plans_[number];
  advancing_ = number;
  now_ = now;
  spent_ = 0;
  if (plan.advance) plan.advance(plan);
  return spent_ + noise_.During(number, spent_);
}

bool NetworkSimulation::MoveStreams(double now, int number, double* busy) {
  Rank& rank = ranks_[number];
  SendReceivePlan& plan = plans_[number];
  // Limits of the plan take effect once the rank has done what it is doing.
  for (size_t i = 0; now >= rank.free && i < rank.out.size(); ++i) {
    rank.out[i].may = plan.outgoing[i].released;
  }
  for (size_t i = 0; now >= rank.free && i < rank.in.size(); ++i) {
    rank.in[i].may = plan.incoming[i].allowed;
  }
  const double began = *busy;
  bool moved = false;
  for (size_t i = 0; i < rank.out.size(); ++i) {
    const double time =
        Send(now + *busy, number, plan.outgoing[i], rank.out[i]);
    moved = moved || time >= 0;
    *busy += std::max(time, 0.0);
  }
  for (size_t i = 0; i < rank.in.size(); ++i) {
    const double time = Receive(now + *busy, plan.incoming[i], rank.in[i]);
    moved = moved || time >= 0;
    *busy += std::max(time, 0.0);
    if (time > 0) Wake(now + *busy, plan.incoming[i].peer);  // may send
  }
  *busy += noise_.During(number, *busy - began);
  return moved;
}

void NetworkSimulation::Turn(double now, int number) {
  if (model_.io_threads) return IoTurn(now, number);
  Rank& rank = ranks_[number];
  if (rank.done) return;
  if (now < rank.free) return Wake(rank.free, number);
  SendReceivePlan& plan = plans_[number];
  if (!processors_.empty() && processors_.top() > now) {
    return Wake(processors_.top(), number);
  }
  double busy = 0;
  const bool moved = MoveStreams(now, number, &busy);
  if (moved || rank.happened) {
    rank.happened = false;
    busy += Advance(now + busy, number);
    rank.free = now + busy;
    processor_time_ += busy;
    if (!processors_.empty()) {
      processors_.pop();
      processors_.push(rank.free);
    }
    Wake(rank.free, number);
  }
  if (IsDone(plan)) {
    rank.done = true;
    time_ = std::max(time_, rank.free);
  }
}

void NetworkSimulation::IoTurn(double now, int number) {
  Rank& rank = ranks_[number];
  if (rank.done) return;
  if (now < rank.io_free) return Wake(rank.io_free, number);
  double busy = 0;
  if (!MoveStreams(now, number, &busy)) return;
  rank.io_free = now + busy;
  processor_time_ += busy;
  Wake(rank.io_free, number);
  events_.push({rank.io_free, number, Kind::kAdvance});
}

void NetworkSimulation::AdvanceTurn(double now, int number) {
  Rank& rank = ranks_[number];
  if (rank.done) return;
  if (!model_.io_threads) {
    rank.happened = true;
    return Turn(now, number);
  }
  if (now < rank.free) {
    events_.push({rank.free, number, Kind::kAdvance});
    return;
  }
  const double busy = Advance(now, number);
  rank.free = now + busy;
  processor_time_ += busy;
  Wake(rank.free, number);
  if (IsDone(plans_[number])) {
    rank.done = true;
    time_ = std::max(time_, rank.free);
  }
}

void NetworkSimulation::Leave(double now, int number) {
  const auto [pipe, bytes] = ranks_[number].egress.front();
  const double on_wire = static_cast<double>(bytes) * model_.byte;
  // The peer receives at the same time, unless its interface is busy.
  Rank& peer = ranks_[pipe->to];
  peer.ingress_free =
      std::max(now + model_.latency, peer.ingress_free) + on_wire;
  peer.ingress_free =
      PassRacks(now, number, pipe->to, bytes, peer.ingress_free);
  pipe->pieces.emplace_back(peer.ingress_free, bytes);
  Wake(peer.ingress_free, pipe->to);
  events_.push({now + on_wire, number, Kind::kHasLeft});
}

int NetworkSimulation::RackOf(int rank) const {
  return model_.racks_in_order ? rank / model_.rack_ranks
                               : rank % static_cast<int>(racks_.size());
}

double NetworkSimulation::PassRacks(double now, int from, int to, size_t bytes,
                                    double earliest) {
  if (racks_.empty()) return earliest;
  const int first = RackOf(from);
  const int last = RackOf(to);
  if (first == last) return earliest;
  const double on_wire = static_cast<double>(bytes) * model_.byte *
                         model_.oversubscription / model_.rack_ranks;
  double& up = racks_[first].up_free;
  double& down = racks_[last].down_free;
  up = std::max(now, up) + on_wire;
  down = std::max(up, down + on_wire);
  return std::max(earliest, down + model_.latency);
}

void NetworkSimulation::HasLeft(double now, int number) {
  Rank& rank = ranks_[number];
  rank.egress.pop_front();
  if (!rank.egress.empty()) Leave(now, number);
}

double NetworkSimulation::Send(double now, int number, Outgoing& outgoing,
                               Stream& stream) {
  Rank& rank = ranks_[number];
  Pipe& pipe = *stream.pipe;
  const size_t room = std::min(
      model_.quantum, model_.window - std::min(model_.window, pipe.bytes));
  const size_t bytes = BytesIn(outgoing.segments, outgoing.sent, stream.may,
                               stream.offset, room);
  const size_t before = outgoing.sent;
  Move(outgoing.segments, stream.may, bytes, &outgoing.sent, &stream.offset);
  if (bytes == 0) return outgoing.sent > before ? 0.0 : -1.0;
  const double busy = model_.message + bytes * model_.send_byte;
  rank.egress.emplace_back(&pipe, bytes);
  if (rank.egress.size() == 1) {
    events_.push({now + busy, number, Kind::kLeaves});
  }
  pipe.bytes += bytes;
  ++rank.sends;
  rank.bytes += static_cast<int64_t>(bytes);
  return busy;
}

double NetworkSimulation::Receive(double now, Incoming& incoming,
                                  Stream& stream) {
  Pipe& pipe = *stream.pipe;
  size_t arrived = 0;
  for (const auto& [at, bytes] : pipe.pieces) {
    if (at > now) break;
    arrived += bytes;
  }
  const size_t bytes = BytesIn(incoming.segments, incoming.received, stream.may,
                               stream.offset, arrived);
  const size_t before = incoming.received;
  Move(incoming.segments, stream.may, bytes, &incoming.received,
       &stream.offset);
  if (bytes == 0) return incoming.received > before ? 0.0 : -1.0;
  pipe.bytes -= bytes;
  for (size_t left = bytes; left > 0;) {
    const size_t taken = std::min(left, pipe.pieces.front().second);
    left -= taken;
    pipe.pieces.front().second -= taken;
    if (pipe.pieces.front().second == 0) pipe.pieces.pop_front();
  }
  return model_.message + bytes * model_.receive_byte;
}

int64_t NetworkSimulation::max_sends() const {
  int64_t most = 0;
  for (const Rank& rank : ranks_) most = std::max(most, rank.sends);
  return most;
}

int64_t NetworkSimulation::max_bytes() const {
  int64_t most = 0;
  for (const Rank& rank : ranks_) most = std::max(most, rank.bytes);
  return most;
}

}  // namespace keras_ring
