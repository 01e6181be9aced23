#include "csrc/testing/fake_cuda_kernels.h"

#include <cstring>
#include <map>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/collective/kernels/codec.h"
#include "csrc/collective/kernels/kernels.h"
#include "csrc/cuda/kernels/arguments.h"
#include "csrc/cuda/kernels/kernel_set.h"

namespace keras_ring::cuda::fake {
namespace {

// What a fold kernel's name says.
struct Kind {
  DType dtype;
  DType wire;
  bool is_mean;
};

const std::map<std::string, Kind>& Kinds() {
  static const auto* const kinds = [] {
    auto* found = new std::map<std::string, Kind>();
    for (int i = 0; i < kNumDTypes; ++i) {
      const DType dtype = static_cast<DType>(i);
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
        (*found)[FoldKernelName(dtype, dtype, op)] = {
            dtype, dtype, op == ReduceOp::kAverage && IsInteger(dtype)};
      }
      for (DType wire : {DType::kFloat16, DType::kBfloat16}) {
        if (FindCodec(dtype, wire) == nullptr) continue;
        (*found)[FoldKernelName(dtype, wire, ReduceOp::kSum)] = {dtype, wire,
                                                                 false};
      }
    }
    found->erase("");
    return found;
  }();
  return *kinds;
}

bool FoldRowOf(const Kind& kind, const FoldArguments& args, const FoldRow& row,
               const FindAlias& alias) {
  const size_t bytes = row.count * DTypeSize(kind.dtype);
  std::vector<const void*> sources;
  for (int i = 0; i < args.num_inputs; ++i) {
    sources.push_back(alias(row.inputs[i], bytes));
    if (sources.back() == nullptr) return false;
  }
  const ReduceOp op =
      kind.is_mean ? ReduceOp::kAverage : static_cast<ReduceOp>(args.op);
  std::vector<char> result(bytes);
  FoldArgs fold;
  fold.num_sources = args.num_inputs;
  fold.count = row.count;
  fold.prescale = args.prescale;
  fold.finish = {args.divisor, args.postscale};
  fold.output = result.data();
  std::vector<std::vector<char>> packed;
  if (const Codec* codec = FindCodec(kind.dtype, kind.wire)) {
    for (const void*& source : sources) {
      packed.emplace_back(row.count * codec->wire_size);
      codec->pack(packed.back().data(), source, row.count, args.prescale);
      source = packed.back().data();
    }
    fold.prescale = 1.0;
    fold.sources = sources.data();
    codec->fold[static_cast<int>(op)](fold);
  } else {
    fold.sources = sources.data();
    FindFoldKernel(kind.dtype, op)(fold);
  }
  for (int i = 0; i < args.num_outputs; ++i) {
    char* const output = alias(row.outputs[i], bytes);
    if (output == nullptr) return false;
    std::memcpy(output, result.data(), bytes);
  }
  return true;
}

// Calls f(row) for each row, until it returns false.
template <typename Args, typename Row, typename Function>
bool ForEachRow(const Args& args, const Row* rows, const FindAlias& alias,
                Function f) {
  if (rows == nullptr) return f(args.only);
  const char* const there = alias(rows, args.num_rows * sizeof(Row));
  if (there == nullptr) return false;
  for (int i = 0; i < args.num_rows; ++i) {
    Row row;
    std::memcpy(&row, there + i * sizeof(Row), sizeof(row));
    if (!f(row)) return false;
  }
  return true;
}

}  // namespace

std::function<bool()> KernelWork(const std::string& kernel, void** parameters,
                                 const FindAlias& alias) {
  if (kernel == "copy") {
    const auto args = *static_cast<const CopyArguments*>(parameters[0]);
    return [args, alias] {
      return ForEachRow(args, args.rows, alias, [&](const CopyRow& row) {
        const char* const from = alias(row.from, row.bytes);
        char* const to = alias(row.to, row.bytes);
        if (from == nullptr || to == nullptr) return false;
        std::memmove(to, from, row.bytes);
        return true;
      });
    };
  }
  const auto found = Kinds().find(kernel);
  if (found == Kinds().end()) return nullptr;
  const auto args = *static_cast<const FoldArguments*>(parameters[0]);
  return [kind = found->second, args, alias] {
    return ForEachRow(args, args.rows, alias, [&](const FoldRow& row) {
      return FoldRowOf(kind, args, row, alias);
    });
  };
}

}  // namespace keras_ring::cuda::fake
