// A KrRequest, and a builder for it.
#ifndef KERAS_RING_TF_OPS_REQUEST_H_
#define KERAS_RING_TF_OPS_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "csrc/capi/keras_ring.h"

namespace keras_ring {

// An operation that runs in every step has one request, created once.
using RequestPtr = std::shared_ptr<const KrRequest>;

// A KrRequestSpec with the memory that it points to.
class RequestBuilder {
 public:
  explicit RequestBuilder(std::string name) : name_(std::move(name)) {
    KrRequestSpecInit(&spec);
  }
  RequestBuilder(const RequestBuilder&) = delete;
  RequestBuilder& operator=(const RequestBuilder&) = delete;

  void AddTensor(int32_t dtype, absl::Span<const int64_t> shape);
  void SetSplits(absl::Span<const int64_t> splits);

  absl::StatusOr<RequestPtr> Build();

  // To be filled in, except name, tensors and splits.
  KrRequestSpec spec;

 private:
  struct Tensor {
    int32_t dtype;
    absl::InlinedVector<int64_t, 4> shape;
  };

  const std::string name_;
  std::vector<int64_t> splits_;
  absl::InlinedVector<Tensor, 1> tensors_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_REQUEST_H_
