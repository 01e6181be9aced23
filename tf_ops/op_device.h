// The device that a kernel works on, and the stream of an op.
#ifndef KERAS_RING_TF_OPS_OP_DEVICE_H_
#define KERAS_RING_TF_OPS_OP_DEVICE_H_

#include "absl/status/statusor.h"
#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace keras_ring {

// Returns the kind of device that a kernel was made for.
KrDeviceKind KindOf(const tensorflow::OpKernelConstruction& context);

// Returns the ordinal that the driver has for the device of the op. It is not
// that of the name ("/GPU:0") if the program has chosen its devices.
int OrdinalOf(const tensorflow::OpKernelContext& context);

// Returns the stream (CUstream) to which TensorFlow gives the work that comes
// before the op, and after it.
absl::StatusOr<void*> StreamOf(tensorflow::OpKernelContext* context);

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_OP_DEVICE_H_
