#include "csrc/testing/timed_controllers.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "csrc/control/control_tree.h"

namespace keras_ring {
namespace {

RequestPtr SumOf(const std::string& name) {
  Request request;
  request.name = name;
  request.tensors = {TensorSpec{DType::kFloat32, {1000}}};
  return std::make_shared<const Request>(std::move(request));
}

}  // namespace

TimedControllers::TimedControllers(const std::vector<std::string>& hosts,
                                   const ControlLinks& links)
    : hosts_(hosts), links_(links) {
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    Node node;
    node.counters = std::make_unique<Counters>();
    node.controller = std::make_unique<Controller>(
        BuildControlTree(hosts, rank), ControllerOptions(), clock_,
        *node.counters);
    nodes_.push_back(std::move(node));
  }
}

TimedControllers::Agreement TimedControllers::Agree(
    const std::vector<std::string>& names) {
  for (Node& node : nodes_) {
    node.free = node.worked = 0;
    node.messages = node.bytes = 0;
    node.executed = 0;
  }
  last_ = 0;
  Agreement agreement;
  std::vector<RequestPtr> requests;
  for (const std::string& name : names) {
    RequestPtr& request = requests_[name];
    if (request == nullptr) request = SumOf(name);
    requests.push_back(request);
  }
  const auto submit = [&requests](Controller& controller) {
    for (const RequestPtr& request : requests) controller.Submit(request);
    return OkStatus();
  };
  for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank) {
    agreement.error = Do(rank, 0, submit);
    if (!agreement.error.ok()) return agreement;
  }
  while (!messages_.empty()) {
    const Message message = messages_.top();
    messages_.pop();
    agreement.error =
        Do(message.to, message.at, [&message](Controller& controller) {
          return controller.OnMessage(message.from, message.bytes);
        });
    if (!agreement.error.ok()) return agreement;
  }
  for (const Node& node : nodes_) {
    if (node.executed != names.size()) {
      agreement.error = InternalError("not all ranks came to an agreement");
    }
    agreement.busiest_seconds =
        std::max(agreement.busiest_seconds, node.worked);
    agreement.max_messages = std::max(agreement.max_messages, node.messages);
    agreement.max_bytes = std::max(agreement.max_bytes, node.bytes);
  }
  agreement.seconds = last_;
  return agreement;
}

Status TimedControllers::Do(int rank, double now,
                            const std::function<Status(Controller&)>& f) {
  Node& node = nodes_[rank];
  const auto began = std::chrono::steady_clock::now();
  KR_RETURN_IF_ERROR(f(*node.controller));
  Controller::Output output = node.controller->Take();
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
          .count();
  double at = std::max(now, node.free) + took;
  int launched = 0;
  for (const Command& command : output.commands) {
    const auto* execute = std::get_if<ExecuteCommand>(&command);
    if (execute == nullptr) continue;
    ++launched;
    node.executed += execute->items.size();
    last_ = std::max(last_, at);
  }
  for (auto& [peer, bytes] : output.messages) {
    at += links_.message;
    ++node.messages;
    node.bytes += static_cast<int64_t>(bytes.size());
    const double link = hosts_[rank] == hosts_[peer] ? links_.within_host
                                                     : links_.between_hosts;
    messages_.push({at + link, num_messages_++, rank, peer, std::move(bytes)});
  }
  node.worked += at - std::max(now, node.free);
  node.free = at;
  if (launched == 0) return OkStatus();
  return Do(rank, at, [launched](Controller& controller) {
    controller.OnLaunched(launched);
    return OkStatus();
  });
}

}  // namespace keras_ring
