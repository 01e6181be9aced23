// Spinner: waits for another thread without giving up the core, where that
// pays.
#ifndef KERAS_RING_BASE_SPIN_H_
#define KERAS_RING_BASE_SPIN_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/base/cpu_features.h"

namespace keras_ring {

// Lets other threads have the core if any want it.
void YieldCpu();

// Putting a thread to sleep and waking it costs tens of microseconds where the
// idle core has halted; looking again after a microsecond costs nothing if the
// core has nothing else to do. But it may have: TensorFlow's own threads, or a
// rank that shares the core. Then spinning delays the very thing that is waited
// for. So a Spinner
//
//   - never spins where the host has fewer cores than ranks (budget zero),
//   - yields each microsecond, and when a yield takes long, somebody else
//     needed the core: it stops,
//   - and after several spins in vain, skips the next ones: 1, 2, 4, ...
//
// For one thread.
class Spinner {
 public:
  // `budget`: the longest spin. Zero: never.
  explicit Spinner(Duration budget) : budget_(budget) {}

  // Spins until condition() holds or spinning no longer pays. Returns whether
  // it holds.
  template <typename Condition>
  bool Until(Condition condition) {
    if (condition()) return true;
    if (budget_ == Duration::zero()) return false;
    if (skips_left_ > 0) {
      --skips_left_;
      return false;
    }
    const TimePoint began = std::chrono::steady_clock::now();
    TimePoint now = began;
    while (now - began < budget_) {
      for (int i = 0; i < kLooksPerYield; ++i) {
        RelaxCpu();
        if (condition()) return Succeed();
      }
      YieldCpu();
      const TimePoint after = std::chrono::steady_clock::now();
      if (condition()) return Succeed();
      if (after - now > kContended) {
        failures_ = std::max(failures_, kFreeFailures);
        break;
      }
      now = after;
    }
    failures_ = std::min(failures_ + 1, kMaxFailures);
    if (failures_ > kFreeFailures) {
      skips_left_ = 1 << (failures_ - kFreeFailures - 1);
    }
    return false;
  }

 private:
  static constexpr int kLooksPerYield = 16;
  static constexpr Duration kContended = std::chrono::microseconds(50);
  // Failures in a row that skip no spin: the end of each step is one.
  static constexpr int kFreeFailures = 3;
  static constexpr int kMaxFailures = kFreeFailures + 7;  // 64 skips

  bool Succeed() {
    failures_ = 0;
    return true;
  }

  const Duration budget_;
  int failures_ = 0;  // since the last success
  int skips_left_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_SPIN_H_
