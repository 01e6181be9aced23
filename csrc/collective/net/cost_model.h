// The alpha-beta model of links, and what is chosen by it.
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
  // Of a core, to add a byte of one rank's to another's. Counts only where
  // links decide nothing: of two ranks.
  double fold = 0.1e-9;
};

// How one of several ways is taken: by the model, or whatever it says. What is
// tuned has these numbers.
enum class Preference { kByModel, kFewHops, kFewBytes };

// What an allreduce over groups takes: `groups` has the most members of a group
// on each level (LargestGroups), or all ranks if they are one.
//
//   few hops    on the top in one shot; below, one member of each group takes
//               all
//   few bytes   in two shots on each level
double AllreduceFewHopsTime(const LinkModel& links,
                            const std::vector<int>& groups, size_t bytes);
double AllreduceFewBytesTime(const LinkModel& links,
                             const std::vector<int>& groups, size_t bytes);
// Of two, one shot has both the fewest hops and the fewest bytes.
bool AllreduceTakesFewHops(const LinkModel& links, Preference preference,
                           const std::vector<int>& groups, size_t bytes);

// The same of two ranks that are no groups. They send the same bytes either
// way: in one shot there is a hop less; in two, each adds half of them.
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

// A table for people: what is chosen for allreduces of some sizes, with the
// times that the model gives to either way.
// `what` is of these sizes: "an allreduce".
std::string ExplainAllreduce(const LinkModel& links, Preference preference,
                             const std::vector<int>& groups,
                             const std::string& what);
std::string ExplainPair(const LinkModel& links, Preference preference,
                        const std::string& what);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_COST_MODEL_H_
