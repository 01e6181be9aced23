#include "csrc/collective/cuda/kernel_rows.h"

#include <algorithm>
#include <iterator>

#include "csrc/collective/arguments.h"

namespace keras_ring {

using cuda::CopyArguments;
using cuda::FoldArguments;
using cuda::FoldRow;
using cuda::IsAligned;
using cuda::TilesOf;

void CopyRows::Add(void* to, const void* from, int64_t bytes) {
  if (bytes == 0 || to == from) return;
  rows_.push_back({from, to, bytes, tiles_, IsAligned(from) && IsAligned(to)});
  tiles_ += TilesOf(bytes);
}

Status CopyRows::Launch(cuda::KernelSet& kernels, CallMemory& memory,
                        cuda::Stream stream) const {
  if (rows_.empty()) return OkStatus();
  CopyArguments args = {};
  if (rows_.size() > 1) {
    KR_ASSIGN_OR_RETURN(args.rows, memory.Upload(rows_, stream));
  }
  args.only = rows_.front();
  args.num_rows = static_cast<int>(rows_.size());
  args.num_tiles = tiles_;
  return kernels.Copy(args, stream);
}

void FoldRows::Add(FoldRow row, int64_t count, size_t element) {
  if (count == 0) return;
  row.count = count;
  row.first_tile = tiles_;
  // Null where there is none.
  const auto aligned = [](const void* memory) { return IsAligned(memory); };
  row.aligned =
      std::all_of(std::begin(row.inputs), std::end(row.inputs), aligned) &&
      std::all_of(std::begin(row.outputs), std::end(row.outputs), aligned);
  tiles_ += TilesOf(count * static_cast<int64_t>(element));
  rows_.push_back(row);
}

void FoldRows::AddOne(void* output, const void* input, int64_t count,
                      size_t element) {
  FoldRow row = {};
  row.inputs[0] = input;
  row.outputs[0] = output;
  Add(row, count, element);
}

Status FoldRows::Launch(cuda::KernelSet& kernels, CallMemory& memory,
                        cuda::Stream stream, const Reduction& reduction,
                        int num_inputs, int num_outputs) const {
  if (rows_.empty()) return OkStatus();
  FoldArguments args = {};
  if (rows_.size() > 1) {
    KR_ASSIGN_OR_RETURN(args.rows, memory.Upload(rows_, stream));
  }
  args.only = rows_.front();
  args.num_rows = static_cast<int>(rows_.size());
  args.num_inputs = num_inputs;
  args.num_outputs = num_outputs;
  args.op = cuda::FoldOpOf(reduction.op);
  args.num_tiles = tiles_;
  const Finish finish = FinishOf(reduction);
  args.prescale = reduction.prescale;
  args.postscale = finish.postscale;
  args.divisor = finish.divisor;
  return kernels.Fold(
      cuda::FoldKernelName(reduction.dtype, reduction.wire_dtype(),
                           reduction.op),
      args, stream);
}

}  // namespace keras_ring
