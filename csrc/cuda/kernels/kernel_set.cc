#include "csrc/cuda/kernels/kernel_set.h"

#include <algorithm>
#include <utility>

namespace keras_ring::cuda {
namespace {

static_assert(kFoldSum == static_cast<int>(ReduceOp::kSum) &&
              kFoldMin == static_cast<int>(ReduceOp::kMin) &&
              kFoldMax == static_cast<int>(ReduceOp::kMax) &&
              kFoldProduct == static_cast<int>(ReduceOp::kProduct));

// Blocks for each multiprocessor: as many as it can run.
constexpr int kBlocks = 8;

constexpr const char* kPtx[] = {
#include "csrc/cuda/kernels/kernels.ptx.inc"
};

}  // namespace

const std::string& KernelsPtx() {
  static const auto* const text = [] {
    auto* joined = new std::string();
    for (const char* piece : kPtx) *joined += piece;
    return joined;
  }();
  return *text;
}

std::string FoldKernelName(DType dtype, DType wire, ReduceOp op) {
  if (!IsReducible(dtype) || op == ReduceOp::kAdasum) return "";
  const std::string name = DTypeName(dtype);
  if (wire != dtype) return "fold_" + name + "_as_" + DTypeName(wire);
  const bool is_mean = op == ReduceOp::kAverage && IsInteger(dtype);
  return (is_mean ? "mean_" : "fold_") + name;
}

int FoldOpOf(ReduceOp op) {
  return op == ReduceOp::kAverage ? kFoldSum : static_cast<int>(op);
}

Result<std::unique_ptr<KernelSet>> KernelSet::Load(std::shared_ptr<Gpu> gpu,
                                                   const std::string& ptx) {
  const Gpu::Current current(*gpu);
  KR_RETURN_IF_ERROR(current.status());
  char log[4096] = "";
  int options[] = {kJitErrorLog, kJitErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  Module module = nullptr;
  Status loaded = KR_CUDA(gpu->driver(), cuModuleLoadDataEx, &module,
                          ptx.c_str(), std::size(options), options, values);
  if (!loaded.ok()) {
    if (log[0] != '\0')
      loaded = Status(loaded.code(), loaded.message() + "; " + log);
    return loaded.WithContext("the kernels for " + gpu->name());
  }
  return std::unique_ptr<KernelSet>(new KernelSet(std::move(gpu), module));
}

KernelSet::~KernelSet() {
  const Gpu::Current current(*gpu_);
  gpu_->driver().cuModuleUnload(module_);
}

Status KernelSet::Fold(const std::string& kernel, const FoldArguments& args,
                       Stream stream) {
  return Launch(kernel, &args, args.num_tiles, stream);
}

Status KernelSet::Copy(const CopyArguments& args, Stream stream) {
  return Launch("copy", &args, args.num_tiles, stream);
}

Status KernelSet::Launch(const std::string& kernel, const void* args,
                         long long tiles, Stream stream) {
  if (tiles == 0) return OkStatus();
  auto found = functions_.find(kernel);
  if (found == functions_.end()) {
    Function function = nullptr;
    KR_RETURN_IF_ERROR(KR_CUDA(gpu_->driver(), cuModuleGetFunction, &function,
                               module_, kernel.c_str()));
    found = functions_.emplace(kernel, function).first;
  }
  const long long most = kBlocks * gpu_->multiprocessors();
  void* parameters[] = {const_cast<void*>(args)};
  return KR_CUDA(gpu_->driver(), cuLaunchKernel, found->second,
                 static_cast<unsigned>(std::min(tiles, most)), 1, 1, kThreads,
                 1, 1, 0, stream, parameters, nullptr)
      .WithContext(kernel);
}

}  // namespace keras_ring::cuda
