// Options: everything a job is told through its environment.
//
// The only place that reads the environment. A value that does not parse is an
// error that names the variable; nothing is guessed.
#ifndef KERAS_RING_BASE_OPTIONS_H_
#define KERAS_RING_BASE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/logging.h"
#include "csrc/base/status.h"

namespace keras_ring {

struct Options {
  // The rank of this process in the job. Set by the launcher; without one, a
  // job of size 1.
  int rank = 0;
  int size = 1;
  std::string rendezvous_host;
  uint16_t rendezvous_port = 0;
  int rendezvous_fd = -1;
  // Of an elastic job: the socket on which the launcher says who its members
  // are; else -1.
  int membership_fd = -1;
  int joins_as = -1;
  std::string job_key;  // hexadecimal; secret
  std::string host_id;  // empty: the host's own identity
  std::string interface_address;
  // Ports on which ranks listen; any if `port_low` is 0.
  uint16_t port_low = 0;
  uint16_t port_high = 0;
  // The number of this job among those that the process takes part in one after
  // another.
  int64_t generation = 0;

  // Behaviour.
  int64_t fusion_threshold = int64_t{128} << 20;  // bytes
  int64_t planned_bucket = int64_t{16} << 20;     // bytes
  double cycle_time_ms = 0.0;
  int64_t cache_capacity = 65536;    // names
  double stall_check_time = 60.0;    // seconds; 0: never
  double stall_shutdown_time = 0.0;  // seconds; 0: never
  double heartbeat_timeout = 30.0;   // seconds
  double start_timeout = 60.0;       // seconds; more for large jobs
  double shutdown_timeout = 5.0;     // seconds
  LogLevel log_level = LogLevel::kWarning;
  std::string collective = "auto";           // or the name of a backend
  std::string gpu_collective = "auto";       // likewise, for tensors on devices
  std::string cuda_driver = "libcuda.so.1";  // its library
  std::string nccl = "libnccl.so.2";         // likewise
  // The handles of mpi4py's MPI as text, or empty: see MpiSettings.
  std::string mpi;
  // Between hosts: "auto", or the name of an algorithm.
  std::string allreduce = "auto";
  std::string broadcast = "auto";
  std::string allgather = "auto";
  std::string reducescatter = "auto";
  std::string alltoall = "auto";
  bool deterministic = false;
  std::string helper_thread = "auto";
  bool zero_copy = true;
  bool tls = false;
  // Used by rank 0 only: see docs/autotune.md.
  bool autotune = false;
  std::string autotune_log;    // empty: none
  std::string autotune_cache;  // empty: the user's own; "off": none
  int64_t autotune_warmup_samples = 3;
  int64_t autotune_steps_per_sample = 10;
  int64_t autotune_max_samples = 20;
  // For the flight logs. Empty: a directory of the job; "off": none.
  std::string flight_directory;
  // For the status page. Empty: a directory of the user; "off": none.
  std::string status_directory;
  // The file into which the traces of all ranks are merged; empty: none.
  std::string timeline;
  bool timeline_mark_cycles = false;

  // Reads KERAS_RING_* through `lookup` (a null result: not set).
  using Lookup = std::function<std::optional<std::string>(const std::string&)>;
  static Result<Options> Parse(const Lookup& lookup);
  // Applies Parse to `settings`, keyed by variable, on top of the environment.
  static Result<Options> FromEnvironment(
      const std::map<std::string, std::string>& settings = {});

  // "name=value" for each option that must be equal on all ranks.
  std::vector<std::string> Fingerprint() const;
  // Returns the value of a variable as text; empty if it is secret.
  Result<std::string> Show(const std::string& variable) const;
};

// One variable, for the generated documentation.
struct OptionDescription {
  std::string variable;
  std::string type;  // "bytes", "seconds", ...
  std::string default_value;
  std::string meaning;
};
std::vector<OptionDescription> DescribeOptions();

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_OPTIONS_H_
