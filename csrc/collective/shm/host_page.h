// HostPage: the part of each rank's memory, before the slots, that the
// collectives of its host use.
#ifndef KERAS_RING_COLLECTIVE_SHM_HOST_PAGE_H_
#define KERAS_RING_COLLECTIVE_SHM_HOST_PAGE_H_

#include <vector>

#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/collective/shm/tensor_places.h"
#include "csrc/comm/host/host_group.h"

namespace keras_ring {

struct HostPage {
  ProgressPage progress;
  alignas(64) TensorPlaces::Table tensors;

  static HostPage& Of(const HostGroup& group, int local_rank) {
    return *reinterpret_cast<HostPage*>(group.data(local_rank));
  }
  // By local rank.
  static std::vector<ProgressPage*> Progress(const HostGroup& group) {
    std::vector<ProgressPage*> pages;
    for (int i = 0; i < group.size(); ++i) {
      pages.push_back(&Of(group, i).progress);
    }
    return pages;
  }
  static std::vector<TensorPlaces::Table*> Tables(const HostGroup& group) {
    std::vector<TensorPlaces::Table*> tables;
    for (int i = 0; i < group.size(); ++i) {
      tables.push_back(&Of(group, i).tensors);
    }
    return tables;
  }
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SHM_HOST_PAGE_H_
