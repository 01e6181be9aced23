// StagedCollective: the collectives of tensors in device memory, through host
// memory and the host's collective.
//
// Right wherever that is, and what the faster ones are compared with: nothing
// is done by devices but copies.
#ifndef KERAS_RING_COLLECTIVE_CUDA_STAGED_COLLECTIVE_H_
#define KERAS_RING_COLLECTIVE_CUDA_STAGED_COLLECTIVE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/collective/collective.h"
#include "csrc/cuda/cuda_access.h"
#include "csrc/cuda/gpu.h"

namespace keras_ring {

// Its calls return when they are done.
class StagedCollective final : public Collective {
 public:
  // `host` is used between Start and its return, by the thread that calls it.
  // References must outlive the object.
  StagedCollective(int rank, int size, cuda::CudaAccess& gpus,
                   Collective& host);
  ~StagedCollective() override;

  void Start(const CollectiveArgs& args, Done done) override;
  std::string Explain() const override;
  void PeerGone(int rank) override { host_.PeerGone(rank); }
  void Abort(const Status& cause) override;

 private:
  class Run;

  // Opens the device.
  Status Connect(int ordinal);
  Status Do(const CollectiveArgs& args);
  // Returns at least so many bytes of fixed host memory.
  Result<char*> Reserve(size_t bytes);

  const int rank_;
  const int size_;
  cuda::CudaAccess& gpus_;
  Collective& host_;
  StickyStatus broken_;
  std::shared_ptr<cuda::Gpu> gpu_;
  std::optional<cuda::OwnStream> stream_;
  char* memory_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_STAGED_COLLECTIVE_H_
