// The core alone: queue, negotiation and collective, without TensorFlow.
//
//   make test-cpp   # builds it
//   keras-ring run -np 2 --
//     build/core/benchmarks/core_benchmark [repetitions] [bytes...]
//
// Each line: bytes, then the median, 10th and 90th percentile of the time from
// Enqueue to completion in microseconds, as rank 0 saw it, and what the phases
// took of it on average.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/base/options.h"
#include "csrc/runtime/process_arena.h"
#include "csrc/runtime/runtime.h"
#include "csrc/runtime/runtime_factory.h"

namespace {

using namespace keras_ring;  // NOLINT: a program of one file

class Gate {
 public:
  void Open(const Status& status) {
    MutexLock lock(mutex_);
    status_ = status;
    open_ = true;
    changed_.NotifyAll();
  }
  Status Await() {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this] { return open_; });
    return status_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ = false;
  Status status_;
};

Request MaxOf(int64_t count) {
  Request request;
  request.name = "values";
  request.op = ReduceOp::kMax;
  request.tensors = {TensorSpec{DType::kFloat32, {count}}};
  return request;
}

// In the arena, so that large ones are read where they lie.
struct Tensor {
  Tensor(size_t bytes, float value)
      : data(static_cast<float*>(ProcessArena()->Allocate(bytes))),
        count(bytes / sizeof(float)),
        request(std::make_shared<const Request>(MaxOf(count))) {
    std::fill(data, data + count, value);
  }
  ~Tensor() { ProcessArena()->Free(data); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  float* const data;
  const int64_t count;
  const RequestPtr request;
};

Status Allreduce(Runtime& runtime, const Tensor& values) {
  Gate gate;
  TensorEntry entry;
  entry.request = values.request;
  entry.inputs = {values.data};
  entry.outputs = {values.data};
  entry.completion =
      Completion([&gate](const Status& status) { gate.Open(status); });
  KR_RETURN_IF_ERROR(runtime.Enqueue(std::move(entry)));
  return gate.Await();
}

// Name and nanoseconds.
using Phases = std::vector<std::pair<const char*, double>>;

Phases PhasesOf(const Counters& counters) {
  auto value = [](const Counters::Count& count) {
    return static_cast<double>(count.load());
  };
  return {{"negotiate", value(counters.negotiate_ns)},
          {"queue", value(counters.queue_ns)},
          {"wait", value(counters.wait_ns)},
          {"pack", value(counters.pack_ns)},
          {"reduce", value(counters.reduce_ns)},
          {"unpack", value(counters.unpack_ns)},
          {"callback", value(counters.callback_ns)}};
}

Status Run(int repetitions, const std::vector<size_t>& sizes) {
  KR_ASSIGN_OR_RETURN(Options options, Options::FromEnvironment());
  KR_RETURN_IF_ERROR(CreateProcessArena(options.size));
  KR_ASSIGN_OR_RETURN(std::shared_ptr<ProcessSets> sets,
                      CreateJob(options, {}, ProcessArena()));
  const std::shared_ptr<Runtime> runtime = sets->job();
  const float expected = static_cast<float>(options.size);
  for (size_t bytes : sizes) {
    Tensor values(bytes, options.rank + 1.0f);
    std::vector<double> times;
    const Phases before = PhasesOf(runtime->counters());
    for (int i = 0; i < repetitions; ++i) {
      const auto began = std::chrono::steady_clock::now();
      KR_RETURN_IF_ERROR(Allreduce(*runtime, values));
      times.push_back(std::chrono::duration<double, std::micro>(
                          std::chrono::steady_clock::now() - began)
                          .count());
      if (values.data[0] != expected ||
          values.data[values.count - 1] != expected) {
        return InternalError("a wrong result");
      }
    }
    std::sort(times.begin(), times.end());
    if (options.rank == 0) {
      std::printf("%10zu B %10.2f us (%.2f %.2f)", bytes,
                  times[times.size() / 2], times[times.size() / 10],
                  times[times.size() * 9 / 10]);
      const Phases after = PhasesOf(runtime->counters());
      for (size_t i = 0; i < after.size(); ++i) {
        std::printf("  %s %.2f", after[i].first,
                    (after[i].second - before[i].second) / repetitions / 1e3);
      }
      std::printf("\n");
    }
  }
  sets->Shutdown("");
  return OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::vector<size_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty())
    sizes = {4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20};
  const keras_ring::Status status = Run(std::max(repetitions, 1), sizes);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
