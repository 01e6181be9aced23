// What jobs would do on hosts that are not there: docs/scale.md.
//
// Usage: scale_benchmark tables
//        scale_benchmark allreduce HOSTS RANKS_PER_HOST BYTES [NAME=VALUE...]
//        scale_benchmark agree HOSTS RANKS_PER_HOST NAMES
//
// The first prints the tables of the page, the last a row of that of
// agreements; the second simulates one allreduce on links of one's own:
// gbit_per_s, latency_us, message_us, copy_gb_per_s, memory_gb_per_s,
// processors (that all ranks share; 0: each has its own), io_threads (1: each
// rank has one for its streams), helper_thread (0: none has one for its host's
// memory).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/control/bucket_scheduler.h"
#include "csrc/testing/simulated_allreduce.h"
#include "csrc/testing/timed_controllers.h"

namespace keras_ring {
namespace {

constexpr int kRanksPerHost = 8;
constexpr int kHosts[] = {1, 8, 64, 512};
constexpr double kGbit[] = {10, 100, 400};

struct Model {
  const char* name;
  size_t parameters;
  int tensors;
};
constexpr Model kModels[] = {{"ResNet-50", 25557032, 161},
                             {"VGG-16", 138357544, 32},
                             {"BERT-large", 335141888, 391}};

struct Sum {
  double seconds = 0;
  double bound = 0;
  int64_t sends = 0;
  int64_t bytes = 0;
  size_t memory = 0;

  void Add(const SimulatedTime& time, int64_t times) {
    seconds += times * time.seconds;
    bound += times * time.bound;
    sends += times * time.sends;
    bytes += times * time.bytes;
    memory = std::max(memory, time.memory);
  }
};

SimulatedTime Simulate(const SimulatedJob& job, size_t bytes) {
  const SimulatedTime time = SimulateAllreduce(job, bytes);
  if (!time.ended) {
    std::fprintf(stderr, "the plans of %d hosts stand still\n", job.num_hosts);
    std::exit(1);
  }
  return time;
}

// Bucket after bucket, as the coordinator makes them of gradients that come
// faster than they are reduced: planned ones at first, as soon as each is
// complete, and then larger ones, of what has become complete meanwhile.
Sum StepOf(const SimulatedJob& job, size_t bytes) {
  const BucketSchedulerOptions schedule;
  Sum sum;
  for (int i = 0; i < schedule.max_outstanding && bytes > 0; ++i) {
    const size_t planned =
        std::min(bytes, static_cast<size_t>(schedule.planned_bucket));
    sum.Add(Simulate(job, planned), 1);
    bytes -= planned;
  }
  const size_t most = schedule.fusion_threshold;
  if (bytes >= most) sum.Add(Simulate(job, most), bytes / most);
  if (bytes % most > 0) sum.Add(Simulate(job, bytes % most), 1);
  return sum;
}

void PrintSteps() {
  std::printf(
      "| model | ranks | Gbit/s | allreduce | of the links' bound | sends of a "
      "rank | sent by a rank | memory of a rank "
      "|\n|---|---|---|---|---|---|---|"
      "---|\n");
  for (const Model& model : kModels) {
    for (int hosts : kHosts) {
      if (hosts == 1) continue;  // no links
      for (double gbit : kGbit) {
        SimulatedJob job;
        job.num_hosts = hosts;
        job.ranks_per_host = kRanksPerHost;
        job.host_byte = 8e-9 / gbit;
        const Sum sum = StepOf(job, model.parameters * sizeof(float));
        std::printf(
            "| %s | %d | %.0f | %.1f ms | %.2f | %lld | %.1f MB | %zu "
            "MiB |\n",
            model.name, hosts * kRanksPerHost, gbit, sum.seconds * 1e3,
            sum.seconds / sum.bound, static_cast<long long>(sum.sends),
            sum.bytes / 1e6, sum.memory >> 20);
        std::fflush(stdout);
      }
    }
  }
}

void PrintOneBucket() {
  std::printf(
      "\n| ranks | buckets as they are made | of the bound | one bucket | of "
      "the bound |\n|---|---|---|---|---|\n");
  const size_t bytes = kModels[0].parameters * sizeof(float);
  for (int hosts : kHosts) {
    if (hosts == 1) continue;
    SimulatedJob job;
    job.num_hosts = hosts;
    job.ranks_per_host = kRanksPerHost;
    const Sum some = StepOf(job, bytes);
    const SimulatedTime one = Simulate(job, bytes);
    std::printf("| %d | %.1f ms | %.2f | %.1f ms | %.2f |\n",
                hosts * kRanksPerHost, some.seconds * 1e3,
                some.seconds / some.bound, one.seconds * 1e3,
                one.seconds / one.bound);
  }
}

void PrintSmall() {
  std::printf("\n| ranks | 4 B | 64 KiB | 1 MiB |\n|---|---|---|---|\n");
  for (int hosts : kHosts) {
    if (hosts == 1) continue;
    SimulatedJob job;
    job.num_hosts = hosts;
    job.ranks_per_host = kRanksPerHost;
    std::printf("| %d |", hosts * kRanksPerHost);
    for (size_t bytes : {size_t{4}, size_t{64} << 10, size_t{1} << 20}) {
      std::printf(" %.3f ms |", Simulate(job, bytes).seconds * 1e3);
    }
    std::printf("\n");
  }
}

std::vector<std::string> HostIds(int hosts, int ranks_per_host) {
  std::vector<std::string> ids;
  for (int rank = 0; rank < hosts * ranks_per_host; ++rank) {
    ids.push_back("host " + std::to_string(rank / ranks_per_host));
  }
  return ids;
}

// A first agreement on so many names, and the quickest of `times` on the same:
// this process has the caches of one, for all ranks.
void PrintAgreement(TimedControllers& job, size_t ranks, int count, int times) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back("gradients/" + std::to_string(count) + "/" +
                    std::to_string(i));
  }
  const auto first = job.Agree(names);
  TimedControllers::Agreement again = job.Agree(names);
  for (int step = 1; step < times; ++step) {
    const auto next = job.Agree(names);
    if (!next.error.ok() || next.seconds < again.seconds) again = next;
  }
  if (!first.error.ok() || !again.error.ok()) {
    std::fprintf(stderr, "%s\n", again.error.ToString().c_str());
    std::exit(1);
  }
  std::printf("| %zu | %d | %.2f ms | %.3f ms | %.3f ms | %lld | %lld |\n",
              ranks, count, first.seconds * 1e3, again.seconds * 1e3,
              again.busiest_seconds * 1e3,
              static_cast<long long>(again.most_messages),
              static_cast<long long>(again.most_bytes));
  std::fflush(stdout);
}

void PrintAgreements() {
  std::printf(
      "\n| ranks | names | first time | again | busiest controller | its "
      "messages | most bytes sent |\n"
      "|---|---|---|---|---|---|---|\n");
  for (int hosts : kHosts) {
    const std::vector<std::string> ids = HostIds(hosts, kRanksPerHost);
    TimedControllers job(ids, ControlLinks());
    for (int count : {1, 161}) PrintAgreement(job, ids.size(), count, 7);
  }
}

int Agreement(char** argv) {
  const std::vector<std::string> ids =
      HostIds(std::atoi(argv[2]), std::atoi(argv[3]));
  TimedControllers job(ids, ControlLinks());
  PrintAgreement(job, ids.size(), std::atoi(argv[4]), 50);
  return 0;
}

int Allreduce(int argc, char** argv) {
  SimulatedJob job;
  job.num_hosts = std::atoi(argv[2]);
  job.ranks_per_host = std::atoi(argv[3]);
  const std::map<std::string, std::pair<double*, double>> inverse = {
      {"gbit_per_s", {&job.host_byte, 8e-9}},
      {"copy_gb_per_s", {&job.copy_byte, 1e-9}},
      {"memory_gb_per_s", {&job.memory_byte, 1e-9}}};
  for (int i = 5; i < argc; ++i) {
    const char* equals = std::strchr(argv[i], '=');
    if (equals == nullptr) return 2;
    const std::string name(argv[i], equals - argv[i]);
    const double value = std::atof(equals + 1);
    if (inverse.count(name) > 0) {
      const auto& [field, one] = inverse.at(name);
      *field = one / value;
    } else if (name == "latency_us") {
      job.latency = value * 1e-6;
    } else if (name == "message_us") {
      job.message = value * 1e-6;
    } else if (name == "processors") {
      job.shared_processors = static_cast<int>(value);
    } else if (name == "io_threads") {
      job.io_threads = value != 0;
    } else if (name == "helper_thread") {
      job.helper_thread = value != 0;
    } else {
      std::fprintf(stderr, "no such setting: %s\n", name.c_str());
      return 2;
    }
  }
  const SimulatedTime time = Simulate(job, std::strtoull(argv[4], nullptr, 10));
  std::printf("%.3f ms, bound %.3f ms, %lld sends\n", time.seconds * 1e3,
              time.bound * 1e3, static_cast<long long>(time.sends));
  return 0;
}

}  // namespace
}  // namespace keras_ring

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "allreduce" && argc > 4) {
    return keras_ring::Allreduce(argc, argv);
  }
  if (command == "agree" && argc == 5) return keras_ring::Agreement(argv);
  if (command != "tables") {
    std::fprintf(stderr,
                 "usage: %s tables | allreduce HOSTS RANKS_PER_HOST BYTES "
                 "[NAME=VALUE...] | agree HOSTS RANKS_PER_HOST NAMES\n",
                 argv[0]);
    return 2;
  }
  std::printf("## Allreduce of all gradients\n\n");
  keras_ring::PrintSteps();
  std::printf("\n## ResNet-50's gradients in one bucket, at 100 Gbit/s\n");
  keras_ring::PrintOneBucket();
  std::printf("\n## Allreduce of one tensor, at 100 Gbit/s\n");
  keras_ring::PrintSmall();
  std::printf("\n## Agreement\n");
  keras_ring::PrintAgreements();
}
