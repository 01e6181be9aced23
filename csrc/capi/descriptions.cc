// Descriptions of the library: types, options, metrics, the build.
#include <algorithm>
#include <memory>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/cpu_features.h"
#include "csrc/base/dtype.h"
#include "csrc/base/options.h"
#include "csrc/capi/handles.h"
#include "csrc/runtime/process_arena.h"
#include "csrc/runtime/runtime.h"

using ::keras_ring::Arena;
using ::keras_ring::Counters;
using ::keras_ring::DType;
using ::keras_ring::OptionDescription;

size_t KrDTypes(const KrDType** rows) {
  static const auto* const all = [] {
    auto* made = new std::vector<KrDType>;
    for (int i = 0; i < keras_ring::kNumDTypes; ++i) {
      const DType dtype = static_cast<DType>(i);
      made->push_back({DTypeName(dtype), DTypeSize(dtype), IsReducible(dtype)});
    }
    return made;
  }();
  *rows = all->data();
  return all->size();
}

size_t KrOptions(const KrOption** rows) {
  static const auto* const described =
      new std::vector<OptionDescription>(keras_ring::DescribeOptions());
  static const auto* const all = [] {
    auto* made = new std::vector<KrOption>;
    for (const OptionDescription& option : *described) {
      made->push_back({option.variable.c_str(), option.type.c_str(),
                       option.default_value.c_str(), option.meaning.c_str()});
    }
    return made;
  }();
  *rows = all->data();
  return all->size();
}

size_t KrMetrics(const KrMetric** rows) {
  static const auto* const all = [] {
    auto* made = new std::vector<KrMetric>;
    for (const auto& row : keras_ring::DescribeCounters()) {
      made->push_back({row.name, row.unit, row.meaning});
    }
    for (const auto& row : Arena::DescribeStats()) {
      made->push_back({row.name, "bytes", row.meaning});
    }
    return made;
  }();
  *rows = all->data();
  return all->size();
}

KrStatus* KrReadMetrics(uint64_t* values) {
  const auto runtime = keras_ring::ProcessRuntime();
  if (keras_ring::CurrentParentRank() != nullptr) {
    // The counters are those of the rank, which is another process.
    const KrMetric* rows;
    std::fill_n(values, KrMetrics(&rows), uint64_t{0});
    return nullptr;
  }
  if (runtime == nullptr) {
    return keras_ring::ToC(
        keras_ring::FailedPreconditionError("not initialized"));
  }
  const Counters& counters = runtime->counters();
  for (const auto& row : keras_ring::DescribeCounters()) {
    *values++ = (counters.*row.count).load();
  }
  const std::shared_ptr<Arena> arena = keras_ring::ProcessArena();
  const Arena::Stats stats = arena ? arena->stats() : Arena::Stats();
  for (const auto& row : Arena::DescribeStats()) {
    *values++ = stats.*row.value;
  }
  return nullptr;
}

const char* KrCompiler(void) { return __VERSION__; }

const char* KrCpuLevel(void) {
  return CpuLevelName(keras_ring::DetectCpuLevel());
}
