// RankActivity: what a rank reports that it is doing while others wait for it.
#ifndef KERAS_RING_CONTROL_RANK_ACTIVITY_H_
#define KERAS_RING_CONTROL_RANK_ACTIVITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/control/flight_recorder.h"

namespace keras_ring {

struct RankActivity {
  // "waits for allreduce 'loss', for 60 s; before that ..."
  std::string text;
  // The names that it waits for; a few at most.
  std::vector<std::string> waits;
  // For each name in the query: whether it is among its last operations.
  std::vector<bool> knows;
};

// Limits of the text about a rank, and of the names in a query.
inline constexpr size_t kMaxActivityBytes = 2048;
inline constexpr size_t kMaxActivityNames = 16;

// Describes a rank with these `records`, oldest first, for a query about
// `names`. `program`: what its program is doing, if known: see ProgramActivity.
RankActivity DescribeActivity(const std::vector<FlightRecord>& records,
                              const std::vector<std::string>& names,
                              TimePoint now, const std::string& program = "");

// "waits for its input pipeline, for 3 s", according to counters; "" if the
// program computes.
std::string ProgramActivity(const Counters& counters, TimePoint now);

// "3.25 s"
std::string SecondsText(Duration duration);

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_RANK_ACTIVITY_H_
