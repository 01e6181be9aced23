// The kernel of KerasRingTopology.
#include <string>

#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/kernel_registration.h"
#include "tf_ops/tf_adapters.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class TopologyKernel final : public tensorflow::OpKernel {
 public:
  explicit TopologyKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("what", &what_));
    OP_REQUIRES_OK(context, context->GetAttr("process_set_id", &process_set_));
  }

  void Compute(OpKernelContext* context) override {
    int32_t value = 0;
    OP_REQUIRES_OK(context, TakeStatus(KrReadTopology(what_.c_str(),
                                                      process_set_, &value)));
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<int32_t>()() = value;
  }

 private:
  std::string what_;
  int64_t process_set_ = 0;
};

}  // namespace

void RegisterTopologyKernel(const char* device) {
  RegisterKernel<TopologyKernel>("KerasRingTopology", device, {"value"});
}

}  // namespace keras_ring
