#include "tf_ops/request.h"

#include "tf_ops/tf_adapters.h"

namespace keras_ring {

void RequestBuilder::AddTensor(int32_t dtype, absl::Span<const int64_t> shape) {
  tensors_.push_back({dtype, {shape.begin(), shape.end()}});
}

void RequestBuilder::SetSplits(absl::Span<const int64_t> splits) {
  splits_.assign(splits.begin(), splits.end());
}

absl::StatusOr<RequestPtr> RequestBuilder::Build() {
  absl::InlinedVector<KrTensorSpec, 1> specs;
  for (const Tensor& tensor : tensors_) {
    specs.push_back({tensor.dtype, static_cast<int32_t>(tensor.shape.size()),
                     tensor.shape.data()});
  }
  spec.name = name_.data();
  spec.name_bytes = name_.size();
  spec.splits = splits_.data();
  spec.num_splits = splits_.size();
  spec.tensors = specs.data();
  spec.num_tensors = specs.size();
  KrRequest* request = nullptr;
  const absl::Status made = TakeStatus(KrRequestCreate(&spec, &request));
  if (!made.ok()) return made;
  return RequestPtr(request, KrRequestFree);
}

}  // namespace keras_ring
