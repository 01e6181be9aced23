// The kernels of KerasRingInputWaitBegin and KerasRingInputWaitEnd.
#include <chrono>

#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

int64_t Now() {
  return std::chrono::nanoseconds(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class InputWaitBeginKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {2}, &output));
    const int64_t now = Now();
    auto wait = output->vec<int64_t>();
    wait(0) = now;
    wait(1) = KrBeginInputWait(now);
  }
};

class InputWaitEndKernel final : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    const auto wait = context->input(0).vec<int64_t>();
    const Tensor& element = context->input(1);
    const int64_t samples = element.dims() > 0 ? element.dim_size(0) : 0;
    KrEndInputWait(wait(0), static_cast<int32_t>(wait(1)), Now(), samples);
  }
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingInputWaitBegin").Device(tensorflow::DEVICE_CPU),
    InputWaitBeginKernel);
REGISTER_KERNEL_BUILDER(
    Name("KerasRingInputWaitEnd").Device(tensorflow::DEVICE_CPU),
    InputWaitEndKernel);

}  // namespace
}  // namespace keras_ring
