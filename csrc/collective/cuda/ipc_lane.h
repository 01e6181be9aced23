// IpcLane: a stream of this rank, with the events that order it and the same
// lane of the other ranks.
#ifndef KERAS_RING_COLLECTIVE_CUDA_IPC_LANE_H_
#define KERAS_RING_COLLECTIVE_CUDA_IPC_LANE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/cuda/peer_memory.h"
#include "csrc/collective/cuda/peer_page.h"
#include "csrc/cuda/gpu.h"

namespace keras_ring {

// A call waits for the other ranks twice; those of other lanes go on meanwhile.
// For one thread, on which the device is current.
class IpcLane {
 public:
  static Result<std::unique_ptr<IpcLane>> Create(
      std::shared_ptr<cuda::Gpu> gpu);
  // Waits until its work is done.
  ~IpcLane();
  IpcLane(const IpcLane&) = delete;
  IpcLane& operator=(const IpcLane&) = delete;

  // Shows the events to the other ranks, and opens theirs.
  Status Show(PeerPage::Lane& lane) const;
  Status Open(PeerMemory& peers, int local_rank, const PeerPage::Lane& lane);

  cuda::Stream stream() const { return stream_.get(); }
  // Makes the staging area at least so large: memory that others have opened,
  // with the values of calls. It is read and written on the stream, and by the
  // other ranks between RecordWritten and their RecordReduced.
  Status Stage(size_t bytes);
  char* staging() const { return staging_.back(); }

  Status RecordWritten() { return written_->Record(stream()); }
  Status RecordReduced() { return reduced_->Record(stream()); }
  // Makes the stream wait for the latest records of the other ranks.
  Status AwaitWritten() { return Await(peer_written_); }
  Status AwaitReduced() { return Await(peer_reduced_); }

  // Leaves the wait for `reduced` to the next call of the lane.
  void OweReduced() { owes_reduced_ = true; }
  Status PayReduced();

 private:
  using Event = std::shared_ptr<cuda::CudaEvent>;

  IpcLane(std::shared_ptr<cuda::Gpu> gpu, cuda::OwnStream stream, Event written,
          Event reduced);
  Status Await(const std::vector<Event>& events);

  const std::shared_ptr<cuda::Gpu> gpu_;
  const cuda::OwnStream stream_;
  const Event written_;
  const Event reduced_;
  std::vector<Event> peer_written_;
  std::vector<Event> peer_reduced_;
  bool owes_reduced_ = false;
  // The last is used. The others stay, since other ranks have opened them; each
  // is at least twice as large as the one before.
  std::vector<char*> staging_;
  size_t staging_bytes_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_IPC_LANE_H_
