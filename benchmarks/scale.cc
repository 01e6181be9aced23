// What jobs would do on hosts that are not there: docs/scale.md.
//
// Usage: scale_benchmark tables
//        scale_benchmark noise [NAME=VALUE...]
//        scale_benchmark allreduce HOSTS RANKS_PER_HOST BYTES [NAME=VALUE...]
//        scale_benchmark step HOSTS RANKS_PER_HOST BYTES [NAME=VALUE...]
//        scale_benchmark agree HOSTS RANKS_PER_HOST NAMES
//
// The first prints the tables of the page, but for that of noise, which takes
// longest and is printed by the second, also of processors that are given. The
// last prints a row of the table of agreements. The others simulate one
// allreduce, and all buckets of so many bytes of gradients, on links and
// processors of one's own (scale_settings.cc). `keras-ring bench processor`
// prints those of the machine that it runs on.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/scale_settings.h"
#include "benchmarks/simulated_step.h"
#include "csrc/testing/simulated_allreduce.h"
#include "csrc/testing/timed_controllers.h"

namespace keras_ring {
namespace {

constexpr int kRanksPerHost = 8;
constexpr int kHosts[] = {1, 8, 64, 512};
constexpr int kMaxHosts = 512;
constexpr double kGbit[] = {10, 100, 400};
constexpr int kNoisyRuns = 100;

struct Model {
  const char* name;
  size_t parameters;
  int tensors;
};
constexpr Model kModels[] = {{"ResNet-50", 25557032, 161},
                             {"VGG-16", 138357544, 32},
                             {"BERT-large", 335141888, 391}};

// What processors and memory cost; the memory is that of a host. None of it is
// measured: these are the ends of what there is, and what lies between them.
struct Processor {
  std::string name;
  double message_us;
  double ns_per_byte;  // sent or received
  double thread_gb_per_s;
  double host_gb_per_s;
};
const Processor kProcessors[] = {{"fast", 2, 0.1, 20, 320},
                                 {"middling", 5, 0.3, 12, 200},
                                 {"slow", 15, 0.6, 8, 100}};
// Of a host's memory, what the training leaves to its ranks' allreduce.
constexpr double kMemoryLeft = 0.5;

SimulatedJob JobOn(const Processor& processor, int hosts) {
  SimulatedJob job;
  job.num_hosts = hosts;
  job.ranks_per_host = kRanksPerHost;
  job.message = processor.message_us * 1e-6;
  job.send_byte = processor.ns_per_byte * 1e-9;
  job.receive_byte = job.send_byte;
  job.memory_byte = 1e-9 / processor.thread_gb_per_s;
  job.host_memory_byte = 1e-9 / (kMemoryLeft * processor.host_gb_per_s);
  return job;
}

std::string InMs(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), " %.1f ms", seconds * 1e3);
  return text;
}

void PrintSteps() {
  std::printf("| model | ranks | Gbit/s | the links' bound |");
  for (const Processor& processor : kProcessors) {
    std::printf(" %s |", processor.name.c_str());
  }
  std::printf(
      " sends of a rank | sent by a rank | memory of a rank |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Model& model : kModels) {
    for (int hosts : kHosts) {
      if (hosts == 1) continue;  // no links
      for (double gbit : kGbit) {
        Sum sum;
        std::string cells;
        for (const Processor& processor : kProcessors) {
          SimulatedJob job = JobOn(processor, hosts);
          job.host_byte = 8e-9 / gbit;
          sum = StepOf(job, model.parameters * sizeof(float));
          cells += InMs(sum.seconds) + " |";
        }
        std::printf("| %s | %d | %.0f |%s |%s %lld | %.1f MB | %zu MiB |\n",
                    model.name, hosts * kRanksPerHost, gbit,
                    InMs(sum.bound).c_str(), cells.c_str(),
                    static_cast<long long>(sum.sends), sum.bytes / 1e6,
                    sum.memory >> 20);
        std::fflush(stdout);
      }
    }
  }
}

// ResNet-50's gradients on 512 hosts, by what messages and their bytes cost.
void PrintCosts() {
  const double costs[] = {0.1, 0.3, 0.6};
  std::printf("\n| a message |");
  for (double ns : costs) std::printf(" %.1f ns/B |", ns);
  std::printf("\n|---|---|---|---|\n");
  for (double us : {2.0, 5.0, 15.0}) {
    std::printf("| %.0f us |", us);
    for (double ns : costs) {
      SimulatedJob job = JobOn(kProcessors[0], kMaxHosts);
      job.message = us * 1e-6;
      job.send_byte = job.receive_byte = ns * 1e-9;
      const Sum sum = StepOf(job, kModels[0].parameters * sizeof(float));
      std::printf("%s |", InMs(sum.seconds).c_str());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

// The same in racks of 16 hosts.
void PrintRacks() {
  std::printf(
      "\n| the links above a rack carry | ranks of a rack in a row | dealt "
      "out over the racks |\n|---|---|---|\n");
  for (double ratio : {1.0, 2.0, 4.0}) {
    std::printf("| 1 / %.0f |", ratio);
    for (bool in_order : {true, false}) {
      SimulatedJob job = JobOn(kProcessors[0], kMaxHosts);
      job.rack_hosts = 16;
      job.racks_in_order = in_order;
      job.oversubscription = ratio;
      const Sum sum = StepOf(job, kModels[0].parameters * sizeof(float));
      std::printf("%s |", InMs(sum.seconds).c_str());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

// The same with interruptions, after computation from which ranks come late.
void PrintNoise(const std::vector<SimulatedJob>& jobs,
                const std::vector<std::string>& names) {
  std::printf(
      "\n| processors | no noise | median | 99th percentile "
      "|\n|---|---|---|---|\n");
  const size_t bytes = kModels[0].parameters * sizeof(float);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const double quiet = StepOf(jobs[i], bytes).seconds;
    SimulatedJob job = jobs[i];
    job.noise.short_rate = 10;
    job.noise.long_rate = 0.1;
    job.compute = 0.1;
    const std::vector<double> noisy = Repeated(
        [&bytes](const SimulatedJob& job) {
          return StepOf(job, bytes).seconds;
        },
        job, kNoisyRuns);
    std::printf("| %s |%s |%s |%s |\n", names[i].c_str(), InMs(quiet).c_str(),
                InMs(Percentile(noisy, 50)).c_str(),
                InMs(Percentile(noisy, 99)).c_str());
    std::fflush(stdout);
  }
}

void PrintOneBucket() {
  std::printf(
      "\n| ranks | buckets as they are made | of the bound | one bucket | of "
      "the bound |\n|---|---|---|---|---|\n");
  const size_t bytes = kModels[0].parameters * sizeof(float);
  for (int hosts : kHosts) {
    if (hosts == 1) continue;
    const SimulatedJob job = JobOn(kProcessors[0], hosts);
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
    const SimulatedJob job = JobOn(kProcessors[0], hosts);
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
              static_cast<long long>(again.max_messages),
              static_cast<long long>(again.max_bytes));
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

int Simulated(int argc, char** argv, bool is_step) {
  SimulatedJob job;
  int runs = 1;
  job.num_hosts = std::atoi(argv[2]);
  job.ranks_per_host = std::atoi(argv[3]);
  const size_t bytes = std::strtoull(argv[4], nullptr, 10);
  if (!SetAll(argc, argv, 5, job, runs)) return 2;
  const auto simulate = [bytes, is_step](const SimulatedJob& job) {
    if (is_step) return StepOf(job, bytes);
    Sum sum;
    sum.Add(Simulate(job, bytes), 1);
    return sum;
  };
  const Sum first = simulate(job);
  std::vector<double> seconds = {first.seconds};
  if (runs > 1) {
    seconds = Repeated(
        [&simulate](const SimulatedJob& job) { return simulate(job).seconds; },
        job, runs);
  }
  std::printf("%.3f ms, bound %.3f ms, %lld sends",
              Percentile(seconds, 50) * 1e3, first.bound * 1e3,
              static_cast<long long>(first.sends));
  if (runs > 1) {
    std::printf(", p99 %.3f ms of %d runs", Percentile(seconds, 99) * 1e3,
                runs);
  }
  std::printf("\n");
  return 0;
}

int Noise(int argc, char** argv) {
  std::vector<SimulatedJob> jobs;
  std::vector<std::string> names;
  for (const Processor& processor : kProcessors) {
    jobs.push_back(JobOn(processor, kMaxHosts));
    names.push_back(processor.name);
  }
  if (argc > 2) {
    SimulatedJob job = JobOn(kProcessors[0], kMaxHosts);
    int runs = 1;
    if (!SetAll(argc, argv, 2, job, runs)) return 2;
    job.host_memory_byte /= kMemoryLeft;
    jobs.push_back(job);
    names.push_back("those that were measured");
  }
  PrintNoise(jobs, names);
  return 0;
}

int Tables() {
  std::printf("## Allreduce of all gradients\n\n");
  PrintSteps();
  std::printf("\n## What messages and bytes cost\n");
  PrintCosts();
  std::printf("\n## Racks\n");
  PrintRacks();
  std::printf("\n## ResNet-50's gradients in one bucket, at 100 Gbit/s\n");
  PrintOneBucket();
  std::printf("\n## Allreduce of one tensor, at 100 Gbit/s\n");
  PrintSmall();
  std::printf("\n## Agreement\n");
  PrintAgreements();
  return 0;
}

}  // namespace
}  // namespace keras_ring

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if ((command == "allreduce" || command == "step") && argc > 4) {
    return keras_ring::Simulated(argc, argv, command == "step");
  }
  if (command == "agree" && argc == 5) return keras_ring::Agreement(argv);
  if (command == "tables") return keras_ring::Tables();
  if (command == "noise") return keras_ring::Noise(argc, argv);
  std::fprintf(stderr,
               "usage: %s tables | noise [NAME=VALUE...] | (allreduce | step) "
               "HOSTS RANKS_PER_HOST BYTES [NAME=VALUE...] | agree HOSTS "
               "RANKS_PER_HOST NAMES\n",
               argv[0]);
  return 2;
}
