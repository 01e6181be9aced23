// Decision: one thing that every rank does, in the order of the sequence; and
// Command: the same as one rank is to carry it out.
#ifndef KERAS_RING_CONTROL_DECISION_H_
#define KERAS_RING_CONTROL_DECISION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/control/last_ready.h"
#include "csrc/control/request.h"
#include "csrc/control/step_plan.h"

namespace keras_ring {

// Run these as one bucket.
struct ExecuteDecision {
  std::vector<uint64_t> slots;  // what the cache has, ascending
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

// From now on the steps are planned like this.
struct PlanDecision {
  StepPlan plan;
};

// This rank has joined; the last to do so ends all joins.
struct JoinDecision {
  int32_t rank = 0;
};

// What can be tuned while a job runs. The values travel on the wire: append,
// never renumber.
enum class Tunable : uint8_t {
  kFusionThreshold = 0,  // bytes
  kLinger,               // microseconds
};
inline constexpr int kNumTunables = 2;
// A petabyte, or thirty years.
inline constexpr int64_t kMaxTunedValue = int64_t{1} << 50;

// From now on the tunable has this value, from 0 to kMaxTunedValue.
struct TuneDecision {
  Tunable tunable = Tunable::kFusionThreshold;
  int64_t value = 0;
};

// What was decided before is the last of this generation of the job: ranks go
// on as another one, which is numbered `generation`.
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
  // The ranks that bring nothing, ascending. If this rank is one of them, it
  // has not asked for the items.
  std::vector<int32_t> joined;
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
  int32_t rank = 0;
  bool all_joined = false;  // it was the last
};

// The controller has done it already.
struct TuneCommand : Numbered {
  Tunable tunable = Tunable::kFusionThreshold;
  int64_t value = 0;
};

// An end, with what this rank's operations end with.
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

// Calls the one of several functions that takes what a variant holds.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_DECISION_H_
