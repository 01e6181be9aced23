#include "csrc/collective/shm/tensor_places.h"

#include <algorithm>
#include <string>
#include <utility>

namespace keras_ring {

TensorPlaces::TensorPlaces(const HostGroup& group, std::vector<Table*> tables)
    : group_(group),
      tables_(std::move(tables)),
      inputs_(group.size()),
      outputs_(group.size()) {
  for (int local_rank = 0; local_rank < group.size(); ++local_rank) {
    if (group.arena(local_rank) == nullptr) possible_ = false;
  }
}

void TensorPlaces::Publish(const std::vector<TensorSpan>& tensors) {
  const int own = group_.local_rank();
  Table& table = *tables_[own];
  const SharedMemory& arena = *group_.arena(own);
  inputs_[own].clear();
  outputs_[own].clear();
  const auto place = [&arena](const void* memory,
                              std::vector<const char*>& pointers) {
    const char* at = static_cast<const char*>(memory);
    const bool inside = at >= arena.data() && at < arena.data() + arena.bytes();
    pointers.push_back(inside ? at : nullptr);
    return inside ? static_cast<uint64_t>(at - arena.data())
                  : Table::kElsewhere;
  };
  const size_t count = std::min(tensors.size(), Table::kCapacity);
  counts_.clear();
  for (size_t t = 0; t < count; ++t) {
    counts_.push_back(tensors[t].count);
    table.rows[t] = {place(tensors[t].input, inputs_[own]),
                     place(tensors[t].output, outputs_[own])};
  }
}

Status TensorPlaces::Learn(size_t element_size) {
  for (int local_rank = 0; local_rank < group_.size(); ++local_rank) {
    if (local_rank == group_.local_rank()) continue;
    KR_RETURN_IF_ERROR(LearnOf(local_rank, element_size));
  }
  return OkStatus();
}

Status TensorPlaces::LearnOf(int local_rank, size_t element_size) {
  const SharedMemory& arena = *group_.arena(local_rank);
  inputs_[local_rank].clear();
  outputs_[local_rank].clear();
  for (size_t t = 0; t < counts_.size(); ++t) {
    const uint64_t bytes = counts_[t] * element_size;
    // A copy: the values that are checked must be the values that are used.
    const Table::Row row = tables_[local_rank]->rows[t];
    for (auto [offset, pointers] :
         {std::pair{row.input, &inputs_}, std::pair{row.output, &outputs_}}) {
      std::vector<const char*>& of_rank = (*pointers)[local_rank];
      if (offset == Table::kElsewhere) {
        of_rank.push_back(nullptr);
        continue;
      }
      if (offset > arena.bytes() || bytes > arena.bytes() - offset) {
        return InternalError("rank " +
                             std::to_string(group_.global_rank(local_rank)) +
                             " says of a tensor that it is where it cannot be");
      }
      of_rank.push_back(arena.data() + offset);
    }
  }
  return OkStatus();
}

}  // namespace keras_ring
