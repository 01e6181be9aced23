// Collectives of NumPy arrays, over the C interface.
#ifndef KERAS_RING_CORE_ARRAY_OPERATION_H_
#define KERAS_RING_CORE_ARRAY_OPERATION_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/capi/keras_ring.h"

namespace keras_ring {

// One collective that was submitted. Whoever drops it before its end loses the
// results; the arrays live on until the runtime has let go of them.
class ArrayOperation {
 public:
  // What is asked for, as KrRequestSpec has it.
  struct Call {
    std::string name;
    int32_t kind;
    int32_t reduce_op;
    int32_t compression;
    int32_t root;
    double prescale;
    double postscale;
    std::vector<int64_t> splits;
  };

  // Submits it to the runtime of a process set. `inputs` are contiguous, in
  // C's order, of the element types `dtypes` (numbers of KrDTypes). Throws
  // StatusError, as KrRequestCreate and KrEnqueue fail.
  ArrayOperation(int64_t process_set, const Call& call,
                 std::vector<pybind11::array> inputs,
                 const std::vector<int32_t>& dtypes);
  ~ArrayOperation();
  ArrayOperation(const ArrayOperation&) = delete;
  ArrayOperation& operator=(const ArrayOperation&) = delete;

  // Waits for its end without the interpreter lock; for ever without
  // `seconds`. False: that was not long enough. Throws StatusError if it has
  // failed, and what a signal's handler raises meanwhile.
  bool Wait(std::optional<double> seconds);

  // After its end. An alltoall has one more, of int64: the rows that came from
  // each rank. Of a join it is the last rank, a scalar of int32.
  std::vector<pybind11::array> Results();

 private:
  struct State;
  struct Arrays;

  const std::shared_ptr<State> state_;
  std::unique_ptr<Arrays> arrays_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CORE_ARRAY_OPERATION_H_
