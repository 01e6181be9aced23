// DirectTensors: the tensors of a bucket that the ranks of a host can read from
// each other in place, and their addresses.
#ifndef KERAS_RING_COLLECTIVE_SHM_DIRECT_TENSORS_H_
#define KERAS_RING_COLLECTIVE_SHM_DIRECT_TENSORS_H_

#include <cstddef>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/shm/tensor_places.h"
#include "csrc/comm/host/host_group.h"

namespace keras_ring {

// A tensor is direct if its input and its output are in their rank's arena, on
// every rank. One that is not (a NumPy array's, a small one) goes through the
// slots.
class DirectTensors {
 public:
  using Table = TensorPlaces::Table;

  // `group` must outlive the object. `tables`: by local rank.
  DirectTensors(const HostGroup& group, std::vector<Table*> tables);

  // Returns whether all ranks have an arena.
  bool possible() const { return places_.possible(); }

  // Publishes the places of this rank's tensors.
  void Publish(const std::vector<TensorSpan>& tensors) {
    places_.Publish(tensors);
  }
  // Reads the places of the others' tensors, once all have published them, and
  // divides the tensors. An error if a peer's table is not valid.
  Status Resolve(const std::vector<TensorSpan>& tensors, size_t element_size);

  // In the order of the bucket, equal on all ranks.
  const std::vector<TensorSpan>& direct() const { return direct_; }
  const std::vector<TensorSpan>& others() const { return others_; }
  // The d-th direct tensor of the rank `local_rank`, as mapped by this rank.
  const char* input(int local_rank, size_t d) const {
    return places_.input(local_rank, tensors_[d]);
  }
  const char* output(int local_rank, size_t d) const {
    return places_.output(local_rank, tensors_[d]);
  }

 private:
  bool IsDirect(size_t t) const;

  const int size_;
  TensorPlaces places_;

  // Kept to reuse their memory.
  std::vector<TensorSpan> direct_;
  std::vector<TensorSpan> others_;
  std::vector<size_t> tensors_;  // of the bucket, that are direct
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SHM_DIRECT_TENSORS_H_
