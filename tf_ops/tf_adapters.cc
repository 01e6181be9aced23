#include "tf_ops/tf_adapters.h"

#include "tensorflow/core/framework/types.h"

namespace keras_ring {

namespace {

// By DType.
#define KR_ROW(dtype, name, size, kind, tf, xla) tensorflow::DT_##tf,
constexpr tensorflow::DataType kTfTypes[] = {KR_FOR_EACH_DTYPE(KR_ROW)};
#undef KR_ROW

}  // namespace

Result<DType> DTypeFromTf(tensorflow::DataType dtype) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kTfTypes[i] == dtype) return static_cast<DType>(i);
  }
  return InvalidArgumentError("no collective carries tensors of " +
                              tensorflow::DataTypeString(dtype));
}

std::string TfTypes(bool reducible) {
  std::string list;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (reducible && !IsReducible(static_cast<DType>(i))) continue;
    list +=
        (list.empty() ? "{" : ", ") + tensorflow::DataTypeString(kTfTypes[i]);
  }
  return list + "}";
}

Result<TensorSpec> SpecOf(const tensorflow::Tensor& tensor) {
  TensorSpec spec;
  KR_ASSIGN_OR_RETURN(spec.dtype, DTypeFromTf(tensor.dtype()));
  for (int i = 0; i < tensor.dims(); ++i) {
    spec.shape.push_back(tensor.dim_size(i));
  }
  return spec;
}

}  // namespace keras_ring
