#include "csrc/collective/shm/direct_tensors.h"

#include <algorithm>
#include <string>
#include <utility>

namespace keras_ring {

DirectTensors::DirectTensors(const HostGroup& group, std::vector<Table*> tables)
    : group_(group), size_(group.size()), tables_(std::move(tables)) {
  for (int local_rank = 0; local_rank < size_; ++local_rank) {
    if (group.arena(local_rank) == nullptr) possible_ = false;
  }
}

void DirectTensors::Publish(const std::vector<TensorSpan>& tensors) {
  Table& table = *tables_[group_.local_rank()];
  const SharedMemory& arena = *group_.arena(group_.local_rank());
  auto offset_of = [&arena](const void* memory) {
    const char* at = static_cast<const char*>(memory);
    const bool inside = at >= arena.data() && at < arena.data() + arena.bytes();
    return inside ? static_cast<uint64_t>(at - arena.data())
                  : Table::kElsewhere;
  };
  const size_t count = std::min(tensors.size(), Table::kCapacity);
  for (size_t t = 0; t < count; ++t) {
    table.rows[t] = {offset_of(tensors[t].input), offset_of(tensors[t].output)};
  }
}

bool DirectTensors::IsDirect(size_t t) const {
  if (t >= Table::kCapacity) return false;
  return std::all_of(tables_.begin(), tables_.end(), [t](const Table* table) {
    return table->rows[t].input != Table::kElsewhere &&
           table->rows[t].output != Table::kElsewhere;
  });
}

Status DirectTensors::Resolve(const std::vector<TensorSpan>& tensors,
                              size_t element_size) {
  direct_.clear();
  others_.clear();
  inputs_.clear();
  outputs_.clear();
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (!IsDirect(t)) {
      others_.push_back(tensors[t]);
      continue;
    }
    direct_.push_back(tensors[t]);
    const uint64_t bytes = tensors[t].count * element_size;
    for (int local_rank = 0; local_rank < size_; ++local_rank) {
      const SharedMemory& arena = *group_.arena(local_rank);
      // A copy: what is checked must be what is used.
      const Table::Row row = tables_[local_rank]->rows[t];
      for (uint64_t offset : {row.input, row.output}) {
        if (offset > arena.bytes() || bytes > arena.bytes() - offset) {
          return InternalError("rank " +
                               std::to_string(group_.global_rank(local_rank)) +
                               " says of a tensor that it is where it cannot "
                               "be");
        }
      }
      inputs_.push_back(arena.data() + row.input);
      outputs_.push_back(arena.data() + row.output);
    }
  }
  return OkStatus();
}

}  // namespace keras_ring
