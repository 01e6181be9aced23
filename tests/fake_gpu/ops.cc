// Ops of tests for the fake device, and our kernels for its type.
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "csrc/testing/fake_cuda.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/kernel_registration.h"
#include "tf_ops/op_device.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

REGISTER_OP("KerasRingTestSlow")
    .Attr("T: type")
    .Attr("ms: int")
    .Input("x: T")
    .Output("y: T")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

// Copies its input once the stream has slept, with garbage in the output until
// then; the host goes on at once.
class SlowKernel final : public tensorflow::OpKernel {
 public:
  explicit SlowKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("ms", &ms_));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const auto stream = StreamOf(context);
    OP_REQUIRES_OK(context, stream.status());
    const size_t bytes = x.TotalBytes();
    if (bytes == 0) return;
    OP_REQUIRES(context, OrdinalOf(*context) == OrdinalOf(*y),
                absl::InternalError("it is another device's memory"));
    const void* const from = AliasOf(x);
    void* const to = AliasOf(*y);
    cuda::Context device;
    cuda::FakeDriver().cuDevicePrimaryCtxRetain(&device, OrdinalOf(*context));
    cuda::FakeDriver().cuCtxPushCurrent(device);
    cuda::fake::GiveWork(static_cast<cuda::Stream>(*stream), [=, ms = ms_] {
      std::memset(to, 0xff, bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
      std::memcpy(to, from, bytes);
      return true;
    });
    cuda::FakeDriver().cuCtxPopCurrent(&device);
  }

 private:
  // Of the device that has its memory.
  static int OrdinalOf(const Tensor& tensor) {
    cuda::Context any;
    cuda::FakeDriver().cuDevicePrimaryCtxRetain(&any, 0);
    cuda::FakeDriver().cuCtxPushCurrent(any);
    int ordinal = -1;
    cuda::FakeDriver().cuPointerGetAttribute(
        &ordinal, cuda::kPointerDeviceOrdinal,
        reinterpret_cast<cuda::DevicePointer>(tensor.data()));
    cuda::FakeDriver().cuCtxPopCurrent(&any);
    return ordinal;
  }
  static int OrdinalOf(const OpKernelContext& context) {
    return keras_ring::OrdinalOf(context);
  }
  static void* AliasOf(const Tensor& tensor) {
    return cuda::fake::Alias(
        reinterpret_cast<cuda::DevicePointer>(tensor.data()),
        tensor.TotalBytes());
  }

  int64_t ms_ = 0;
};

const bool registered = [] {
  RegisterKernel<SlowKernel>("KerasRingTestSlow", KERAS_RING_FAKE_GPU_TYPE);
  const std::string type = KERAS_RING_FAKE_GPU_TYPE;
  if (type != tensorflow::DEVICE_GPU) KerasRingRegisterKernels(type.c_str());
  return true;
}();

}  // namespace
}  // namespace keras_ring
