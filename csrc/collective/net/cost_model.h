// The alpha-beta model of links, and the choices made by it.
//
//   a message of b bytes takes   latency + message + b * byte
//
// from the call that sends it until it can be used, and keeps either end busy
// for the last two. Time is in seconds. All functions are pure.
//
//   R. W. Hockney, "The communication challenge for MPP: Intel Paragon and
//   Meiko CS-2", Parallel Computing 20, 1994
#ifndef KERAS_RING_COLLECTIVE_NET_COST_MODEL_H_
#define KERAS_RING_COLLECTIVE_NET_COST_MODEL_H_

#include <cstddef>
#include <string>
#include <vector>

namespace keras_ring {

struct LinkModel {
  double latency = 20e-6;
  double message = 3e-6;
  double byte = 0.8e-9;  // 10 Gbit/s
  // The time of a core to add a byte of one rank's values to another's. It
  // matters only for two ranks, where both ways send the same bytes.
  double fold = 0.1e-9;
};

// How to choose between two algorithms: by the model, or always the same one.
// The tunable has these numbers as values.
enum class Preference { kByModel, kFewHops, kFewBytes };

// Return the time of an allreduce over groups: `groups` has the size of the
// largest group on each level (LargestGroups), or of all ranks if they are one.
//
//   few hops    on the top in one shot; below, one member of each group takes
//               all
//   few bytes   in two shots on each level
double AllreduceFewHopsTime(const LinkModel& links,
                            const std::vector<int>& groups, size_t bytes);
double AllreduceFewBytesTime(const LinkModel& links,
                             const std::vector<int>& groups, size_t bytes);
// For two ranks, one shot has both the fewest hops and the fewest bytes.
bool AllreduceTakesFewHops(const LinkModel& links, Preference preference,
                           const std::vector<int>& groups, size_t bytes);

// The same for two ranks that form no groups. They send the same bytes either
// way: one shot has one hop less; in two shots, each adds half of them.
double PairFewHopsTime(const LinkModel& links, size_t bytes);
double PairFewBytesTime(const LinkModel& links, size_t bytes);
bool PairTakesFewHops(const LinkModel& links, Preference preference,
                      size_t bytes);

//   few hops    the root sends to all
//   few bytes   from rank to rank, in segments
double BroadcastFewHopsTime(const LinkModel& links, int size, size_t bytes);
double BroadcastFewBytesTime(const LinkModel& links, int size, size_t bytes,
                             size_t segment);
bool BroadcastTakesFewHops(const LinkModel& links, Preference preference,
                           int size, size_t bytes, size_t segment);

// Returns a table for people: the choice for allreduces of some sizes, with the
// times that the model predicts for both algorithms. `what` has these sizes:
// "an allreduce".
std::string ExplainAllreduce(const LinkModel& links, Preference preference,
                             const std::vector<int>& groups,
                             const std::string& what);
std::string ExplainPair(const LinkModel& links, Preference preference,
                        const std::string& what);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_COST_MODEL_H_
