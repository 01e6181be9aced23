#include "csrc/control/clock_offset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace keras_ring {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// A host: its clock has an error and a drift of its own.
struct Host {
  nanoseconds offset{0};
  double drift = 0;

  TimePoint At(nanoseconds truth) const {
    return TimePoint(nanoseconds(
        static_cast<int64_t>(static_cast<double>(truth.count()) * (1 + drift) +
                             static_cast<double>(offset.count()))));
  }
};

// Asks and hears the answer, with a way there and a way back that differ.
void Exchange(ClockOffset& child, const Host& of_child, ClockOffset& parent,
              const Host& of_parent, nanoseconds& now, nanoseconds there,
              nanoseconds back) {
  const ClockQuery query = child.Ask(of_child.At(now));
  now += there;
  const ClockReply reply = parent.Answer(query, of_parent.At(now));
  now += back;
  child.OnReply(reply, of_child.At(now));
}

TEST(ClockOffset, IsWithinItsErrorOnALongWayWithUnequalDelays) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> delay(1 / 200e3);
  std::uniform_real_distribution<double> drift(-20e-6, 20e-6);
  std::uniform_int_distribution<int64_t> offset(-(int64_t{1} << 50),
                                                int64_t{1} << 50);
  for (int trial = 0; trial < 200; ++trial) {
    nanoseconds now = std::chrono::hours(24);
    Host hosts[3] = {{nanoseconds(offset(random)), drift(random)},
                     {nanoseconds(offset(random)), drift(random)},
                     {nanoseconds(offset(random)), drift(random)}};
    ClockOffset root(true, true), middle(false, false), leaf(false, false);
    ClockOffset* nodes[3] = {&root, &middle, &leaf};
    for (int round = 0; round < 30; ++round) {
      for (int i : {1, 2}) {
        const std::optional<TimePoint> due = nodes[i]->NextQuestion();
        ASSERT_TRUE(due.has_value());
        if (hosts[i].At(now) < *due) continue;
        Exchange(*nodes[i], hosts[i], *nodes[i - 1], hosts[i - 1], now,
                 nanoseconds(20'000 + static_cast<int64_t>(delay(random))),
                 nanoseconds(20'000 + static_cast<int64_t>(delay(random))));
        ASSERT_TRUE(nodes[i]->NextQuestion().has_value());
      }
      for (int i : {1, 2}) {
        const auto reading = nodes[i]->TakeReading(hosts[i].At(now));
        if (!reading) continue;
        const nanoseconds truth = hosts[0].At(now) - hosts[i].At(now);
        const nanoseconds found = reading->offset;
        EXPECT_LE(std::abs((found - truth).count()),
                  nanoseconds(reading->error).count() + 1000)
            << "trial " << trial << ", round " << round << ", node " << i;
        // Of the quickest of some answers, not of the average one.
        EXPECT_LT(reading->error, std::chrono::milliseconds(3));
      }
      now += std::chrono::seconds(1);
    }
  }
}

TEST(ClockOffset, AsksInBurstsWithAPauseBetween) {
  ClockOffset root(true, true), node(false, false);
  EXPECT_FALSE(root.NextQuestion().has_value());
  const Host same;
  nanoseconds now = std::chrono::seconds(1);
  for (int i = 0; i < ClockOffset::kBurst; ++i) {
    EXPECT_LE(*node.NextQuestion(), same.At(now));
    const ClockQuery query = node.Ask(same.At(now));
    EXPECT_FALSE(node.NextQuestion().has_value());  // one at a time
    node.OnReply(root.Answer(query, same.At(now)), same.At(now));
    EXPECT_EQ(node.TakeReading(same.At(now)).has_value(),
              i == ClockOffset::kBurst - 1);
  }
  EXPECT_EQ(*node.NextQuestion(), same.At(now) + ClockOffset::kPause);
}

// The ranks of a host have one clock: what the leader knows is theirs.
TEST(ClockOffset, OnTheHostOfItsParentItTakesOverWhatThatOneKnows) {
  const Host far{std::chrono::hours(-5), 0}, here{std::chrono::hours(3), 0};
  ClockOffset root(true, true), leader(false, false), other(false, true);
  nanoseconds now = std::chrono::hours(100);
  // It does not know yet.
  Exchange(other, here, leader, here, now, microseconds(9), microseconds(90));
  EXPECT_FALSE(other.TakeReading(here.At(now)).has_value());
  EXPECT_GT(*other.NextQuestion(), here.At(now));
  for (int i = 0; i < ClockOffset::kBurst; ++i) {
    Exchange(leader, here, root, far, now, microseconds(50), microseconds(50));
  }
  Exchange(other, here, leader, here, now, microseconds(9), microseconds(90));
  const auto reading = other.TakeReading(here.At(now));
  ASSERT_TRUE(reading.has_value());
  EXPECT_EQ(nanoseconds(reading->offset), nanoseconds(std::chrono::hours(-8)));
  EXPECT_LE(reading->error, microseconds(51));
}

TEST(ClockOffset, TheQuickestOfTheLastAnswersCounts) {
  ClockOffset root(true, true), node(false, false);
  const Host same;
  nanoseconds now = std::chrono::seconds(1);
  const auto burst = [&](microseconds quickest) {
    for (int i = 0; i < ClockOffset::kBurst; ++i) {
      const microseconds way = i == 2 ? quickest : microseconds(4000);
      Exchange(node, same, root, same, now, way, way);
    }
  };
  burst(microseconds(30));
  const auto first = node.TakeReading(same.At(now));
  ASSERT_TRUE(first.has_value());
  EXPECT_GE(first->error, microseconds(30));
  // Milliseconds have passed since, in which clocks part a little.
  EXPECT_LT(first->error, microseconds(35));
  EXPECT_FALSE(node.TakeReading(same.At(now)).has_value()) << "no news";
  // What was measured two bursts ago is forgotten, however good it was.
  burst(microseconds(4000));
  EXPECT_LT(node.TakeReading(same.At(now))->error, microseconds(40));
  burst(microseconds(4000));
  EXPECT_GE(node.TakeReading(same.At(now))->error, microseconds(4000));
}

}  // namespace
}  // namespace keras_ring
