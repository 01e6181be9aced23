#include "csrc/collective/cuda/calls_in_flight.h"

#include <utility>

namespace keras_ring {

Status CallsInFlight::Open(const std::shared_ptr<cuda::Gpu>& gpu) {
  for (size_t i = 0; i < kMaxCalls; ++i) {
    KR_ASSIGN_OR_RETURN(auto memory, CallMemory::Create(gpu));
    memories_.push_back(std::move(memory));
  }
  return finalizer_.Start();
}

CallMemory& CallsInFlight::Begin() {
  const size_t slot = calls_++ % kMaxCalls;
  MutexLock lock(mutex_);
  // The finalizer ends every call, if need be after an abort.
  released_.Wait(mutex_,
                 [&]() KR_REQUIRES(mutex_) { return !in_flight_[slot]; });
  in_flight_[slot] = true;
  return *memories_[slot];
}

void CallsInFlight::End(cuda::Stream stream, Done done) {
  const size_t slot = (calls_ - 1) % kMaxCalls;
  const auto& end = memories_[slot]->end();
  const Status recorded = end->Record(stream);
  if (!recorded.ok()) {
    Release(slot);
    return done(recorded);
  }
  finalizer_.Add(end,
                 [this, slot, done = std::move(done)](const Status& outcome) {
                   Release(slot);
                   done(outcome);
                 });
}

void CallsInFlight::Release(size_t slot) {
  {
    MutexLock lock(mutex_);
    in_flight_[slot] = false;
  }
  released_.NotifyAll();
}

bool CallsInFlight::Stop() {
  finalizer_.Stop();
  if (!finalizer_.gave_up()) return true;
  for (auto& memory : memories_) static_cast<void>(memory.release());
  return false;
}

}  // namespace keras_ring
