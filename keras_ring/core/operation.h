// Collectives of memory that Python objects own, over the C interface.
#ifndef KERAS_RING_CORE_OPERATION_H_
#define KERAS_RING_CORE_OPERATION_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/capi/keras_ring.h"

namespace keras_ring {

// Host memory that the runtime has allocated for a result, which Python reads
// as a buffer of bytes.
struct Memory {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> data;
  size_t bytes = 0;
  int64_t rows = 0;  // of the result, in its first dimension
};

// A collective that can be submitted again and again, whenever the last
// submission has ended. Dropped before that, it runs to its end all the same.
class Operation {
 public:
  // As KrRequestSpec.
  struct Call {
    std::string name;
    int32_t kind = KR_ALLREDUCE;
    int32_t reduce_op = KR_SUM;
    int32_t compression = KR_COMPRESSION_NONE;
    int32_t device = KR_DEVICE_HOST;
    int32_t root = 0;
    int64_t generation = -1;
    double prescale = 1.0;
    double postscale = 1.0;
    std::vector<int64_t> splits;
  };
  struct Tensor {
    int32_t dtype;  // the number of a row of KrDTypes
    std::vector<int64_t> shape;
  };
  // A submission.
  struct Buffers {
    std::vector<uintptr_t> inputs;
    // Empty if only the runtime knows the sizes of the results.
    std::vector<uintptr_t> outputs;
    // Keeps both alive until the end.
    pybind11::object owner;
    int32_t device_ordinal = 0;
    uintptr_t stream = 0;
  };

  // Throws StatusError if KrRequestCreate fails.
  Operation(int64_t process_set, const Call& call,
            const std::vector<Tensor>& tensors);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Submits it. Throws StatusError if KrEnqueue fails.
  void Start(Buffers buffers);

  // Returns whether the last submission has ended.
  bool IsDone() const;

  // Waits for the end of the last submission without the interpreter lock; for
  // ever without `seconds`. Returns false if that was not long enough. Throws
  // StatusError if it has failed, and the exception of a signal's handler.
  bool Wait(std::optional<double> seconds);

  // Takes the results whose sizes only the runtime knew. Call it after the end.
  // An alltoall has one more: as int64, the rows that came from each rank.
  std::vector<std::unique_ptr<Memory>> TakeResults();

 private:
  struct State;
  struct InFlight;

  const std::unique_ptr<KrRuntimeLookup, void (*)(KrRuntimeLookup*)> lookup_;
  std::unique_ptr<const KrRequest, void (*)(const KrRequest*)> request_;
  // Of each result whose size only the runtime knows.
  std::vector<int64_t> bytes_of_row_;
  size_t num_inputs_ = 0;
  size_t num_outputs_ = 0;
  std::shared_ptr<State> state_;
  std::unique_ptr<InFlight> in_flight_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CORE_OPERATION_H_
