// The program's own activity, for observers of its job.
#include <chrono>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/meter.h"
#include "csrc/capi/handles.h"
#include "csrc/runtime/diagnostics/timeline.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {
namespace {

// Values of the metric "activity".
constexpr int32_t kActivityCompute = 0;
constexpr int32_t kActivityInput = 1;

// Returns null without a job, and in a process that a rank has forked or
// started, where nothing is recorded.
std::shared_ptr<Runtime> OwnRuntime() {
  return CheckIsRank().ok() ? ProcessRuntime() : nullptr;
}

TimePoint At(int64_t nanoseconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(
      std::chrono::nanoseconds(nanoseconds)));
}

template <typename Change>
KrStatus* ChangeMetric(const char* metric, const Change& change) {
  const std::shared_ptr<Runtime> runtime = OwnRuntime();
  if (runtime == nullptr) return nullptr;
  Counters::Count* const count = FindCounter(*runtime->deps().counters, metric);
  if (count == nullptr) {
    return ToC(InvalidArgumentError("there is no metric '" +
                                    std::string(metric) + "'"));
  }
  change(*count);
  return nullptr;
}

}  // namespace
}  // namespace keras_ring

using ::keras_ring::Counters;
using ::keras_ring::kActivityCompute;
using ::keras_ring::kActivityInput;
using ::keras_ring::OwnRuntime;
using ::keras_ring::Runtime;
using ::keras_ring::Timeline;
using ::keras_ring::ToC;
using ::keras_ring::TracePhase;
using ::keras_ring::TraceSpan;

bool KrIsTracing(void) {
  const std::shared_ptr<Runtime> runtime = OwnRuntime();
  return runtime != nullptr && runtime->deps().timeline->active();
}

KrStatus* KrStartTimeline(const char* path, bool mark_cycles) {
  const std::shared_ptr<Runtime> runtime = OwnRuntime();
  if (runtime == nullptr) {
    return ToC(keras_ring::FailedPreconditionError("not initialized"));
  }
  Timeline::Settings settings;
  settings.directory = std::string(path) + ".ranks";
  settings.mark_cycles = mark_cycles;
  return ToC(runtime->deps().timeline->Start(settings));
}

void KrStopTimeline(void) {
  const std::shared_ptr<Runtime> runtime = OwnRuntime();
  if (runtime != nullptr) runtime->deps().timeline->Stop("");
}

KrStatus* KrTraceSlice(int32_t phase, const char* name, int64_t begin_ns,
                       int64_t end_ns, int64_t value) {
  if (phase < static_cast<int32_t>(TracePhase::kStep) ||
      phase > static_cast<int32_t>(TracePhase::kUser)) {
    return ToC(keras_ring::InvalidArgumentError(
        "a program has no slices of phase " + std::to_string(phase)));
  }
  if (!KrIsTracing()) return nullptr;
  const std::shared_ptr<Runtime> runtime = OwnRuntime();
  if (runtime == nullptr) return nullptr;
  TraceSpan span;
  span.phase = static_cast<TracePhase>(phase);
  span.begin = keras_ring::At(begin_ns);
  span.end = keras_ring::At(end_ns);
  span.name = name;
  span.value = value;
  runtime->deps().timeline->Record(span);
  return nullptr;
}

KrStatus* KrCount(const char* metric, int64_t amount) {
  return keras_ring::ChangeMetric(metric, [amount](Counters::Count& count) {
    count += static_cast<uint64_t>(amount);
  });
}

KrStatus* KrSetMetric(const char* metric, uint64_t value) {
  return keras_ring::ChangeMetric(
      metric, [value](Counters::Count& count) { count = value; });
}

int32_t KrBeginInputWait(int64_t at_ns) {
  return KrEnterActivity(kActivityInput, at_ns);
}

void KrEndInputWait(int64_t began_ns, int32_t before, int64_t ended_ns,
                    int64_t samples) {
  const std::shared_ptr<Runtime> runtime = OwnRuntime();
  if (runtime == nullptr) return;
  KrEnterActivity(before, ended_ns);
  Counters& counters = *runtime->deps().counters;
  counters.data_wait_ns += static_cast<uint64_t>(ended_ns - began_ns);
  if (before == kActivityCompute) {
    counters.samples += static_cast<uint64_t>(samples);
  }
  if (!runtime->deps().timeline->active()) return;
  TraceSpan span;
  span.phase = TracePhase::kData;
  span.begin = keras_ring::At(began_ns);
  span.end = keras_ring::At(ended_ns);
  runtime->deps().timeline->Record(span);
}

int32_t KrEnterActivity(int32_t activity, int64_t at_ns) {
  const std::shared_ptr<Runtime> runtime = OwnRuntime();
  if (runtime == nullptr) return 0;
  Counters& counters = *runtime->deps().counters;
  counters.activity_ns = static_cast<uint64_t>(at_ns);
  return static_cast<int32_t>(
      counters.activity.exchange(static_cast<uint64_t>(activity)));
}
