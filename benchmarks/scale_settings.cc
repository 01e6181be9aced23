#include "benchmarks/scale_settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

namespace keras_ring {
namespace {

using Setting = std::function<void(double)>;

// What may be given on the command line, and what it sets.
std::map<std::string, Setting> Settings(SimulatedJob& job, int& runs) {
  const auto scaled = [](double& field, double unit) {
    return [&field, unit](double value) { field = value * unit; };
  };
  const auto inverse = [](double& field, double unit) {
    return [&field, unit](double value) { field = unit / value; };
  };
  return {
      // Links.
      {"gbit_per_s", inverse(job.host_byte, 8e-9)},
      {"latency_us", scaled(job.latency, 1e-6)},
      {"rack_hosts",
       [&job](double value) { job.rack_hosts = static_cast<int>(value); }},
      // 0: a rack's hosts are no neighbours by their numbers.
      {"racks_in_order",
       [&job](double value) { job.racks_in_order = value != 0; }},
      {"oversubscription", scaled(job.oversubscription, 1)},
      // Processors: what `keras-ring bench processor` prints.
      {"message_us", scaled(job.message, 1e-6)},
      {"send_ns_per_byte", scaled(job.send_byte, 1e-9)},
      {"receive_ns_per_byte", scaled(job.receive_byte, 1e-9)},
      {"memory_gb_per_s", inverse(job.memory_byte, 1e-9)},
      // Of which the training may take a part.
      {"host_memory_gb_per_s", inverse(job.host_memory_byte, 1e-9)},
      // Processors that all ranks share; 0: each has its own.
      {"processors",
       [&job](double value) {
         job.shared_processors = static_cast<int>(value);
       }},
      // 1: each rank has a thread for its streams.
      {"io_threads", [&job](double value) { job.io_threads = value != 0; }},
      // 0: none has one for its host's memory.
      {"helper_thread",
       [&job](double value) { job.helper_thread = value != 0; }},
      // Noise: interruptions of a processor per second, and computation from
      // which ranks come.
      {"short_per_s", scaled(job.noise.short_rate, 1)},
      {"short_us", scaled(job.noise.short_seconds, 1e-6)},
      {"long_per_s", scaled(job.noise.long_rate, 1)},
      {"long_us", scaled(job.noise.long_seconds, 1e-6)},
      {"compute_ms", scaled(job.compute, 1e-3)},
      // With other noise each; prints the median and the 99th percentile.
      {"runs", [&runs](double value) { runs = static_cast<int>(value); }},
  };
}

}  // namespace

bool SetAll(int argc, char** argv, int first, SimulatedJob& job, int& runs) {
  const std::map<std::string, Setting> settings = Settings(job, runs);
  for (int i = first; i < argc; ++i) {
    const char* equals = std::strchr(argv[i], '=');
    const auto setting =
        equals == nullptr
            ? settings.end()
            : settings.find(std::string(argv[i], equals - argv[i]));
    if (setting == settings.end()) {
      std::fprintf(stderr, "no such setting: %s; there are", argv[i]);
      for (const auto& [name, set] : settings) {
        std::fprintf(stderr, " %s", name.c_str());
      }
      std::fprintf(stderr, "\n");
      return false;
    }
    setting->second(std::atof(equals + 1));
  }
  return true;
}

}  // namespace keras_ring
