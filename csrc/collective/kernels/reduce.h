// Reduction kernels: combine the values of two ranks, for a dtype and an op.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_REDUCE_H_
#define KERAS_RING_COLLECTIVE_KERNELS_REDUCE_H_

#include <cstdint>

#include "csrc/base/cpu_features.h"
#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"

namespace keras_ring {

// accumulator[i] = accumulator[i] op value[i]. The arrays do not overlap and
// are aligned for their dtype.
//
// As NumPy: integers wrap modulo 2^k; Min and Max are NaN where either is. Of
// two NaNs it is the accumulator's, in every operation.
using ReduceKernel = void (*)(void* accumulator, const void* value,
                              int64_t count);

// Returns null for Adasum, and for dtypes that are not reduced as they are:
// bool and complex numbers, and the 16-bit floats, which are summed as float32
// (pack.h). Average is Sum: the division comes once, at the end. `level` is at
// most DetectCpuLevel().
ReduceKernel FindReduceKernel(DType dtype, ReduceOp op,
                              CpuLevel level = DetectCpuLevel());

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_REDUCE_H_
