#include "benchmarks/simulated_step.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "csrc/control/bucket_scheduler.h"

namespace keras_ring {

SimulatedTime Simulate(const SimulatedJob& job, size_t bytes) {
  const SimulatedTime time = SimulateAllreduce(job, bytes);
  if (!time.ended) {
    std::fprintf(stderr, "the plans of %d hosts stand still\n", job.num_hosts);
    std::exit(1);
  }
  return time;
}

Sum StepOf(SimulatedJob job, size_t bytes) {
  const BucketSchedulerOptions schedule;
  Sum sum;
  const auto add = [&job, &sum](size_t bucket, int64_t times) {
    sum.Add(Simulate(job, bucket), times);
    job.compute = 0;
    job.seed += 1000003;  // other noise
  };
  for (int i = 0; i < schedule.max_outstanding && bytes > 0; ++i) {
    const size_t planned =
        std::min(bytes, static_cast<size_t>(schedule.planned_bucket));
    add(planned, 1);
    bytes -= planned;
  }
  const size_t most = schedule.fusion_threshold;
  if (bytes >= most) add(most, bytes / most);
  if (bytes % most > 0) add(bytes % most, 1);
  return sum;
}

std::vector<double> Repeated(
    const std::function<double(const SimulatedJob&)>& simulate,
    const SimulatedJob& job, int runs) {
  std::vector<double> seconds(runs);
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned i = 0; i < processors; ++i) {
    threads.emplace_back([&] {
      for (int run = next++; run < runs; run = next++) {
        SimulatedJob other = job;
        other.seed = run + 1;
        seconds[run] = simulate(other);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seconds;
}

double Percentile(std::vector<double> values, int percent) {
  std::sort(values.begin(), values.end());
  const size_t last = values.size() - 1;
  return values[(last * percent + 50) / 100];
}

}  // namespace keras_ring
