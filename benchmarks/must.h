// What programs that measure share: a clock, and an end at the first error.
#ifndef KERAS_RING_BENCHMARKS_MUST_H_
#define KERAS_RING_BENCHMARKS_MUST_H_

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "csrc/base/status.h"

namespace keras_ring {

// Seconds of the steady clock.
inline double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Ends the process, which may be a fork, unless it is a success.
inline void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  _exit(1);
}
template <typename T>
T Must(Result<T> result) {
  Must(result.status());
  return std::move(result).value();
}

}  // namespace keras_ring

#endif  // KERAS_RING_BENCHMARKS_MUST_H_
