// The streams and events of the fake devices.
#ifndef KERAS_RING_TESTING_FAKE_CUDA_STREAM_H_
#define KERAS_RING_TESTING_FAKE_CUDA_STREAM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "csrc/cuda/driver.h"

namespace keras_ring::cuda::fake {

// How often an event was recorded, and how often it has been reached: on a page
// that other processes can map.
struct EventCounts {
  std::atomic<uint64_t> recorded{0};
  std::atomic<uint64_t> reached{0};
};

class FakeEvent {
 public:
  static std::unique_ptr<FakeEvent> Create(bool interprocess);
  static std::unique_ptr<FakeEvent> Open(const IpcEventHandle& handle);

  ErrorCode Export(IpcEventHandle* handle) const;
  const std::shared_ptr<EventCounts>& counts() const { return counts_; }

 private:
  FakeEvent(std::shared_ptr<EventCounts> counts, int descriptor)
      : counts_(std::move(counts)), descriptor_(descriptor) {}
  std::shared_ptr<EventCounts> counts_;
  const int descriptor_;  // -1: it is not for other processes
};

// One point of an event: its latest record when this was made.
class EventPoint {
 public:
  explicit EventPoint(const FakeEvent& event);
  bool Reached() const;
  void Await() const;

 private:
  std::shared_ptr<EventCounts> counts_;
  uint64_t number_;
};

class FakeStream {
 public:
  FakeStream();
  ~FakeStream();  // what was given is done first

  void Give(std::function<void()> work);
  void Record(const FakeEvent& event);
  void Wait(const FakeEvent& event);
  void Synchronize();

  static void SetDelays(uint64_t seed, int microseconds);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>*> work_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace keras_ring::cuda::fake

#endif  // KERAS_RING_TESTING_FAKE_CUDA_STREAM_H_
