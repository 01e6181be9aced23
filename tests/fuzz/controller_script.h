// The job that scripts for the controller are about, and their steps.
#ifndef KERAS_RING_TESTS_FUZZ_CONTROLLER_SCRIPT_H_
#define KERAS_RING_TESTS_FUZZ_CONTROLLER_SCRIPT_H_

#include <memory>
#include <string>
#include <vector>

#include "csrc/control/controller.h"

namespace keras_ring {

// First the place, by Choice of kScriptPlaces, and the options, by one of
// kScriptCacheCapacities. Then steps.
enum class ScriptStep {
  kSubmit,    // request, by Choice
  kMessage,   // from a rank, by Choice; text
  kTimer,     // milliseconds / 100, first
  kExecuted,  // a bucket, if there is one
  kLeave,     // text
  kJoin,      // if this rank has nothing in flight and has not joined
};
inline constexpr int kNumScriptSteps = 6;
// Added to a step: what comes of it is not taken out before the next one.
inline constexpr int kScriptHold = 0x80;

inline const std::vector<std::string> kScriptHosts = {"a", "a", "b",
                                                      "b", "c", "c"};
inline constexpr int kScriptSize = 6;
// The coordinator, a host's leader between it and another rank, and a leaf.
inline constexpr int kScriptPlaces[] = {0, 2, 5};
inline constexpr int kNumScriptPlaces = 3;
inline constexpr int kScriptCacheCapacities[] = {1024, 2, 0};
inline constexpr int kNumScriptCacheCapacities = 3;

inline ControlTree ScriptTree(int rank) {
  return BuildControlTree(kScriptHosts, rank, /*fanout=*/1);
}

inline ControllerOptions ScriptOptions(int capacity) {
  ControllerOptions options;
  options.cache_capacity = capacity;
  // Of four of its tensors, and of two.
  options.schedule.fusion_threshold = 192;
  options.schedule.planned_bucket = 96;
  options.stalls.check_time = std::chrono::seconds(1);
  options.stalls.shutdown_time = std::chrono::seconds(10);
  return options;
}

// As this `rank` makes them.
inline std::vector<RequestPtr> ScriptRequests(int rank) {
  std::vector<RequestPtr> requests;
  auto add = [&requests](const char* name, RequestKind kind, auto change) {
    auto request = std::make_shared<Request>();
    request->name = name;
    request->kind = kind;
    if (kind != RequestKind::kBarrier) {
      request->tensors = {TensorSpec{DType::kFloat32, {6, 2}}};
    }
    change(*request);
    requests.push_back(std::move(request));
  };
  auto none = [](Request&) {};
  add("a", RequestKind::kAllreduce, none);
  add("b", RequestKind::kAllreduce, none);
  add("c", RequestKind::kAllreduce, [](Request& r) {
    r.tensors.push_back(TensorSpec{DType::kInt64, {}});
  });
  add("g", RequestKind::kAllgather,
      [rank](Request& r) { r.tensors[0].shape[0] = rank; });
  add("r", RequestKind::kBroadcast, none);
  add("w", RequestKind::kBarrier, none);
  add("s", RequestKind::kReducescatter, none);
  add("t", RequestKind::kAlltoall,
      [](Request& r) { r.splits = {1, 0, 2, 0, 3, 0}; });
  // The ranks disagree on it.
  add("x", RequestKind::kAllreduce,
      [rank](Request& r) { r.tensors[0].shape[1] = rank; });
  return requests;
}

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_FUZZ_CONTROLLER_SCRIPT_H_
