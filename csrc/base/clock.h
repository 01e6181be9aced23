// Clock: where control code asks for the time, so that tests can move it.
#ifndef KERAS_RING_BASE_CLOCK_H_
#define KERAS_RING_BASE_CLOCK_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace keras_ring {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

inline Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(seconds));
}

inline uint64_t SteadyNanoseconds(TimePoint at) {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(at.time_since_epoch()).count());
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

class SystemClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

// The system's clock, for objects that were given no other. Lives as long as
// the process.
inline const Clock& SystemTime() {
  static const SystemClock clock;
  return clock;
}

// Stands still until a test advances it. Thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(ticks_.load())); }
  void Advance(Duration duration) { ticks_ += duration.count(); }

 private:
  // Not zero: a default TimePoint means "never" in places.
  std::atomic<Duration::rep> ticks_{1'000'000'000};
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_CLOCK_H_
