#include "tf_ops/op_device.h"

#include <memory>
#include <string>

#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/types.h"
#if __has_include("xla/stream_executor/stream.h")
#include "xla/stream_executor/stream.h"
#else  // TensorFlow before 2.16
#include "tensorflow/compiler/xla/stream_executor/stream.h"
#endif

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

// That of a device from a plug-in, which TensorFlow's C interface gives.
absl::StatusOr<void*> PluggableStreamOf(OpKernelContext* context) {
  const std::unique_ptr<TF_Status, decltype(&TF_DeleteStatus)> status(
      TF_NewStatus(), TF_DeleteStatus);
  const SP_Stream stream = TF_GetStream(
      reinterpret_cast<TF_OpKernelContext*>(context), status.get());
  if (TF_GetCode(status.get()) == TF_OK) return stream;
  return absl::Status(static_cast<absl::StatusCode>(TF_GetCode(status.get())),
                      TF_Message(status.get()));
}

}  // namespace

KrDeviceKind KindOf(const OpKernelConstruction& context) {
  return context.device_type() == tensorflow::DEVICE_CPU ? KR_DEVICE_HOST
                                                         : KR_DEVICE_CUDA;
}

int OrdinalOf(const OpKernelContext& context) {
  const auto* const info =
      context.device()->tensorflow_accelerator_device_info();
  return info == nullptr ? 0 : info->gpu_id;
}

absl::StatusOr<void*> StreamOf(OpKernelContext* context) {
  tensorflow::DeviceContext* const device = context->op_device_context();
  if (device == nullptr) {
    return absl::InternalError("TensorFlow gives no stream for an op on " +
                               context->device()->name());
  }
  if (device->IsPluggableDevice()) return PluggableStreamOf(context);
  return device->stream()->platform_specific_handle().stream;
}

}  // namespace keras_ring
