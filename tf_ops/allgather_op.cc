// The kernel of KerasRingAllgather.
#include "tf_ops/collective_kernel.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class AllgatherKernel final : public CollectiveKernel {
 public:
  explicit AllgatherKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kAllgather;
  }

  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    AllocateOutputsByRows(context, call, entry);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);

}  // namespace
}  // namespace keras_ring
