// ClockOffset: how far this rank's clock is from rank 0's.
#ifndef KERAS_RING_CONTROL_CLOCK_OFFSET_H_
#define KERAS_RING_CONTROL_CLOCK_OFFSET_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"

namespace keras_ring {

// Sent up: asks what the receiver's clock shows.
struct ClockQuery {
  int64_t asked_ns = 0;  // by the clock of the sender
};

// Sent down: the answer.
struct ClockReply {
  int64_t asked_ns = 0;
  int64_t answered_ns = 0;  // by the clock of the rank that answers
  // The offset from that clock to rank 0's, if it is known.
  bool known = false;
  int64_t offset_ns = 0;
  int64_t error_ns = 0;
};

// Rank 0's clock is `offset` ahead of this one's, give or take `error`.
struct ClockReading {
  TimePoint at{};
  Duration offset{};
  Duration error{};
};

// Each rank asks its parent in the control tree and adds the parent's own
// offset, so rank 0 answers only its children. The parent answered at some
// moment between the question and now. Like NTP (RFC 5905, section 8), this
// assumes the middle of the two, so half of the time between them is the error.
// The best of the last answers counts, with an error that grows with age:
// clocks drift.
class ClockOffset {
 public:
  // The number of questions in a row, and the pause after them.
  static constexpr int kBurst = 6;
  static constexpr Duration kPause = std::chrono::seconds(10);
  // The rate at which two quartz clocks may drift apart.
  static constexpr double kDrift = 50e-6;

  // `shares_clock`: the parent is on this host.
  ClockOffset(bool is_root, bool shares_clock)
      : is_root_(is_root), shares_clock_(shares_clock) {}

  // Returns when to ask next; no value while an answer is due.
  std::optional<TimePoint> NextQuestion() const;
  ClockQuery Ask(TimePoint now);
  ClockReply Answer(const ClockQuery& query, TimePoint now) const;
  void OnReply(const ClockReply& reply, TimePoint now);

  // Returns the best reading, if it has changed since the last call.
  std::optional<ClockReading> TakeReading(TimePoint now);

 private:
  struct Sample {
    TimePoint at{};
    int64_t offset_ns = 0;
    int64_t error_ns = 0;
  };
  std::optional<ClockReading> Best(TimePoint now) const;

  const bool is_root_;
  const bool shares_clock_;
  TimePoint next_{};  // at once
  bool asking_ = false;
  int asked_ = 0;                // of this burst
  std::vector<Sample> samples_;  // of this burst and the one before
  bool news_ = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_CLOCK_OFFSET_H_
