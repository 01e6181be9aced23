#include "csrc/collective/shm/direct_tensors.h"

#include <utility>

namespace keras_ring {

DirectTensors::DirectTensors(const HostGroup& group, std::vector<Table*> tables)
    : size_(group.size()), places_(group, std::move(tables)) {}

bool DirectTensors::IsDirect(size_t t) const {
  for (int local_rank = 0; local_rank < size_; ++local_rank) {
    if (places_.input(local_rank, t) == nullptr ||
        places_.output(local_rank, t) == nullptr) {
      return false;
    }
  }
  return true;
}

Status DirectTensors::Resolve(const std::vector<TensorSpan>& tensors,
                              size_t element_size) {
  KR_RETURN_IF_ERROR(places_.Learn(element_size));
  direct_.clear();
  others_.clear();
  tensors_.clear();
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (IsDirect(t)) {
      direct_.push_back(tensors[t]);
      tensors_.push_back(t);
    } else {
      others_.push_back(tensors[t]);
    }
  }
  return OkStatus();
}

}  // namespace keras_ring
