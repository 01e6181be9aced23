// DeathWatch: reports the death of ranks of this host as soon as the kernel
// knows of it.
#ifndef KERAS_RING_COMM_HOST_DEATH_WATCH_H_
#define KERAS_RING_COMM_HOST_DEATH_WATCH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "csrc/base/status.h"
#include "csrc/comm/host/host_group.h"

namespace keras_ring {

// One thread, `kr-watch`. It holds this rank's liveness futex, so that the
// other ranks learn of the end of this process; and it sleeps on the futex of
// the rank before it on the host or, once that rank has left or died, of the
// one before that. So each live rank is watched by a live one, and the first to
// learn of the leader's end is its deputy: see BuildJobTree.
//
// A rank leaves when its end is no news any more: when it has told others why
// it gives up, or when all its work is done. The rank that watches it then goes
// on to the one before: so each rank of the host learns of the rank that died,
// unless it was told before, and takes no other for dead.
class DeathWatch {
 public:
  // `group` must outlive the object.
  explicit DeathWatch(const HostGroup& group) : group_(group) {}
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

  // Calls `died` with the rank (in the set of the group) of each rank that has
  // died, on the watch's thread. It must not block. If Start fails, this rank
  // has left.
  Status Start(std::function<void(int rank)> died);
  // This rank leaves, but still watches the others. Any thread.
  void Leave();
  // Leaves, and joins the thread. Idempotent.
  void Stop();
  // Returns whether that rank has died. False for a rank of another host.
  bool HasDied(int rank) const;

 private:
  void Run();
  void WatchOthers();

  const HostGroup& group_;
  std::function<void(int rank)> died_;
  // Both are futexes, with the values 0 and 1.
  std::atomic<uint32_t> stop_{0};
  std::atomic<uint32_t> ended_{0};
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_DEATH_WATCH_H_
