// HostStage: the part of a hierarchical collective that happens on one host.
//
// For each chunk of the row (StageParts) a rank
//
//   packs     its values of the parts of other ranks' lanes, into its slot
//   reduces   the part of its lane: all ranks' values of it, to the host's sums
//             (HostMethod)
//   unpacks   the results of the other parts, which the ranks of those lanes
//             have put where all can read them
//
// Between the last two, each lane exchanges its part with the other hosts
// (ExchangeRun). Nothing here waits: a step is taken when it can be. What must
// have happened before, with slots for `depth` chunks:
//
//   pack(i)    this rank has all results of i - depth, so all have reduced it,
//              and the values in this slot are not needed
//   reduce(i)  all have packed i; so they have unpacked i - depth, and the
//              memory for its results is free
//   unpack(i)  the ranks of the other lanes have published i
//
// The numbers of chunks run on through all collectives of the group.
//
// Tensors that lie in arenas (TensorPlaces), and all of a rank that is alone on
// its host, are neither packed nor put elsewhere: they are reduced from where
// they lie, and results are exchanged from and into the outputs, from which the
// other ranks copy them. At the end each rank waits until the others have read
// its tensors (kUnpacked). One that fails does not wait; so before what was
// read is used, it is made sure that nobody had left.
//
// Where ranks have cores to spare, another thread reduces and unpacks, while
// this one sends and receives: these are most of what is read and written where
// a host has many ranks.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HOST_STAGE_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HOST_STAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/meter.h"
#include "csrc/base/status.h"
#include "csrc/base/task_thread.h"
#include "csrc/collective/hierarchy/host_method.h"
#include "csrc/collective/hierarchy/stage_parts.h"
#include "csrc/collective/net/exchange_run.h"
#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/collective/shm/tensor_places.h"
#include "csrc/collective/spans.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// Must be equal on all ranks.
struct HostStageOptions {
  size_t part_bytes = size_t{128} << 10;  // a multiple of 64
  int64_t depth = 4;                      // at most ProgressPage::kMaxDepth

  // The number of chunks whose values are in flight at once. It is less than
  // the number of slots: the result of a chunk follows the values of the last
  // of them in its stream, and these would wait for the slot of a chunk whose
  // results are in flight.
  int64_t lag() const { return depth > 1 ? depth - 1 : 1; }
};

// The memory for it that the ranks of a host share, in a group's data.
class HostSlots {
 public:
  static size_t DataBytes(int size, const HostStageOptions& options);

  // `group` must outlive the object.
  HostSlots(const HostGroup& group, const HostStageOptions& options);

  const HostStageOptions& options() const { return options_; }
  // The values of `local_rank` for the part of `lane`, and the results of the
  // part that `local_rank` owns.
  char* Values(int local_rank, uint64_t chunk, int lane) const;
  char* Results(int local_rank, uint64_t chunk) const;

 private:
  const HostGroup& group_;
  const HostStageOptions options_;
};

// The run of one collective.
class HostStage final : public InnerLevel, public PlanEvents {
 public:
  // All references must outlive the object. `places`: this rank has published
  // the places of the row's tensors in it; null: all tensors go through the
  // slots. `first_chunk`: the number of the run's first chunk.
  HostStage(const HostGroup& group, const HostSlots& slots,
            ChunkBarrier& barrier, const Spans& row, HostMethod& method,
            const StageParts& parts, TensorPlaces* places, uint64_t first_chunk,
            const Meter& meter, TaskThread* helper = nullptr);
  // Waits until the tasks of the other thread are done.
  ~HostStage();

  int64_t num_chunks() const { return num_chunks_; }
  // To be called before the functions that ask what can be done: what others do
  // from now on counts as Happened, and leads to another look.
  void Look();
  // Takes the steps that can be taken. Returns whether there was one.
  bool Advance();
  // Returns whether this rank has all results of the other lanes; and, if
  // tensors are read in place, has published that, and the others have read its
  // own.
  bool finished() const {
    if (places_ == nullptr) return unpacked_ == num_chunks_;
    return has_read_ && barrier_.AllHaveDone(Phase::kUnpacked, last());
  }

  // InnerLevel:
  bool IsReady(int64_t step) const override;
  void StartReduce(int64_t step, char* sums) override;
  bool HasReduced(int64_t step) override;
  SumMethod& method() override { return method_; }
  char* ResultsOf(int64_t step, const SpanPiece& piece, size_t at) override;
  void Done(int64_t step) override;

  // PlanEvents:
  bool Happened() override;
  int descriptor() const override;
  bool Arm() override;
  void Disarm() override;
  Status Check() override;
  std::string Awaited() const override;

 private:
  uint64_t Number(int64_t chunk) const { return first_chunk_ + chunk; }
  uint64_t last() const { return Number(num_chunks_ - 1); }
  bool owns_lane() const { return local_rank_ < lanes_; }
  // Returns whether the others read this rank's values in place.
  bool SharesInput(const SpanPiece& piece) const {
    return places_ != nullptr &&
           places_->input(local_rank_, piece.tensor) != nullptr;
  }
  // Returns the values of `local_rank` for a piece of this rank's part.
  const char* ValuesOf(int local_rank, int64_t step,
                       const SpanPiece& piece) const;
  // Learns once where the others have their tensors, when all have published
  // this. Returns whether it has.
  bool Learn();
  bool CanPack() const;
  void Pack(int64_t chunk);
  void Reduce(int64_t step, char* sums);
  bool CanUnpack(int64_t chunk);
  void Unpack(int64_t chunk);
  // Runs a task, here or on the other thread.
  template <typename Task>
  void Do(const Task& task);
  // The events that wake up an armed stage: a count that only grows.
  uint64_t NumEvents() const;
  // Publishes, once, that this rank has read all that it wanted.
  void NoteRead();

  const HostGroup& group_;
  const HostSlots& slots_;
  ChunkBarrier& barrier_;
  const Spans& row_;
  HostMethod& method_;
  const StageParts& parts_;
  TensorPlaces* const places_;  // or null
  const int size_;
  const int local_rank_;
  const int lanes_;
  const int64_t num_chunks_;
  const uint64_t first_chunk_;
  const Meter meter_;
  TaskThread* const helper_;  // or null

  int64_t tasks_ = 0;  // given to the other thread
  std::atomic<int64_t> tasks_done_{0};
  int64_t packed_ = 0;
  int64_t unpacks_ = 0;  // that were begun
  std::atomic<int64_t> unpacked_{0};
  int64_t done_ = 0;  // by this rank's lane
  std::atomic<int64_t> reduced_{0};
  bool has_learnt_ = false;
  bool has_read_ = false;
  // if set, nothing that was read may be used
  Status failure_;
  uint64_t seen_ = 0;                 // NumEvents at the last Look
  std::vector<const void*> sources_;  // by local rank, of Reduce
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HOST_STAGE_H_
