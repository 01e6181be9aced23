// Times the reduction kernels alone, against the device's own copy:
// benchmarks/gpu_kernels [PTX]...
//
// One launch reads `ranks` arrays and writes as many, which lie in one memory.
// PTX: files to compare with the kernels of this build.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/must.h"
#include "csrc/cuda/gpu.h"
#include "csrc/cuda/kernels/kernel_set.h"
#include "csrc/testing/fake_cuda.h"

namespace keras_ring::cuda {
namespace {

constexpr int kLaunches = 20;

// Median seconds of one of `launch`.
template <typename Launch>
double Time(const Driver& driver, Stream stream, Launch launch) {
  std::vector<double> times;
  for (int round = 0; round < 6; ++round) {
    Must(KR_CUDA(driver, cuStreamSynchronize, stream));
    const double began = Now();
    for (int i = 0; i < kLaunches; ++i) launch();
    Must(KR_CUDA(driver, cuStreamSynchronize, stream));
    if (round > 0) times.push_back((Now() - began) / kLaunches);
  }
  return Median(std::move(times));
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void Main(const std::vector<std::string>& files) {
  const Driver& driver = TestedDriver();
  const auto gpu = Must(Gpu::Open(driver, 0));
  const Gpu::Current current(*gpu);
  const OwnStream stream = Must(OwnStream::Create(gpu));
  constexpr int kMost = 8;
  const size_t largest = TestsRealDriver() ? size_t{256} << 20 : 1 << 16;
  std::vector<void*> arrays;
  for (int i = 0; i < kMost; ++i) {
    arrays.push_back(Must(gpu->Allocate(largest)));
  }
  const double copy = Time(driver, stream.get(), [&] {
    Must(KR_CUDA(driver, cuMemcpyDtoDAsync, ToDevice(arrays[0]),
                 ToDevice(arrays[1]), largest, stream.get()));
  });
  const double bandwidth = 2.0 * static_cast<double>(largest) / copy;
  std::printf("a copy: %.0f GB/s\n", bandwidth / 1e9);
  std::vector<std::string> sources = {KernelsPtx()};
  for (const std::string& file : files) sources.push_back(ReadFile(file));
  for (size_t source = 0; source < sources.size(); ++source) {
    const double began = Now();
    auto kernels = Must(KernelSet::Load(gpu, sources[source]));
    std::printf("%s, loaded in %.0f ms\n",
                source == 0 ? "this build" : files[source - 1].c_str(),
                (Now() - began) * 1e3);
    for (const char* kernel :
         {"fold_float32", "fold_bfloat16", "fold_float32_as_bfloat16"}) {
      const long long element = kernel[5] == 'f' ? 4 : 2;
      for (size_t bytes : {largest >> 8, largest >> 4, largest}) {
        std::printf("%-26s %10zu B ", kernel, bytes);
        for (int ranks : {1, 2, 4, 8}) {
          FoldArguments args = {};
          for (int i = 0; i < ranks; ++i) {
            args.only.inputs[i] = args.only.outputs[i] = arrays[i];
          }
          args.only.count = static_cast<long long>(bytes) / element;
          args.only.aligned = 1;
          args.num_rows = 1;
          args.num_inputs = args.num_outputs = ranks;
          args.op = kFoldSum;
          args.num_tiles = TilesOf(static_cast<long long>(bytes));
          args.prescale = args.postscale = 1.0;
          args.divisor = ranks;
          const double took = Time(driver, stream.get(), [&] {
            Must(kernels->Fold(kernel, args, stream.get()));
          });
          const double moved = 2.0 * ranks * static_cast<double>(bytes);
          std::printf(" %2d: %8.1f us %3.0f%%", ranks, took * 1e6,
                      100 * moved / took / bandwidth);
        }
        std::printf("\n");
      }
    }
    std::fflush(stdout);
  }
  for (void* array : arrays) gpu->Free(array);
}

}  // namespace
}  // namespace keras_ring::cuda

int main(int argc, char** argv) {
  keras_ring::cuda::Main({argv + 1, argv + argc});
  return 0;
}
