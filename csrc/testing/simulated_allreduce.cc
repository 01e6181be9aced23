#include "csrc/testing/simulated_allreduce.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

#include "csrc/base/round.h"
#include "csrc/collective/fold_method.h"
#include "csrc/collective/hierarchy/hierarchical_collective.h"
#include "csrc/collective/hierarchy/hierarchy_backend.h"
#include "csrc/collective/hierarchy/stage_parts.h"
#include "csrc/collective/net/levels.h"
#include "csrc/collective/net/levels_run.h"
#include "csrc/collective/scratch_buffer.h"
#include "csrc/collective/spans.h"

namespace keras_ring {
namespace {

// The ranks of a host, which take their time and have no values. Their tensors
// are direct, or go through slots.
class SimulatedHost final : public InnerLevel, private SumMethod {
 public:
  SimulatedHost(const SimulatedJob& job, const std::vector<Range>& parts,
                int64_t depth, bool direct, bool has_helper, char* results)
      : job_(job),
        parts_(parts),
        depth_(depth),
        copies_(direct ? 0.0 : 1.0),
        has_helper_(has_helper),
        results_(results) {}

  void set_simulation(NetworkSimulation* simulation) {
    simulation_ = simulation;
  }
  // When the host begins, if it is not at once.
  void set_start(double time) { memory_free_ = helper_free_ = time; }

  bool IsReady(int64_t step) const override { return step < done_ + depth_; }
  // Packs the parts of the others, waits for them, and reduces the own one.
  void StartReduce(int64_t step, char*) override {
    const int others = job_.ranks_per_host - 1;
    Move(BytesOf(step, copies_ * 2.0 * others));
    if (others > 0) simulation_->Spend(job_.host_sync);
    Do(BytesOf(step, job_.ranks_per_host + 1));
    reduced_at_.push_back(simulation_->now());
    if (!has_helper_) return;
    reduced_at_.back() = helper_free_;
    simulation_->AdvanceAt(helper_free_);
  }
  bool HasReduced(int64_t step) override {
    return reduced_at_[step] <= simulation_->now();
  }
  SumMethod& method() override { return *this; }
  char* ResultsOf(int64_t, const SpanPiece& piece, size_t at) override {
    return copies_ > 0 ? results_ + at : piece.output;
  }
  // Unpacks the results of the others.
  void Done(int64_t step) override {
    ++done_;
    Do(BytesOf(step, 2.0 * (job_.ranks_per_host - 1)));
    if (job_.ranks_per_host > 1) simulation_->Spend(job_.host_sync);
  }
  int64_t num_done() const { return done_; }
  // When another processor has done all that it was given.
  double helper_free() const { return helper_free_; }

 private:
  // SumMethod:
  size_t size() const override { return sizeof(float); }
  void Add(int, const Range& range, const void* const*, int num_sums,
           char*) override {
    Move((num_sums + 1.0) * range.count() * sizeof(float));
  }
  void Fold(const SpanPiece& piece, const void* const*, int num_sums,
            char*) override {
    Move((num_sums + 1.0 + copies_) * piece.bytes);
  }

  double BytesOf(int64_t step, double times) const {
    return times * parts_[step].count() * sizeof(float);
  }
  // Reads and writes here.
  void Move(double bytes) {
    simulation_->Spend(Moved(simulation_->now(), bytes) - simulation_->now());
  }
  // Here, or on the other processor.
  void Do(double bytes) {
    if (!has_helper_) return Move(bytes);
    const double begin = std::max(helper_free_, simulation_->now());
    const double end = Moved(begin, bytes);
    helper_free_ = end + simulation_->NoiseDuring(end - begin);
  }
  // When a thread has read and written so many bytes. The lane has its share of
  // the host's memory, which its threads take in the order in which they ask.
  double Moved(double begin, double bytes) {
    const double share = bytes * job_.host_memory_byte * job_.ranks_per_host;
    memory_free_ = std::max(memory_free_, simulation_->now()) + share;
    const double alone = begin + bytes * job_.memory_byte;
    return share > 0 ? std::max(alone, memory_free_) : alone;
  }

  const SimulatedJob& job_;
  const std::vector<Range>& parts_;
  const int64_t depth_;
  const double copies_;  // of values and results
  const bool has_helper_;
  char* const results_;
  NetworkSimulation* simulation_ = nullptr;
  int64_t done_ = 0;
  double helper_free_ = 0;
  double memory_free_ = 0;          // when the lane's share of the memory is
  std::vector<double> reduced_at_;  // by step
};

}  // namespace

SimulatedTime SimulateAllreduce(const SimulatedJob& job, size_t bytes) {
  HierarchicalOptions options;
  options.stage = StageOptionsFor(job.num_hosts, job.ranks_per_host);
  LinkModel links;
  links.latency = job.latency;
  links.message = job.message;
  links.byte = job.host_byte * job.ranks_per_host;
  const int lanes = bytes <= options.one_lane_bytes ? 1 : job.ranks_per_host;
  if (lanes == 1) links.byte = job.host_byte;
  // All lanes do the same.
  const int64_t count =
      std::max<int64_t>(1, static_cast<int64_t>(bytes / sizeof(float)));
  const int64_t of_lane = DivideUp(count, lanes);
  const int side = GroupSide(job.num_hosts, options);
  const std::vector<int> sides = LargestGroups(job.num_hosts, side);
  const StageParts stage_parts = StageParts::Tapered(
      of_lane, /*lanes=*/1, sizeof(float),
      PartSizesOf(of_lane * sizeof(float), options.stage.part_bytes,
                  job.ranks_per_host, sides, options));
  const std::vector<Range> parts = stage_parts.PartsOf(0);

  // Nobody looks at the values, so all have the same memory.
  std::vector<float> values(of_lane);
  std::vector<char> results(stage_parts.max_count() * sizeof(float));
  const std::vector<TensorSpan> tensors = {
      {values.data(), values.data(), of_lane}};
  Spans row;
  row.Assign(tensors, sizeof(float));
  Reduction reduction;
  const FoldMethod method(reduction);
  LevelsShape shape;
  shape.lag = options.stage.lag();
  shape.is_small = AllreduceTakesFewHops(links, Preference::kByModel, sides,
                                         of_lane * sizeof(float));

  std::vector<int> ranks(job.num_hosts);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::deque<SimulatedHost> hosts;
  std::deque<std::deque<ScratchBuffer>> scratch;
  std::deque<LevelsRun> runs;
  std::vector<SendReceivePlan> plans(job.num_hosts);
  SimulatedTime time;
  for (int host = 0; host < job.num_hosts; ++host) {
    const std::vector<Group> groups = PlanLevels(host, job.num_hosts, side);
    hosts.emplace_back(
        job, parts, options.stage.depth, bytes >= options.direct_bytes,
        job.helper_thread && bytes >= options.helper_bytes, results.data());
    scratch.emplace_back(groups.size());
    runs.emplace_back(groups, ranks, parts, shape, hosts.back(), method, row,
                      scratch.back(), Meter());
    plans[host].tag = 1;
    if (!runs.back().AddTo(plans[host]).ok()) return time;
    plans[host].advance = [&runs, host](SendReceivePlan& plan) {
      runs[host].Advance(plan);
    };
    size_t memory = HostSlots::DataBytes(job.ranks_per_host, options.stage);
    for (const ScratchBuffer& buffer : scratch.back())
      memory += buffer.capacity();
    time.memory = std::max(time.memory, memory);
  }
  NetworkModel network;
  network.latency = job.latency;
  network.byte = links.byte;
  network.message = job.message;
  network.send_byte = job.send_byte;
  network.receive_byte = job.receive_byte;
  network.shared_processors = job.shared_processors;
  network.io_threads = job.io_threads;
  network.rack_ranks = job.rack_hosts;
  network.racks_in_order = job.racks_in_order;
  network.oversubscription = job.oversubscription;
  network.noise = job.noise;
  network.noise.short_rate *= job.ranks_per_host;
  network.noise.long_rate *= job.ranks_per_host;
  network.seed = job.seed;
  NetworkSimulation simulation(plans, network);
  ProcessorNoise computing(job.noise, job.ranks_per_host * job.num_hosts,
                           ~job.seed);
  for (int host = 0; host < job.num_hosts; ++host) {
    double late = 0;
    for (int rank = 0; rank < job.ranks_per_host; ++rank) {
      late = std::max(late, computing.During(host * job.ranks_per_host + rank,
                                             job.compute));
    }
    simulation.StartAt(host, late);
    hosts[host].set_start(late);
    hosts[host].set_simulation(&simulation);
  }
  time.ended = simulation.Run();
  for (const SimulatedHost& host : hosts) {
    time.ended =
        time.ended && host.num_done() == static_cast<int64_t>(parts.size());
  }
  time.seconds = simulation.time();
  for (const SimulatedHost& host : hosts) {
    time.seconds = std::max(time.seconds, host.helper_free());
  }
  time.bound = 2.0 * (job.num_hosts - 1) / job.num_hosts *
               static_cast<double>(bytes) * job.host_byte;
  time.sends = simulation.max_sends();
  time.bytes = simulation.max_bytes();
  time.processor_seconds = simulation.processor_time();
  return time;
}

}  // namespace keras_ring
