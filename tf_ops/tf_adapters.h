// Tables between TensorFlow's types and ours.
#ifndef KERAS_RING_TF_OPS_TF_ADAPTERS_H_
#define KERAS_RING_TF_OPS_TF_ADAPTERS_H_

#include <string>

#include "absl/status/status.h"
#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/control/request.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.pb.h"

namespace keras_ring {

// kInvalidArgument for a type that no collective carries.
Result<DType> DTypeFromTf(tensorflow::DataType dtype);

// The types that collectives carry, or reduce, as an op's attribute lists them.
std::string TfTypes(bool reducible);

inline absl::Status StatusToTf(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  // Our codes have absl's numbers (csrc/base/status.h).
  return absl::Status(static_cast<absl::StatusCode>(status.code()),
                      status.message());
}

Result<TensorSpec> SpecOf(const tensorflow::Tensor& tensor);

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_TF_ADAPTERS_H_
