// The kernel of KerasRingJoin.
#include "tf_ops/collective_kernel.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class JoinKernel final : public CollectiveKernel {
 public:
  explicit JoinKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kJoin;
  }

  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    Tensor* last_rank = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, {}, &last_rank));
    entry.outputs.push_back(last_rank->data());
    call->Hold(*last_rank);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("KerasRingJoin").Device(tensorflow::DEVICE_CPU),
                        JoinKernel);

}  // namespace
}  // namespace keras_ring
