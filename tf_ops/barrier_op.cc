// The kernel of KerasRingBarrier.
#include "tf_ops/collective_kernel.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class BarrierKernel final : public CollectiveKernel {
 public:
  explicit BarrierKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kBarrier;
  }

  absl::Status PrepareOutputs(OpKernelContext*, const std::shared_ptr<Call>&,
                              TensorEntry&) const override {
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("KerasRingBarrier").Device(tensorflow::DEVICE_CPU),
                        BarrierKernel);

}  // namespace
}  // namespace keras_ring
