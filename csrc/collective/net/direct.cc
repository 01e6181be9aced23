#include "csrc/collective/net/direct.h"

#include <numeric>
#include <utility>
#include <vector>

#include "csrc/collective/spans.h"

namespace keras_ring {
namespace {

// One block to and one from each other rank, its successors first, so that not
// all send to the same one at once.
class Blocks {
 public:
  Blocks(int rank, int size, uint64_t tag) : rank_(rank), size_(size) {
    plan_.tag = tag;
  }

  // send(peer), receive(peer): the segments.
  template <typename SendOf, typename ReceiveOf>
  SendReceivePlan Plan(const SendOf& send, const ReceiveOf& receive) && {
    for (int k = 1; k < size_; ++k) {
      const int peer = (rank_ + k) % size_;
      Add(peer, send(peer));
    }
    for (int k = 1; k < size_; ++k) {
      const int peer = (rank_ + size_ - k) % size_;
      Add(peer, receive(peer));
    }
    return std::move(plan_);
  }

 private:
  void Add(int peer, ConstSegment segment) {
    if (segment.bytes > 0) plan_.outgoing.push_back({peer, {segment}, 1});
  }
  void Add(int peer, Segment segment) {
    if (segment.bytes > 0) plan_.incoming.push_back({peer, {segment}, 1});
  }

  const int rank_;
  const int size_;
  SendReceivePlan plan_;
};

}  // namespace

SendReceivePlan PlanDirectAllgather(int rank, const AllgatherArgs& args) {
  const std::vector<size_t>& bytes = args.bytes_per_rank;
  std::vector<size_t> begins(bytes.size());
  std::exclusive_scan(bytes.begin(), bytes.end(), begins.begin(), size_t{0});
  return Blocks(rank, static_cast<int>(bytes.size()), args.tag)
      .Plan(
          [&](int) {
            return ConstSegment{args.input, bytes[rank]};
          },
          [&](int from) {
            return Segment{
                Advance(static_cast<char*>(args.output), begins[from]),
                bytes[from]};
          });
}

SendReceivePlan PlanDirectAlltoall(int rank, int size,
                                   const AlltoallArgs& args) {
  const auto& bytes = args.bytes;
  std::vector<size_t> inputs(size + 1);
  std::vector<size_t> outputs(size + 1);
  for (int peer = 0; peer < size; ++peer) {
    inputs[peer + 1] = inputs[peer] + bytes(rank, peer);
    outputs[peer + 1] = outputs[peer] + bytes(peer, rank);
  }
  return Blocks(rank, size, args.tag)
      .Plan(
          [&](int to) {
            return ConstSegment{
                Advance(static_cast<const char*>(args.input), inputs[to]),
                bytes(rank, to)};
          },
          [&](int from) {
            return Segment{
                Advance(static_cast<char*>(args.output), outputs[from]),
                bytes(from, rank)};
          });
}

SendReceivePlan PlanDirectBroadcast(int rank, int size,
                                    const BroadcastArgs& args) {
  SendReceivePlan plan;
  plan.tag = args.tag;
  std::vector<ConstSegment> inputs;
  std::vector<Segment> outputs;
  for (const TensorSpan& tensor : args.tensors) {
    if (tensor.count == 0) continue;
    const size_t bytes = tensor.count;
    inputs.push_back({tensor.input, bytes});
    outputs.push_back({tensor.output, bytes});
  }
  if (inputs.empty()) return plan;
  const size_t count = inputs.size();
  if (rank != args.root) {
    plan.incoming.push_back({args.root, std::move(outputs), count});
    return plan;
  }
  for (int k = 1; k < size; ++k) {
    plan.outgoing.push_back({(rank + k) % size, inputs, count});
  }
  return plan;
}

}  // namespace keras_ring
