// Times the kernels that fold, level by level: GB/s of everything read and
// written, sources, output and copy.
//
//   make test-cpp   # builds it
//   build/core/benchmarks/kernels_benchmark
//
// A size is that of each array. The best of several runs, since a shared
// machine only ever makes them slower.
#include "csrc/collective/kernels/kernels.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace keras_ring {
namespace {

constexpr int kMaxSources = 4;

struct Case {
  const char* name;
  int num_sources;
  bool copy;
  double prescale;
  Finish finish;
};
constexpr Case kCases[] = {
    {"2 sources, sum", 2, false, 1.0, {1, 1.0}},
    {"2 sources, average", 2, false, 1.0, {2, 1.0}},
    {"2 sources, scaled average", 2, false, 0.5, {2, 3.0}},
    {"2 sources, average, copy", 2, true, 1.0, {2, 1.0}},
    {"4 sources, average", 4, false, 1.0, {4, 1.0}},
};

// Seconds of one call, the best of several.
template <typename Function>
double Time(size_t bytes, Function f) {
  using Clock = std::chrono::steady_clock;
  const int calls = static_cast<int>((size_t{64} << 20) / bytes) + 1;
  double best = std::numeric_limits<double>::infinity();
  f();
  for (int run = 0; run < 7; ++run) {
    const auto start = Clock::now();
    for (int call = 0; call < calls; ++call) f();
    const std::chrono::duration<double> taken = Clock::now() - start;
    if (taken.count() / calls < best) best = taken.count() / calls;
  }
  return best;
}

struct Free {
  void operator()(char* array) const { std::free(array); }
};
using Array = std::unique_ptr<char, Free>;

// Aligned as TensorFlow does.
Array MakeArray(size_t bytes) {
  return Array(static_cast<char*>(std::aligned_alloc(64, bytes)));
}

// Ones, whatever the dtype of 16 bits or 32: sums stay finite.
std::vector<Array> MakeArrays(size_t bytes, DType dtype) {
  std::vector<Array> arrays;
  const uint32_t one = dtype == DType::kFloat32    ? 0x3f800000
                       : dtype == DType::kBfloat16 ? 0x3f803f80
                                                   : 0x3c003c00;
  for (int a = 0; a < kMaxSources + 2; ++a) {
    arrays.push_back(MakeArray(bytes));
    for (size_t i = 0; i < bytes; i += sizeof(one)) {
      std::memcpy(arrays.back().get() + i, &one, sizeof(one));
    }
  }
  return arrays;
}

template <typename Run>
void PrintRow(const char* dtype, const char* name, size_t bytes, int arrays,
              Run run) {
  std::printf("%-9s %6zu KiB  %-27s", dtype, bytes >> 10, name);
  for (int level = 0; level <= static_cast<int>(DetectCpuLevel()); ++level) {
    const double seconds =
        Time(bytes, [&] { run(static_cast<CpuLevel>(level)); });
    std::printf(" %8.1f", arrays * bytes / seconds / 1e9);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void Fold(DType dtype, size_t bytes) {
  auto arrays = MakeArrays(bytes, dtype);
  const void* sources[kMaxSources];
  for (int i = 0; i < kMaxSources; ++i) sources[i] = arrays[i].get();
  for (const Case& c : kCases) {
    FoldArgs args;
    args.sources = sources;
    args.num_sources = c.num_sources;
    args.count = static_cast<int64_t>(bytes / DTypeSize(dtype));
    args.prescale = c.prescale;
    args.finish = c.finish;
    args.output = arrays[kMaxSources].get();
    args.copy = c.copy ? arrays[kMaxSources + 1].get() : nullptr;
    PrintRow(DTypeName(dtype), c.name, bytes,
             c.num_sources + 1 + (c.copy ? 1 : 0), [&](CpuLevel level) {
               FindFoldKernel(dtype, ReduceOp::kAverage, level)(args);
             });
  }
}

void Copies(size_t bytes) {
  const Array from = MakeArray(bytes);
  const Array to = MakeArray(bytes);
  std::memset(from.get(), 1, bytes);
  PrintRow("bytes", "memcpy", bytes, 2, [&](CpuLevel) {
    std::memcpy(to.get(), from.get(), bytes);
    asm volatile("" ::: "memory");
  });
  PrintRow("bytes", "StreamCopy", bytes, 2, [&](CpuLevel level) {
    StreamCopy(to.get(), from.get(), bytes, level);
  });
}

}  // namespace
}  // namespace keras_ring

int main() {
  using namespace keras_ring;  // NOLINT: the program's own scope
  std::printf("%-49s", "GB/s");
  for (int level = 0; level <= static_cast<int>(DetectCpuLevel()); ++level) {
    std::printf(" %8s", CpuLevelName(static_cast<CpuLevel>(level)));
  }
  std::printf("\n");
  for (size_t bytes : {size_t{64} << 10, size_t{64} << 20}) {
    for (DType dtype : {DType::kFloat32, DType::kBfloat16, DType::kFloat16}) {
      Fold(dtype, bytes);
    }
    Copies(bytes);
  }
}
