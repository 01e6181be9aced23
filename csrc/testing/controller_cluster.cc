#include "csrc/testing/controller_cluster.h"

#include <algorithm>

#include "csrc/base/status.h"
#include "csrc/control/control_tree.h"

namespace keras_ring {

ControllerCluster::ControllerCluster(const std::vector<std::string>& host_ids,
                                     const ControllerOptions& options,
                                     int fanout, const RankSet& ranks) {
  for (int rank = 0; rank < static_cast<int>(host_ids.size()); ++rank) {
    Node node;
    node.counters = std::make_unique<Counters>();
    node.controller =
        std::make_unique<Controller>(BuildControlTree(host_ids, rank, fanout),
                                     options, clock_, *node.counters, ranks);
    nodes_.push_back(std::move(node));
  }
}

void ControllerCluster::Collect(int rank) {
  if (held_) {
    gathering_.insert(rank);
    return;
  }
  gathering_.erase(rank);
  Node& node = nodes_[rank];
  Controller::Output output = node.controller->Take();
  for (auto& [peer, message] : output.messages) {
    bytes_sent_ += message.size();
    ++nodes_[peer].traffic.messages;
    nodes_[peer].traffic.bytes += message.size();
    nodes_[peer].traffic.longest =
        std::max<uint64_t>(nodes_[peer].traffic.longest, message.size());
    links_[{rank, peer}].push_back(std::move(message));
  }
  for (Command& command : output.commands) {
    if (std::holds_alternative<ExecuteCommand>(command)) ++node.unexecuted;
    node.commands.push_back(std::move(command));
  }
  for (std::string& report : output.reports) {
    node.reports.push_back(std::move(report));
  }
}

bool ControllerCluster::Release() {
  held_ = false;
  const std::set<int> gathering = gathering_;
  for (int rank : gathering) Collect(rank);
  return !gathering.empty();
}

void ControllerCluster::Submit(int rank, Request request) {
  nodes_[rank].controller->Submit(
      std::make_shared<const Request>(std::move(request)));
  Collect(rank);
}

std::vector<std::pair<int, int>> ControllerCluster::BusyLinks() const {
  std::vector<std::pair<int, int>> busy;
  for (const auto& [link, messages] : links_) {
    if (!messages.empty()) busy.push_back(link);
  }
  return busy;
}

void ControllerCluster::Deliver(std::pair<int, int> link) {
  std::deque<std::string>& messages = links_.at(link);
  const std::string message = std::move(messages.front());
  messages.pop_front();
  Status status =
      nodes_[link.second].controller->OnMessage(link.first, message);
  if (!status.ok() && error_.ok()) error_ = status;
  Collect(link.second);
}

void ControllerCluster::Execute(int rank) {
  --nodes_[rank].unexecuted;
  nodes_[rank].controller->OnLaunched(1);
  Collect(rank);
}

void ControllerCluster::Timer(int rank) {
  nodes_[rank].controller->OnTimer();
  Collect(rank);
}

void ControllerCluster::PassTime(Duration duration) {
  const TimePoint end = clock_.Now() + duration;
  for (TimePoint next = clock_.Now(); error_.ok();) {
    clock_.Advance(next - clock_.Now());
    for (int rank = size() - 1; rank >= 0; --rank) {
      if (next < end && at(rank).NextTimer().value_or(end) > next) continue;
      Timer(rank);
      Settle();
    }
    if (next == end) return;
    TimePoint timer = end;
    for (const Node& node : nodes_) {
      timer = std::min(timer, node.controller->NextTimer().value_or(end));
    }
    KR_CHECK(timer > next);  // what was due was looked at
    next = timer;
  }
}

void ControllerCluster::Tune(Tunable tunable, int64_t value) {
  nodes_[0].controller->Tune(tunable, value);
  Collect(0);
}

void ControllerCluster::Reconfigure(uint64_t generation) {
  nodes_[0].controller->Reconfigure(generation);
  Collect(0);
}

void ControllerCluster::Leave(int rank, const std::string& reason) {
  nodes_[rank].controller->Leave(reason);
  Collect(rank);
}

void ControllerCluster::Settle() {
  for (bool busy = true; busy && error_.ok();) {
    busy = false;
    for (const auto& link : BusyLinks()) {
      Deliver(link);
      busy = true;
    }
    for (int rank = 0; rank < size(); ++rank) {
      if (Unexecuted(rank) == 0) continue;
      Execute(rank);
      busy = true;
    }
  }
}

Request AllreduceRequest(const std::string& name, int64_t count) {
  Request request;
  request.name = name;
  request.tensors = {TensorSpec{DType::kFloat32, {count}}};
  return request;
}

}  // namespace keras_ring
