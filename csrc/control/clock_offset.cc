#include "csrc/control/clock_offset.h"

#include <cmath>

namespace keras_ring {
namespace {

int64_t Nanoseconds(TimePoint at) {
  return std::chrono::nanoseconds(at.time_since_epoch()).count();
}

}  // namespace

std::optional<TimePoint> ClockOffset::NextQuestion() const {
  if (is_root_ || asking_) return std::nullopt;
  return next_;
}

ClockQuery ClockOffset::Ask(TimePoint now) {
  asking_ = true;
  ++asked_;
  return ClockQuery{Nanoseconds(now)};
}

ClockReply ClockOffset::Answer(const ClockQuery& query, TimePoint now) const {
  ClockReply reply;
  reply.asked_ns = query.asked_ns;
  reply.answered_ns = Nanoseconds(now);
  if (is_root_) {
    reply.known = true;
  } else if (const std::optional<ClockReading> best = Best(now)) {
    reply.known = true;
    reply.offset_ns = std::chrono::nanoseconds(best->offset).count();
    reply.error_ns = std::chrono::nanoseconds(best->error).count();
  }
  return reply;
}

void ClockOffset::OnReply(const ClockReply& reply, TimePoint now) {
  asking_ = false;
  const bool done = reply.known && (shares_clock_ || asked_ >= kBurst);
  // A parent that does not know has asked, too.
  constexpr Duration kShort = std::chrono::milliseconds(50);
  next_ = done ? now + kPause : reply.known ? now : now + kShort;
  if (!reply.known) {
    asked_ = 0;
    return;
  }
  Sample sample;
  sample.at = now;
  sample.offset_ns = reply.offset_ns;
  sample.error_ns = reply.error_ns;
  if (!shares_clock_) {
    const int64_t back = Nanoseconds(now);
    const int64_t half = (back - reply.asked_ns) / 2;
    sample.offset_ns += reply.answered_ns - (reply.asked_ns + half);
    sample.error_ns += half;
  }
  samples_.push_back(sample);
  if (samples_.size() > 2 * kBurst) samples_.erase(samples_.begin());
  if (done) {
    asked_ = 0;
    news_ = true;
  }
}

std::optional<ClockReading> ClockOffset::Best(TimePoint now) const {
  std::optional<ClockReading> best;
  for (const Sample& sample : samples_) {
    const double age =
        static_cast<double>(std::chrono::nanoseconds(now - sample.at).count());
    const auto error =
        std::chrono::nanoseconds(sample.error_ns + std::llround(age * kDrift));
    if (best && best->error <= error) continue;
    best = ClockReading{now, std::chrono::nanoseconds(sample.offset_ns), error};
  }
  return best;
}

std::optional<ClockReading> ClockOffset::TakeReading(TimePoint now) {
  if (!news_) return std::nullopt;
  news_ = false;
  return Best(now);
}

}  // namespace keras_ring
