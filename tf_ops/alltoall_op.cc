// The kernel of KerasRingAlltoall.
#include "tf_ops/collective_kernel.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::TensorShape;

class AlltoallKernel final : public CollectiveKernel {
 public:
  explicit AlltoallKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, /*num_settings=*/1) {}

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kAlltoall;
  }

  void DescribeRun(OpKernelContext* context, Request& request) const override {
    const auto splits = context->input(1).flat<int64_t>();
    request.splits.assign(splits.data(), splits.data() + splits.size());
  }

  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    entry.allocate = [call, shape = context->input(0).shape(),
                      dtype = context->input(0).dtype()](
                         int result, int64_t rows) -> Result<void*> {
      if (result == 1) {
        return call->AllocateOutput(result, TensorShape({rows}),
                                    tensorflow::DT_INT64);
      }
      TensorShape received = shape;
      received.set_dim(0, rows);
      return call->AllocateOutput(result, received, dtype);
    };
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingAlltoall").Device(tensorflow::DEVICE_CPU), AlltoallKernel);

}  // namespace
}  // namespace keras_ring
