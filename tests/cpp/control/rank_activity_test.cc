#include "csrc/control/rank_activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TimePoint At(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }

FlightRecord Record(const std::string& name, FlightState state, int submitted,
                    int ended = 0) {
  auto request = std::make_shared<Request>();
  request->name = name;
  FlightRecord record;
  record.request = std::move(request);
  record.state = state;
  record.submitted = At(submitted);
  record.ended = At(ended);
  return record;
}

TEST(DescribeActivity, SaysWhatARankWaitsForAndWhatCameLast) {
  const RankActivity activity =
      DescribeActivity({Record("a", FlightState::kDone, 1, 2),
                        Record("b", FlightState::kFailed, 1, 3),
                        Record("loss", FlightState::kWaiting, 4)},
                       {"a", "grad"}, At(64));
  EXPECT_EQ(activity.text,
            "waits for allreduce 'loss', for 60 s; the last that ended, "
            "allreduce 'b', failed 61 s ago");
  EXPECT_THAT(activity.waits, ElementsAre("loss"));
  EXPECT_THAT(activity.knows, ElementsAre(true, false));
}

TEST(DescribeActivity, ARankInNoCollective) {
  EXPECT_EQ(DescribeActivity({}, {}, At(9)).text,
            "is in no collective; none has ended so far");
  EXPECT_EQ(
      DescribeActivity({Record("a", FlightState::kDone, 1, 2)}, {}, At(3)).text,
      "is in no collective; the last that ended, allreduce 'a', did so 1 s "
      "ago");
}

TEST(DescribeActivity, BeginsWithWhatTheProgramDoes) {
  Counters counters;
  EXPECT_EQ(ProgramActivity(counters, At(9)), "");
  counters.activity = 1;
  counters.activity_ns = static_cast<uint64_t>(
      std::chrono::nanoseconds(At(6).time_since_epoch()).count());
  const std::string program = ProgramActivity(counters, At(9));
  EXPECT_EQ(program, "waits for its input pipeline, for 3 s");
  EXPECT_EQ(DescribeActivity({}, {}, At(9), program).text,
            "waits for its input pipeline, for 3 s; none has ended so far");
  EXPECT_EQ(DescribeActivity({Record("a", FlightState::kWaiting, 4)}, {}, At(5),
                             "evaluates, for 1 s")
                .text,
            "evaluates, for 1 s, and waits for allreduce 'a', for 1 s; none "
            "has ended so far");
  // A number that this version does not know.
  counters.activity = 99;
  EXPECT_EQ(ProgramActivity(counters, At(9)), "");
}

TEST(DescribeActivity, IsBounded) {
  std::vector<FlightRecord> records;
  for (int i = 0; i < 100; ++i) {
    records.push_back(Record(std::string(4000, 'x') + std::to_string(i),
                             FlightState::kWaiting, 1));
  }
  const RankActivity activity = DescribeActivity(records, {}, At(3));
  EXPECT_LE(activity.text.size(), kMaxActivityBytes);
  EXPECT_EQ(activity.waits.size(), kMaxActivityNames);
  records.resize(5);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i] = Record(std::to_string(i), FlightState::kWaiting, 1);
  }
  EXPECT_THAT(DescribeActivity(records, {}, At(3)).text,
              HasSubstr("allreduce '2' and 2 more, for 2 s"));
  EXPECT_THAT(DescribeActivity(records, {}, At(3)).text, Not(HasSubstr("'3'")));
}

}  // namespace
}  // namespace keras_ring
