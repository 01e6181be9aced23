// CpuQuota: how much CPU time the system gives to this process and its group.
#ifndef KERAS_RING_BASE_CPU_QUOTA_H_
#define KERAS_RING_BASE_CPU_QUOTA_H_

#include <cstdint>
#include <optional>
#include <string>

namespace keras_ring {

// A container with two of a host's 64 cores may often run on all of them, but
// not for long: once it has used up its quota, all its threads are stopped for
// the rest of the period. So the number of cores that a process may run on says
// little.
struct CpuQuota {
  double cores = 0.0;
  // Identifies the control group that has the quota, whose processes share it.
  uint64_t group = 0;
};

// Returns the tightest quota of the control groups (of version 1 or 2) that
// this process is in; nothing if none has one. `root`: prefix of the file
// system, for tests.
std::optional<CpuQuota> ReadCpuQuota(const std::string& root = "");

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_CPU_QUOTA_H_
