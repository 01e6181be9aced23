#include "csrc/collective/net/ring.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

namespace keras_ring {
namespace {

// Elements or bytes [begin, begin + count).
struct Extent {
  int64_t begin = 0;
  int64_t count = 0;
};

// Chunk or rank numbers may be off by less than one turn in either direction.
int Modulo(int value, int size) { return (value + size) % size; }

Extent ChunkRange(int64_t count, int size, int chunk) {
  const int64_t base = count / size;
  const int64_t longer = count % size;  // chunks with one element more
  return Extent{chunk * base + std::min<int64_t>(chunk, longer),
                base + (chunk < longer ? 1 : 0)};
}

template <typename Function>
void ForEachSegment(const Extent& range, int64_t max_count, Function function) {
  const int64_t end = range.begin + range.count;
  for (int64_t begin = range.begin; begin < end; begin += max_count) {
    function(Extent{begin, std::min(max_count, end - begin)});
  }
}

int64_t SegmentElements(size_t element_size, size_t max_segment_bytes) {
  return std::max<int64_t>(1, max_segment_bytes / element_size);
}

// The lists of a rank, in one of which it may have nothing.
struct RingLists {
  std::vector<ConstSegment> sends;
  std::vector<Segment> receives;

  SendReceivePlan Plan(const RingPlace& place, uint64_t tag) && {
    SendReceivePlan plan;
    plan.tag = tag;
    if (!sends.empty()) {
      const int next = Modulo(place.position + 1, place.size);
      plan.outgoing.push_back({place.RankAt(next), std::move(sends)});
    }
    if (!receives.empty()) {
      const int previous = Modulo(place.position - 1, place.size);
      const size_t count = receives.size();
      plan.incoming.push_back(
          {place.RankAt(previous), std::move(receives), count});
    }
    return plan;
  }
};

size_t Received(const SendReceivePlan& plan) {
  return plan.incoming.empty() ? 0 : plan.incoming[0].received;
}

void SetReleased(size_t released, SendReceivePlan& plan) {
  if (!plan.outgoing.empty()) plan.outgoing[0].released = released;
}

// The rule of pipelining: receive i releases send K + i.
void SetForwarding(size_t num_own_segments, SendReceivePlan& plan) {
  plan.advance = [num_own_segments](SendReceivePlan& p) {
    SetReleased(num_own_segments + Received(p), p);
  };
}

std::vector<Extent> EqualChunks(const RingPlace& place, int64_t count) {
  std::vector<Extent> chunks;
  for (int chunk = 0; chunk < place.size; ++chunk) {
    chunks.push_back(ChunkRange(count, place.size, chunk));
  }
  return chunks;
}

// Builds the lists of an allreduce, or of its first half.
class ReductionPlanner {
 public:
  ReductionPlanner(const RingPlace& place, const RingBuffer& buffer,
                   std::vector<Extent> chunks, void* scratch,
                   size_t max_segment_bytes)
      : place_(place),
        buffer_(buffer),
        chunks_(std::move(chunks)),
        input_(static_cast<const char*>(buffer.input)),
        output_(static_cast<char*>(buffer.output)),
        values_(static_cast<char*>(buffer.values)),
        scratch_(scratch),
        max_count_(SegmentElements(buffer.element_size, max_segment_bytes)) {}

  RingReduction Plan(uint64_t tag, bool gathers) && {
    plan_.duplex.tag = tag;
    const int steps = place_.size - 1;
    if (steps == 0) return std::move(plan_);
    SendValues(place_.position, input_);
    plan_.num_own_segments = lists_.sends.size();
    for (int step = 0; step < steps; ++step) {
      const bool is_last = step == steps - 1;
      if (step == 1) plan_.first_sum = plan_.reductions.size();
      if (is_last) plan_.first_owned = plan_.reductions.size();
      ReceivePartial(place_.position - step - 1, /*values=*/step == 0);
      if (!is_last) SendSums(place_.position - step - 1);
    }
    if (steps == 1) plan_.first_sum = plan_.reductions.size();
    // The last of these chunks is the owned one: the allgather has begun.
    if (gathers) SendValues(place_.position - steps, output_);
    for (int step = 0; step < steps && gathers; ++step) {
      ReceiveResult(place_.position - step);
      if (step < steps - 1) SendValues(place_.position - step, output_);
    }
    plan_.uses_scratch = in_place();
    plan_.duplex = std::move(lists_).Plan(place_, tag);
    plan_.Release(0, plan_.duplex);
    return std::move(plan_);
  }

 private:
  template <typename Function>
  void ForEachSegmentOf(int chunk, Function function) {
    ForEachSegment(chunks_[Modulo(chunk, place_.size)], max_count_, function);
  }

  size_t Bytes(int64_t count) const { return count * buffer_.element_size; }
  bool has_wide_sums() const { return values_ != nullptr; }
  bool in_place() const { return has_wide_sums() || input_ == output_; }
  // The size of values and of results.
  size_t ValueBytes(int64_t count) const {
    return count *
           (has_wide_sums() ? buffer_.value_size : buffer_.element_size);
  }

  // Values or results, which lie in `from` unless sums are wide.
  void SendValues(int chunk, const char* from) {
    if (has_wide_sums()) from = values_;
    ForEachSegmentOf(chunk, [&](const Extent& range) {
      lists_.sends.push_back(ConstSegment{from + ValueBytes(range.begin),
                                          ValueBytes(range.count)});
    });
  }

  void SendSums(int chunk) {
    ForEachSegmentOf(chunk, [&](const Extent& range) {
      lists_.sends.push_back(
          ConstSegment{output_ + Bytes(range.begin), Bytes(range.count)});
    });
  }

  void ReceivePartial(int chunk, bool values) {
    ForEachSegmentOf(chunk, [&](const Extent& range) {
      char* target = output_ + Bytes(range.begin);
      void* arrival = in_place() ? scratch_ : target;
      const void* value = in_place() ? scratch_ : input_ + Bytes(range.begin);
      void* own = has_wide_sums() ? values_ + ValueBytes(range.begin) : nullptr;
      lists_.receives.push_back(Segment{
          arrival, values ? ValueBytes(range.count) : Bytes(range.count)});
      plan_.reductions.push_back(
          SegmentReduction{target, value, range.count, own});
    });
  }

  void ReceiveResult(int chunk) {
    char* to = has_wide_sums() ? values_ : output_;
    ForEachSegmentOf(chunk, [&](const Extent& range) {
      lists_.receives.push_back(
          Segment{to + ValueBytes(range.begin), ValueBytes(range.count)});
    });
  }

  const RingPlace place_;
  const RingBuffer buffer_;
  const std::vector<Extent> chunks_;
  const char* const input_;
  char* const output_;
  char* const values_;
  void* const scratch_;
  const int64_t max_count_;
  RingLists lists_;
  RingReduction plan_;
};

// The blocks that travel in step `step` (from 1) from `position` to its
// successor: those that began `step` - 1 ranks before it and go further,
// nearest receiver first. Calls function(rank that the block is from, rank that
// it is for).
template <typename Function>
void ForEachTravelling(const RingPlace& place, int position, int step,
                       Function function) {
  const int from = Modulo(position - step + 1, place.size);
  for (int distance = step; distance < place.size; ++distance) {
    function(place.RankAt(from), place.RankAt((from + distance) % place.size));
  }
}

}  // namespace

RingPlace RingPlaceOf(int rank, int size, const std::vector<int>& order) {
  if (order.empty()) return {rank, size, {}};
  const auto at = std::find(order.begin(), order.end(), rank);
  return {static_cast<int>(at - order.begin()), size, order};
}

std::vector<int> RingOrder(const std::vector<std::string>& host_ids) {
  std::map<std::string, size_t> firsts;  // the lowest rank of each host
  for (size_t rank = 0; rank < host_ids.size(); ++rank) {
    firsts.try_emplace(host_ids[rank], rank);
  }
  std::vector<int> order(host_ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return firsts[host_ids[a]] < firsts[host_ids[b]];
  });
  return order;
}

void RingReduction::Release(size_t reduced, SendReceivePlan& streams) const {
  SetReleased(num_own_segments + reduced, streams);
  if (streams.incoming.empty()) return;
  Incoming& incoming = streams.incoming[0];
  incoming.allowed = uses_scratch && reduced < reductions.size()
                         ? reduced + 1
                         : incoming.segments.size();
}

size_t SegmentBytes(size_t element_size, size_t max_segment_bytes) {
  return element_size * SegmentElements(element_size, max_segment_bytes);
}

RingReduction PlanRingAllreduce(const RingPlace& place, uint64_t tag,
                                const RingBuffer& buffer, void* scratch,
                                size_t max_segment_bytes) {
  return ReductionPlanner(place, buffer, EqualChunks(place, buffer.count),
                          scratch, max_segment_bytes)
      .Plan(tag, /*gathers=*/true);
}

RingReduction PlanRingReducescatter(const RingPlace& place, uint64_t tag,
                                    const RingBuffer& buffer,
                                    const std::vector<int64_t>& chunk_counts,
                                    void* scratch, size_t max_segment_bytes) {
  std::vector<Extent> chunks;
  int64_t begin = 0;
  for (int64_t count : chunk_counts) {
    chunks.push_back(Extent{begin, count});
    begin += count;
  }
  return ReductionPlanner(place, buffer, std::move(chunks), scratch,
                          max_segment_bytes)
      .Plan(tag, /*gathers=*/false);
}

size_t AlltoallTransitBytes(const RingPlace& place, const AlltoallArgs& args) {
  size_t total = 0;
  const int rank = place.RankAt(place.position);
  const int before = Modulo(place.position - 1, place.size);
  for (int step = 1; step < place.size; ++step) {
    ForEachTravelling(place, before, step, [&](int from, int to) {
      if (to != rank) total += args.bytes(from, to);
    });
  }
  return total;
}

SendReceivePlan PlanRingAlltoall(const RingPlace& place,
                                 const AlltoallArgs& args, void* transit,
                                 size_t max_segment_bytes) {
  const int own = place.RankAt(place.position);
  const auto& size_of = args.bytes;
  // Where the block for `to` begins in the input, and that of `from` in the
  // output.
  auto input_of = [&](int to) {
    const char* at = static_cast<const char*>(args.input);
    for (int rank = 0; rank < to; ++rank) at += size_of(own, rank);
    return at;
  };
  auto output_of = [&](int from) {
    char* at = static_cast<char*>(args.output);
    for (int rank = 0; rank < from; ++rank) at += size_of(rank, own);
    return at;
  };
  auto for_each_segment = [&](auto* data, size_t count, auto function) {
    ForEachSegment(
        Extent{0, static_cast<int64_t>(count)},
        SegmentElements(1, max_segment_bytes), [&](const Extent& range) {
          function(data + range.begin, static_cast<size_t>(range.count));
        });
  };
  RingLists lists;
  auto send = [&](const char* data, size_t count) {
    lists.sends.push_back(ConstSegment{data, count});
  };
  if (place.size > 1) {
    ForEachTravelling(place, place.position, 1, [&](int from, int to) {
      for_each_segment(input_of(to), size_of(from, to), send);
    });
  }
  // released[i]: the sends that may leave once i receives are in.
  std::vector<size_t> released = {lists.sends.size()};
  char* passing = static_cast<char*>(transit);
  const int before = Modulo(place.position - 1, place.size);
  for (int step = 1; step < place.size; ++step) {
    ForEachTravelling(place, before, step, [&](int from, int to) {
      const bool arrives = to == own;
      char* const target = arrives ? output_of(from) : passing;
      for_each_segment(target, size_of(from, to),
                       [&](char* data, size_t count) {
                         lists.receives.push_back(Segment{data, count});
                         if (!arrives) send(data, count);
                         released.push_back(lists.sends.size());
                       });
      if (!arrives) passing += size_of(from, to);
    });
  }
  SendReceivePlan plan = std::move(lists).Plan(place, args.tag);
  plan.advance = [released = std::move(released)](SendReceivePlan& p) {
    SetReleased(released[Received(p)], p);
  };
  return plan;
}

SendReceivePlan PlanRingAllgather(const RingPlace& place, uint64_t tag,
                                  void* output,
                                  const std::vector<size_t>& bytes_per_rank,
                                  size_t max_segment_bytes) {
  std::vector<size_t> begins(place.size);
  std::exclusive_scan(bytes_per_rank.begin(), bytes_per_rank.end(),
                      begins.begin(), size_t{0});
  RingLists lists;
  auto for_each_segment_of = [&](int block, auto function) {
    const int b = place.RankAt(Modulo(block, place.size));
    ForEachSegment(Extent{static_cast<int64_t>(begins[b]),
                          static_cast<int64_t>(bytes_per_rank[b])},
                   SegmentElements(1, max_segment_bytes),
                   [&](const Extent& range) {
                     function(static_cast<char*>(output) + range.begin,
                              static_cast<size_t>(range.count));
                   });
  };
  auto send = [&](char* data, size_t bytes) {
    lists.sends.push_back(ConstSegment{data, bytes});
  };
  auto receive = [&](char* data, size_t bytes) {
    lists.receives.push_back(Segment{data, bytes});
  };
  size_t num_own_segments = 0;
  for (int step = 0; step < place.size - 1; ++step) {
    for_each_segment_of(place.position - step, send);
    if (step == 0) num_own_segments = lists.sends.size();
    for_each_segment_of(place.position - step - 1, receive);
  }
  SendReceivePlan plan = std::move(lists).Plan(place, tag);
  SetForwarding(num_own_segments, plan);
  return plan;
}

SendReceivePlan PlanChainBroadcast(const RingPlace& place, uint64_t tag,
                                   int root,
                                   const std::vector<TensorSpan>& tensors,
                                   size_t max_segment_bytes) {
  // Place in the chain: the root is the first, its predecessor the last.
  const int link = Modulo(
      place.position - RingPlaceOf(root, place.size, place.order).position,
      place.size);
  const bool is_root = link == 0;
  const bool is_last = link == place.size - 1;
  RingLists lists;
  for (const TensorSpan& tensor : tensors) {
    const char* source =
        static_cast<const char*>(is_root ? tensor.input : tensor.output);
    char* target = static_cast<char*>(tensor.output);
    ForEachSegment(
        Extent{0, tensor.count}, SegmentElements(1, max_segment_bytes),
        [&](const Extent& range) {
          const size_t bytes = range.count;
          if (!is_last) {
            lists.sends.push_back(ConstSegment{source + range.begin, bytes});
          }
          if (!is_root) {
            lists.receives.push_back(Segment{target + range.begin, bytes});
          }
        });
  }
  const size_t num_own_segments = is_root ? lists.sends.size() : 0;
  SendReceivePlan plan = std::move(lists).Plan(place, tag);
  SetForwarding(num_own_segments, plan);
  return plan;
}

}  // namespace keras_ring
