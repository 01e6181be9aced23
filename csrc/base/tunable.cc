#include "csrc/base/tunable.h"

namespace keras_ring {
namespace {

struct Row {
  const char* name;
  const char* unit;
};

// Indexed by the number of the tunable.
constexpr Row kRows[] = {
    {"fusion_threshold", "bytes"},  {"linger", "microseconds"},
    {"planned_bucket", "bytes"},    {"allreduce_preference", ""},
    {"exchange_bytes", "bytes"},    {"one_lane_bytes", "bytes"},
    {"part_bytes", "bytes"},        {"one_shot_bytes", "bytes"},
    {"direct_part_bytes", "bytes"},
};
static_assert(sizeof(kRows) / sizeof(kRows[0]) == kNumTunables);

const Row& RowOf(Tunable tunable) { return kRows[static_cast<int>(tunable)]; }

}  // namespace

const char* TunableName(Tunable tunable) { return RowOf(tunable).name; }
const char* TunableUnit(Tunable tunable) { return RowOf(tunable).unit; }

Result<TunableRange> FindTunable(const std::vector<TunableRange>& ranges,
                                 const std::string& name) {
  std::string names;
  for (const TunableRange& range : ranges) {
    if (name == TunableName(range.tunable)) return range;
    if (!names.empty()) names += ", ";
    names += TunableName(range.tunable);
  }
  return InvalidArgumentError("this job has no '" + name +
                              "' to tune; it has " + names);
}

Status CheckTuned(const TunableRange& range, int64_t value) {
  if (range.low <= value && value <= range.high) return OkStatus();
  return InvalidArgumentError(
      std::string(TunableName(range.tunable)) + " cannot be " +
      std::to_string(value) + ": expected a number from " +
      std::to_string(range.low) + " to " + std::to_string(range.high));
}

}  // namespace keras_ring
