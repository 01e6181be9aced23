#include "csrc/runtime/diagnostics/log_queue.h"

#include <memory>
#include <vector>

#include "csrc/base/logging.h"
#include "csrc/capi/handles.h"

using ::keras_ring::LogQueue;

KrLogQueue* KrLogQueueCreate(void) {
  auto queue = std::make_shared<LogQueue>();
  keras_ring::SetLogSink(queue);
  return new KrLogQueue{std::move(queue)};
}

bool KrLogQueueTake(KrLogQueue* queue,
                    void (*visit)(void* context, int32_t level,
                                  const char* line),
                    void* context) {
  const std::vector<LogQueue::Line> lines = queue->queue->Take();
  for (const auto& [level, line] : lines) {
    visit(context, static_cast<int32_t>(level), line.c_str());
  }
  return !lines.empty();
}

void KrLogQueueClose(KrLogQueue* queue) {
  keras_ring::SetLogSink(nullptr);
  queue->queue->Close();
}

void KrLogQueueFree(KrLogQueue* queue) { delete queue; }
