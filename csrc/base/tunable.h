// Tunable: settings that can be changed while a job runs, on all ranks at the
// same point of the sequence of responses.
#ifndef KERAS_RING_BASE_TUNABLE_H_
#define KERAS_RING_BASE_TUNABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace keras_ring {

// The values travel on the wire: append, never renumber.
enum class Tunable : uint8_t {
  kFusionThreshold = 0,  // bytes
  kLinger,               // microseconds
  kPlannedBucket,        // bytes
  // Between hosts.
  kAllreducePreference,  // a number of Preference
  kExchangeBytes,
  kOneLaneBytes,
  // Within a host, over shared memory.
  kPartBytes,
  kOneShotBytes,
  kDirectPartBytes,
};
inline constexpr int kNumTunables = 9;
// A petabyte, or thirty years.
inline constexpr int64_t kMaxTunedValue = int64_t{1} << 50;

// "fusion_threshold", ...: the names that users see.
const char* TunableName(Tunable tunable);
// "bytes", "microseconds", or "" if the number stands for a choice.
const char* TunableUnit(Tunable tunable);

// The current value of a tunable in one job, and its bounds. Values outside of
// them are not worth trying.
struct TunableRange {
  Tunable tunable = Tunable::kFusionThreshold;
  int64_t value = 0;
  int64_t low = 0;
  int64_t high = kMaxTunedValue;
};

// Returns the range with that name. The error lists the names there are.
Result<TunableRange> FindTunable(const std::vector<TunableRange>& ranges,
                                 const std::string& name);
// Returns OK if the tunable may have this value.
Status CheckTuned(const TunableRange& range, int64_t value);

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_TUNABLE_H_
