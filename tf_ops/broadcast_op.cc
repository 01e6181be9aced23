// The kernel of KerasRingBroadcast.
#include "tf_ops/collective_kernel.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("root_rank", &root_));
  }

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kBroadcast;
    request.root = root_;
  }

  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    return ForwardOrAllocateOutputs(context, call, entry);
  }

 private:
  int root_ = 0;
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);

}  // namespace
}  // namespace keras_ring
