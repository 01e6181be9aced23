#include "tf_ops/tf_adapters.h"

#include "tensorflow/core/framework/types.h"

namespace keras_ring {

Result<DType> DTypeFromTf(tensorflow::DataType dtype) {
  constexpr std::pair<tensorflow::DataType, DType> kTable[] = {
      {tensorflow::DT_UINT8, DType::kUint8},
      {tensorflow::DT_INT8, DType::kInt8},
      {tensorflow::DT_UINT16, DType::kUint16},
      {tensorflow::DT_INT16, DType::kInt16},
      {tensorflow::DT_INT32, DType::kInt32},
      {tensorflow::DT_INT64, DType::kInt64},
      {tensorflow::DT_HALF, DType::kFloat16},
      {tensorflow::DT_BFLOAT16, DType::kBfloat16},
      {tensorflow::DT_FLOAT, DType::kFloat32},
      {tensorflow::DT_DOUBLE, DType::kFloat64},
      {tensorflow::DT_BOOL, DType::kBool},
      {tensorflow::DT_COMPLEX64, DType::kComplex64},
      {tensorflow::DT_COMPLEX128, DType::kComplex128},
  };
  static_assert(sizeof(kTable) / sizeof(kTable[0]) == kNumDTypes);
  for (const auto& [theirs, ours] : kTable) {
    if (theirs == dtype) return ours;
  }
  return InvalidArgumentError("no collective carries tensors of " +
                              tensorflow::DataTypeString(dtype));
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
