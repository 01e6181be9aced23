// ClockOffset: how far this rank's clock is from rank 0's.
#ifndef KERAS_RING_CONTROL_CLOCK_OFFSET_H_
#define KERAS_RING_CONTROL_CLOCK_OFFSET_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"

namespace keras_ring {

// Up: what does your clock show?
struct ClockQuery {
  int64_t asked_ns = 0;  // by the clock of who asks
};

// Down, the answer.
struct ClockReply {
  int64_t asked_ns = 0;
  int64_t answered_ns = 0;  // by the clock of who answers
  // From that clock to rank 0's, if it knows.
  bool known = false;
  int64_t offset_ns = 0;
  int64_t error_ns = 0;
};

// Rank 0's clock shows `offset` more than this one's, give or take `error`.
struct ClockReading {
  TimePoint at{};
  Duration offset{};
  Duration error{};
};

// Each rank asks its parent in the control tree and adds what that one knows of
// its own, so rank 0 answers as many as it has children. An answer came at some
// moment between the question and now, by the parent's clock in the middle of
// the two, as NTP has it (RFC 5905, section 8), so half of the time between is
// the error. Of the last answers the best one counts, and the older it is, the
// less: clocks drift.
class ClockOffset {
 public:
  // Questions that follow one another at once, and the pause after them.
  static constexpr int kBurst = 6;
  static constexpr Duration kPause = std::chrono::seconds(10);
  // By which two clocks of quartz may part.
  static constexpr double kDrift = 50e-6;

  // `shares_clock`: the parent is on this host.
  ClockOffset(bool is_root, bool shares_clock)
      : is_root_(is_root), shares_clock_(shares_clock) {}

  // When there is something to ask. Nothing while an answer is due.
  std::optional<TimePoint> NextQuestion() const;
  ClockQuery Ask(TimePoint now);
  ClockReply Answer(const ClockQuery& query, TimePoint now) const;
  void OnReply(const ClockReply& reply, TimePoint now);

  // The best that is known, if it is news since the last call.
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
