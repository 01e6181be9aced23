// Collective: the operations of the data plane, independent of how bytes move.
//
// Shared memory, TCP, MPI and NCCL are behind this interface. It takes the
// tensors of a bucket at their places in memory, not a packed buffer, because a
// backend may be able to pack straight into its own segments, or not to copy at
// all.
#ifndef KERAS_RING_COLLECTIVE_COLLECTIVE_H_
#define KERAS_RING_COLLECTIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/compression.h"
#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/base/status.h"
#include "csrc/base/tunable.h"
#include "csrc/device/event.h"

namespace keras_ring {

// One tensor of a bucket. `input` and `output` are equal (in place) or do not
// overlap.
struct TensorSpan {
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;  // elements; may be 0
};

// How the values of the ranks are combined: equal on all ranks.
struct Reduction {
  DType dtype = DType::kFloat32;  // of all tensors; IsReducible(dtype)
  ReduceOp op = ReduceOp::kSum;
  // Each rank's values are multiplied by `prescale` before, and the result by
  // `postscale` after the reduction. 1.0 for integer dtypes.
  double prescale = 1.0;
  double postscale = 1.0;
  // The divisor of Average: the number of ranks that contribute. Integers:
  // exact sum, then floor division, as in NumPy.
  int64_t divisor = 1;
  // Makes wide floats travel as narrower ones: as values of wire_dtype(). Only
  // two roundings come from it:
  //
  //   1. each rank's values times `prescale`, a product in `dtype`, are rounded
  //      to the wire dtype. They are then reduced as tensors of that dtype are:
  //      widened to float32, summed, divided and multiplied by `postscale`;
  //   2. the result is rounded to the wire dtype, and widened to `dtype` by
  //      every rank, the one that summed it included.
  //
  // To nearest even; what is too large for float16 becomes infinite; a NaN
  // remains one. So the result is that of packing the tensors, reducing them
  // as tensors of the wire dtype without a prescale, and unpacking.
  Compression compression = Compression::kNone;

  DType wire_dtype() const { return WireDType(dtype, compression); }
};

// What all calls have.
struct CallArgs {
  uint64_t tag = 0;  // number of the collective, equal on all ranks
  int ordinal = 0;  // of this rank's device, which holds all memory of the call
  // Once all of these are reached, inputs have been written, and outputs may
  // be.
  Events ready;
};

// Every rank passes the same counts in the same order. An Adasum treats each
// tensor by itself (adasum.h).
struct AllreduceArgs : CallArgs, Reduction {
  std::vector<TensorSpan> tensors;
};

struct AllgatherArgs : CallArgs {
  const void* input = nullptr;
  void* output = nullptr;  // the sum of bytes_per_rank
  // indexed by rank, including this one
  std::vector<size_t> bytes_per_rank;
};

struct BroadcastArgs : CallArgs {
  int root = 0;
  // With the counts of the root: read from `input` there, written to `output`
  // on every rank (on the root too, unless it is in place). Counts are bytes.
  std::vector<TensorSpan> tensors;
};

struct ReducescatterArgs : CallArgs, Reduction {
  // One block of elements per rank, one after the other; this rank's block is
  // the result. `output` does not overlap `input`.
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<int64_t> count_per_rank;  // elements; may be 0
};

struct AlltoallArgs : CallArgs {
  // `input` has one block per receiver, `output` one per sender, one after the
  // other. They do not overlap.
  const void* input = nullptr;
  void* output = nullptr;
  int size = 0;  // ranks
  // Returns the bytes that one rank sends to another: equal on all ranks. A
  // function, since a rank needs only its row and its column of all sizes, and
  // in a lane those of its host: for 4,096 ranks, the whole matrix would take
  // 128 MiB.
  std::function<size_t(int from, int to)> bytes;
};

// The arguments of one call.
using CollectiveArgs = std::variant<AllreduceArgs, AllgatherArgs, BroadcastArgs,
                                    ReducescatterArgs, AlltoallArgs>;

// What the arguments have, whatever the call is.
CallArgs& CallOf(CollectiveArgs& args);
const CallArgs& CallOf(const CollectiveArgs& args);

class InlineExecution;

class Collective {
 public:
  virtual ~Collective() = default;

  // Called once with the outcome of a call, on any thread. Must not call the
  // collective.
  using Done = std::function<void(const Status&)>;
  // Starts a call. All calls come from one thread; they run in the order in
  // which they were started, which is the same on all ranks. `args` and all
  // memory that it names must stay valid until `done` has been called, which
  // may be before this returns or long after. The first failure breaks the
  // object: every later call fails as well. Results are bitwise identical on
  // all ranks.
  virtual void Start(const CollectiveArgs& args, Done done) = 0;

  // Lines for people: which algorithms are used, and why.
  virtual std::string Explain() const { return ""; }

  // Null if no call may run on the control thread.
  virtual InlineExecution* inline_execution() { return nullptr; }

  // The settings that can be tuned, equal on all ranks.
  virtual std::vector<TunableRange> Tunables() const { return {}; }
  // To be called on the thread that starts calls, between two of them, the same
  // on all ranks. Does not change the bits of results. Tunables that are not in
  // Tunables() are ignored; a value outside its range is clamped.
  void Tune(Tunable tunable, int64_t value);

  // Thread-safe: the process of `rank` has ended. A call that still needs it
  // fails; the results that it has already contributed stay valid. For
  // collectives whose transport does not notice by itself.
  virtual void PeerGone(int rank) = 0;

  // Thread-safe; makes every call that was started and is not done fail with
  // `cause`.
  virtual void Abort(const Status& cause) = 0;

 private:
  // Sets one of Tunables(), within its range.
  virtual void Set(Tunable, int64_t) {}
};

// A collective whose calls return only when they are done. Start waits for the
// events of a call before it.
class BlockingCollective : public Collective {
 public:
  // See Start. Calls do not overlap.
  virtual Status Allreduce(const AllreduceArgs& args) = 0;
  virtual Status Allgather(const AllgatherArgs& args) = 0;
  virtual Status Broadcast(const BroadcastArgs& args) = 0;
  virtual Status Reducescatter(const ReducescatterArgs& args) = 0;
  virtual Status Alltoall(const AlltoallArgs& args) = 0;

  void Start(const CollectiveArgs& args, Done done) final;
};

// Implemented by a collective whose small calls may run on the control thread,
// since handing them to another thread would take longer.
class InlineExecution {
 public:
  virtual ~InlineExecution() = default;
  // The largest such call [bytes of tensors]: it takes microseconds once all
  // ranks are there, and is done when Start returns.
  virtual int64_t InlineBytes() const = 0;
  // A call that waits for other ranks calls `progress` now and then, so that
  // the control plane goes on; `progress` may call Abort. Null: the thread has
  // nothing else to do. May be set between calls.
  virtual void SetProgressCallback(const std::function<void()>* progress) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_COLLECTIVE_H_
