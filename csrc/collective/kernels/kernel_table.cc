#include "csrc/collective/kernels/kernel_table.h"

namespace keras_ring {

const KernelTable& KernelsOf(CpuLevel level) {
  const KernelTable* const tables[] = {kBaselineKernels, kAvx2Kernels,
                                       kAvx512Kernels};
  static_assert(sizeof(tables) / sizeof(tables[0]) == kNumCpuLevels);
  return *tables[static_cast<int>(level)];
}

const AccumulatorFormat* FindWideFormat(DType dtype, ReduceOp op,
                                        CpuLevel level) {
  const KernelTable::Row& row = KernelsOf(level).rows[static_cast<int>(dtype)];
  if (row.usual.pack == nullptr) return nullptr;
  return op == ReduceOp::kAverage ? &row.average : &row.usual;
}

ReduceKernel FindReduceKernel(DType dtype, ReduceOp op, CpuLevel level) {
  if (op == ReduceOp::kAdasum) return nullptr;
  return KernelsOf(level)
      .rows[static_cast<int>(dtype)]
      .reduce[static_cast<int>(op)];
}

FoldKernel FindFoldKernel(DType dtype, ReduceOp op, CpuLevel level) {
  return KernelsOf(level)
      .rows[static_cast<int>(dtype)]
      .fold[static_cast<int>(op)];
}

const Codec* FindCodec(DType dtype, DType wire_dtype, CpuLevel level) {
  const bool narrow =
      wire_dtype == DType::kFloat16 || wire_dtype == DType::kBfloat16;
  const bool wide = dtype == DType::kFloat32 || dtype == DType::kFloat64;
  if (!narrow || !wide) return nullptr;
  return &KernelsOf(level)
              .codecs[wire_dtype == DType::kBfloat16][dtype == DType::kFloat64];
}

const PairKernels& FindPairKernels(DType dtype, CpuLevel level) {
  return KernelsOf(level).rows[static_cast<int>(dtype)].pair;
}

void StreamCopy(void* to, const void* from, size_t bytes, CpuLevel level) {
  KernelsOf(level).stream_copy(to, from, bytes);
}

}  // namespace keras_ring
