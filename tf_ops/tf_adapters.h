// Conversions between TensorFlow's types and those of the core's C interface.
#ifndef KERAS_RING_TF_OPS_TF_ADAPTERS_H_
#define KERAS_RING_TF_OPS_TF_ADAPTERS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/types.pb.h"

namespace keras_ring {

absl::Status ToAbsl(const KrStatus* status);
// The same, and frees `status`.
absl::Status TakeStatus(KrStatus* status);
// Converts an error; the receiver frees it.
KrStatus* ToKr(const absl::Status& status);

// Returns the number of a type; kInvalidArgument for one that no collective
// carries.
absl::StatusOr<int32_t> DTypeFromTf(tensorflow::DataType dtype);

// Returns the types that collectives carry, or reduce, in the form of an op's
// attribute.
std::string TfTypes(bool reducible);

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_TF_ADAPTERS_H_
