// The kernel of KerasRingAllgather.
#include "tf_ops/collective_kernel.h"
#include "tf_ops/tf_adapters.h"

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
    const tensorflow::Tensor& input = context->input(0);
    entry.allocate = [call, shape = input.shape(),
                      dtype = input.dtype()](int64_t rows) -> Result<void*> {
      tensorflow::TensorShape gathered = shape;
      gathered.set_dim(0, rows);
      return call->AllocateOutput(gathered, dtype);
    };
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);

}  // namespace
}  // namespace keras_ring
