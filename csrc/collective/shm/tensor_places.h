// TensorPlaces: where the ranks of a host have their tensors, for ranks that
// can read them there.
#ifndef KERAS_RING_COLLECTIVE_SHM_TENSOR_PLACES_H_
#define KERAS_RING_COLLECTIVE_SHM_TENSOR_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/comm/host/host_group.h"

namespace keras_ring {

class TensorPlaces {
 public:
  // In each rank's memory: the places of its tensors, for the others.
  struct Table {
    static constexpr size_t kCapacity = 2048;
    static constexpr uint64_t kElsewhere = ~uint64_t{0};
    // Offsets from the beginning of the arena.
    struct Row {
      uint64_t input;
      uint64_t output;
    };
    Row rows[kCapacity];
  };

  // `group` must outlive the object. `tables`: by local rank.
  TensorPlaces(const HostGroup& group, std::vector<Table*> tables);

  // Returns whether all ranks have an arena.
  bool possible() const { return possible_; }

  // Publishes the places of this rank's tensors, until the next call.
  void Publish(const std::vector<TensorSpan>& tensors);
  // Reads the places of the others, once all have published those of the same
  // tensors. An error if a peer's table is not valid.
  Status Learn(size_t element_size);

  // The t-th tensor of the rank `local_rank`, as mapped by this rank; null if
  // it is not in an arena. For other ranks, valid after Learn.
  const char* input(int local_rank, size_t t) const {
    return Get(inputs_, local_rank, t);
  }
  const char* output(int local_rank, size_t t) const {
    return Get(outputs_, local_rank, t);
  }

 private:
  using Pointers = std::vector<std::vector<const char*>>;  // by local rank

  const char* Get(const Pointers& all, int local_rank, size_t t) const {
    const std::vector<const char*>& of_rank = all[local_rank];
    return t < of_rank.size() ? of_rank[t] : nullptr;
  }
  Status LearnOf(int local_rank, size_t element_size);

  const HostGroup& group_;
  const std::vector<Table*> tables_;
  bool possible_ = true;
  std::vector<int64_t> counts_;  // elements, by tensor
  Pointers inputs_;
  Pointers outputs_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SHM_TENSOR_PLACES_H_
