#include "csrc/control/flight_recorder.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace keras_ring {
namespace {

TimePoint At(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }

TensorEntry EntryOf(const std::string& name, int second) {
  auto request = std::make_shared<Request>();
  request->name = name;
  TensorEntry entry;
  entry.request = std::move(request);
  entry.submitted = At(second);
  return entry;
}

std::vector<TensorEntry> Submit(FlightRecorder& recorder,
                                const std::vector<std::string>& names) {
  std::vector<TensorEntry> entries;
  for (const std::string& name : names) {
    entries.push_back(EntryOf(name, 1));
    recorder.Submitted(entries.back());
  }
  return entries;
}

TEST(FlightRecorderTest, FollowsAnOperationFromItsBeginningToItsEnd) {
  FlightRecorder recorder(8);
  auto waits = Submit(recorder, {"waits"});
  auto runs = Submit(recorder, {"runs"});
  auto ends = Submit(recorder, {"ends", "too"});
  auto fails = Submit(recorder, {"fails"});
  recorder.Decided(runs, 7, LastReady::Of(3, std::chrono::milliseconds(4)),
                   At(2));
  recorder.Decided(ends, 6, {}, At(2));
  recorder.Ended(ends, OkStatus(), At(3));
  recorder.Ended(fails, UnavailableError("lost rank 3"), At(4));

  const std::vector<FlightRecord> records = recorder.Records();
  ASSERT_EQ(records.size(), 5u);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].number, i + 1);
    EXPECT_EQ(records[i].submitted, At(1));
  }
  EXPECT_EQ(records[0].request->name, "waits");
  EXPECT_EQ(records[0].state, FlightState::kWaiting);
  EXPECT_EQ(records[0].decided, TimePoint());
  EXPECT_EQ(records[1].state, FlightState::kRunning);
  EXPECT_EQ(records[1].decision, 7u);
  EXPECT_EQ(records[1].decided, At(2));
  EXPECT_EQ(records[1].last.rank, 3);
  EXPECT_EQ(records[1].last.late, std::chrono::milliseconds(4));
  EXPECT_EQ(records[1].ended, TimePoint());
  for (int i : {2, 3}) {
    EXPECT_EQ(records[i].state, FlightState::kDone);
    EXPECT_EQ(records[i].decision, 6u);
    EXPECT_EQ(records[i].ended, At(3));
  }
  EXPECT_EQ(records[4].state, FlightState::kFailed);
  EXPECT_EQ(records[4].error, "UNAVAILABLE: lost rank 3");
  EXPECT_EQ(records[4].decided, TimePoint());
}

TEST(FlightRecorderTest, RemembersTheLastOnes) {
  FlightRecorder recorder(3);
  auto first = Submit(recorder, {"a", "b"});
  recorder.Ended(first, InternalError("x"), At(2));
  auto later = Submit(recorder, {"c", "d", "e"});
  // The places of these belong to others now.
  recorder.Decided(first, 9, {}, At(3));
  recorder.Ended(first, InternalError("x"), At(3));

  const std::vector<FlightRecord> records = recorder.Records();
  ASSERT_EQ(records.size(), 3u);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].number, i + 3);
    EXPECT_EQ(records[i].request->name, std::string(1, 'c' + i));
    EXPECT_EQ(records[i].state, FlightState::kWaiting);
    EXPECT_EQ(records[i].error, "");
    EXPECT_EQ(records[i].decision, 0u);
  }
}

TEST(FlightRecorderTest, AnEntryThatWasNeverTakenDownIsIgnored) {
  FlightRecorder recorder(4);
  EXPECT_TRUE(recorder.Records().empty());
  std::vector<TensorEntry> strange;
  strange.push_back(EntryOf("x", 1));
  recorder.Decided(strange, 1, {}, At(2));
  recorder.Ended(strange, OkStatus(), At(2));
  EXPECT_TRUE(recorder.Records().empty());
}

TEST(FlightRecorderTest, ManyThreads) {
  constexpr int kThreads = 4, kOperations = 500;
  FlightRecorder recorder(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      for (int i = 0; i < kOperations; ++i) {
        auto entries = Submit(recorder, {std::to_string(t)});
        recorder.Decided(entries, i, {}, At(2));
        if (i % 50 == 0) (void)recorder.Records();
        recorder.Ended(entries, OkStatus(), At(3));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<FlightRecord> records = recorder.Records();
  ASSERT_EQ(records.size(), 64u);
  EXPECT_EQ(records.back().number, uint64_t{kThreads * kOperations});
  for (const FlightRecord& record : records) {
    EXPECT_EQ(record.state, FlightState::kDone);
  }
}

}  // namespace
}  // namespace keras_ring
