// Decision: one thing that every rank does, in the order of the sequence.
// Command: the same, as one rank carries it out.
#ifndef KERAS_RING_CONTROL_DECISION_H_
#define KERAS_RING_CONTROL_DECISION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/tunable.h"
#include "csrc/control/joined_ranks.h"
#include "csrc/control/last_ready.h"
#include "csrc/control/request.h"
#include "csrc/control/step_plan.h"

namespace keras_ring {

// Run these as one bucket.
struct ExecuteDecision {
  std::vector<uint64_t> slots;  // those in the cache, ascending
  std::vector<std::shared_ptr<const Response>> uncached;  // the rest, in full
  LastReady last;                                         // of all these
};

// Finish these names with `status`.
struct FailDecision {
  std::vector<std::string> names;
  Status status;
};

// The job is over: finish everything with `status`.
struct EndDecision {
  Status status;
};

// From now on steps use this plan.
struct PlanDecision {
  StepPlan plan;
};

// These ranks have joined, ascending; the last rank to join ends all joins.
struct JoinDecision {
  std::vector<int32_t> ranks;
};

// From now on the tunable has this value, from 0 to kMaxTunedValue.
struct TuneDecision {
  Tunable tunable = Tunable::kFusionThreshold;
  int64_t value = 0;
};

// Ends this generation of the job after the decisions before it: ranks go on as
// another generation, which is numbered `generation`.
struct ReconfigureDecision {
  uint64_t generation = 0;
};

// The index travels on the wire: append, never reorder.
using Decision =
    std::variant<ExecuteDecision, FailDecision, EndDecision, PlanDecision,
                 JoinDecision, TuneDecision, ReconfigureDecision>;

struct Numbered {
  uint64_t sequence = 0;  // of the decision, from 1
};

struct ExecuteCommand : Numbered {
  std::vector<std::shared_ptr<const Response>> items;
  // Ranks that contribute nothing. If this rank is one of them, it has not
  // asked for the items.
  JoinedRanks joined;
  LastReady last;
};

struct FailCommand : Numbered {
  std::vector<std::string> names;
  Status status;
};

struct EndCommand : Numbered {
  Status status;
};

struct PlanCommand : Numbered {
  std::vector<std::vector<std::string>> buckets;  // of names
};

struct JoinCommand : Numbered {
  // Set once all ranks have joined: the lowest of those that joined last. All
  // of these took part in the same collectives; a rank that took part in fewer
  // joined before them.
  std::optional<int32_t> last_rank;
};

// The controller has done its part already.
struct TuneCommand : Numbered {
  Tunable tunable = Tunable::kFusionThreshold;
  int64_t value = 0;
};

// An end, with the status with which this rank's operations end.
struct ReconfigureCommand : Numbered {
  uint64_t generation = 0;
  Status status;
};

using Command =
    std::variant<ExecuteCommand, FailCommand, EndCommand, PlanCommand,
                 JoinCommand, TuneCommand, ReconfigureCommand>;

inline uint64_t SequenceOf(const Command& command) {
  return std::visit([](const Numbered& one) { return one.sequence; }, command);
}

// Calls the one of several functions that takes the variant's alternative.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_DECISION_H_
