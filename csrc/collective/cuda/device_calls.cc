#include "csrc/collective/cuda/device_calls.h"

#include <future>
#include <string>
#include <variant>

namespace keras_ring {

Status CheckOrdinal(const cuda::Gpu& gpu, int ordinal) {
  if (ordinal == gpu.ordinal()) return OkStatus();
  return InvalidArgumentError("a tensor is on gpu:" + std::to_string(ordinal) +
                              ", and this rank's first one was on gpu:" +
                              std::to_string(gpu.ordinal()) +
                              "; a rank has one device");
}

bool IsAdasum(const CollectiveArgs& args) {
  const auto* const allreduce = std::get_if<AllreduceArgs>(&args);
  return allreduce != nullptr && allreduce->op == ReduceOp::kAdasum;
}

Status AwaitReady(const cuda::Driver& driver, const CallArgs& call,
                  cuda::Stream stream) {
  for (const auto& event : call.ready) {
    void* const native = event->native();
    KR_RETURN_IF_ERROR(
        native == nullptr ? event->Wait()
                          : KR_CUDA(driver, cuStreamWaitEvent, stream,
                                    static_cast<cuda::EventHandle>(native), 0));
  }
  return OkStatus();
}

Status RunNow(Collective& collective, const CollectiveArgs& args) {
  std::promise<Status> outcome;
  collective.Start(
      args, [&outcome](const Status& status) { outcome.set_value(status); });
  return outcome.get_future().get();
}

}  // namespace keras_ring
