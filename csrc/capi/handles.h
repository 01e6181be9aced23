// The types behind the handles of the C interface, and how a Status becomes
// one.
#ifndef KERAS_RING_CAPI_HANDLES_H_
#define KERAS_RING_CAPI_HANDLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/capi/keras_ring.h"
#include "csrc/comm/host/arena.h"
#include "csrc/control/request.h"
#include "csrc/runtime/diagnostics/log_queue.h"
#include "csrc/runtime/process_runtime.h"

struct KrStatus {
  keras_ring::Status status;
};

struct KrRequest {
  keras_ring::RequestPtr request;
  std::string label;
  // Null: of no step.
  std::shared_ptr<const std::string> commit_group;
  // In which the root of a broadcast is counted: see ElasticJob::Enqueue.
  int64_t generation;
};

struct KrRuntimeLookup {
  keras_ring::RuntimeLookup lookup;
};

struct KrArena {
  std::shared_ptr<keras_ring::Arena> arena;
};

struct KrLogQueue {
  std::shared_ptr<keras_ring::LogQueue> queue;
};

namespace keras_ring {

// Returns null for success.
inline KrStatus* ToC(Status status) {
  if (status.ok()) return nullptr;
  return new KrStatus{std::move(status)};
}

}  // namespace keras_ring

#endif  // KERAS_RING_CAPI_HANDLES_H_
