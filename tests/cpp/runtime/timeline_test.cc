#include "csrc/runtime/diagnostics/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/testing/log_capture.h"

namespace keras_ring {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class TimelineTest : public testing::Test {
 protected:
  TimelineTest() {
    std::string path = testing::TempDir() + "timeline.XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    settings_.directory = path + "/x.ranks";
    owner_.rank = 3;
    owner_.size = 8;
    owner_.local_rank = 1;
    owner_.host = "a \"host\"";
    owner_.settings = {{"KERAS_RING_TLS", "1"}};
  }

  std::string Lines() { return Read(settings_.directory + "/rank.3.jsonl"); }
  std::string SpansPath() { return settings_.directory + "/rank.3.spans"; }
  // While it is recorded, the last one may be there in part.
  size_t WrittenSoFar() {
    return std::filesystem::file_size(SpansPath()) / sizeof(TimelineRecord);
  }
  std::vector<TimelineRecord> Records() {
    const std::string bytes = Read(SpansPath());
    std::vector<TimelineRecord> records(bytes.size() / sizeof(TimelineRecord));
    EXPECT_EQ(bytes.size(), records.size() * sizeof(TimelineRecord));
    std::copy_n(bytes.begin(), records.size() * sizeof(TimelineRecord),
                reinterpret_cast<char*>(records.data()));
    return records;
  }

  static TraceSpan Span(const char* name) {
    TraceSpan span;
    span.phase = TracePhase::kWait;
    span.tag = 33;
    span.begin = TimePoint(std::chrono::nanoseconds(1000));
    span.end = TimePoint(std::chrono::nanoseconds(3000));
    span.peer = 5;
    span.name = name;
    span.value = 7;
    span.tensors = 100000;
    return span;
  }

  Timeline::Settings settings_;
  TimelineOwner owner_;
};

TEST_F(TimelineTest, WritesWhatItIsTold) {
  Timeline timeline(owner_);
  EXPECT_FALSE(timeline.active());
  timeline.Record(Span("before the start"));
  ASSERT_TRUE(timeline.Start(settings_).ok());
  EXPECT_TRUE(timeline.active());
  timeline.Record(Span("x"));
  timeline.Record(Span("y"));
  timeline.Record(Span("x"));
  timeline.SetClock(TimePoint(std::chrono::nanoseconds(5)),
                    std::chrono::nanoseconds(-7), std::chrono::nanoseconds(2));
  timeline.Stop("a reason");
  EXPECT_FALSE(timeline.active());
  timeline.Record(Span("after the end"));

  const std::vector<TimelineRecord> records = Records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].kind, TimelineRecord::kSpan);
  EXPECT_EQ(records[0].phase, 3);
  EXPECT_EQ(records[0].tensors, 65535);
  EXPECT_EQ(records[0].thread, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(records[0].peer, 5);
  EXPECT_EQ(records[0].tag, 33u);
  EXPECT_EQ(records[0].begin, 1000);
  EXPECT_EQ(records[0].end, 3000);
  EXPECT_EQ(records[0].value, 7);
  EXPECT_EQ(records[0].name, 1u);
  EXPECT_EQ(records[1].name, 2u);
  EXPECT_EQ(records[2].name, 1u);

  const std::string lines = Lines();
  EXPECT_THAT(lines, HasSubstr(R"("rank":3,"size":8,"local_rank":1)"));
  EXPECT_THAT(lines, HasSubstr(R"("host":"a \"host\"")"));
  EXPECT_THAT(lines, HasSubstr(R"("settings":{"KERAS_RING_TLS":"1"})"));
  EXPECT_THAT(lines, HasSubstr(R"({"type":"name","id":1,"text":"x"})"));
  EXPECT_THAT(lines, HasSubstr(R"({"type":"name","id":2,"text":"y"})"));
  EXPECT_THAT(
      lines, HasSubstr(R"({"type":"thread","id":)" + std::to_string(getpid())));
  EXPECT_THAT(lines, HasSubstr(R"({"type":"clock","at_ns":5,"offset_ns":-7,)"
                               R"("error_ns":2})"));
  EXPECT_THAT(lines, ContainsRegex("\"ended_ns\":[0-9]+,\"dropped\":0,"
                                   "\"reason\":\"a reason\"}\n$"));
  EXPECT_THAT(lines, Not(HasSubstr("the end")));
}

// The clock is measured when there is time for it, not when somebody records.
TEST_F(TimelineTest, ALaterRecordingKnowsTheClock) {
  Timeline timeline(owner_);
  timeline.SetClock(TimePoint(), std::chrono::nanoseconds(9), Duration());
  ASSERT_TRUE(timeline.Start(settings_).ok());
  timeline.Stop("");
  EXPECT_THAT(Lines(), HasSubstr(R"("offset_ns":9)"));
}

TEST_F(TimelineTest, IsRecordedOnceAtATime) {
  Timeline timeline(owner_);
  ASSERT_TRUE(timeline.Start(settings_).ok());
  EXPECT_EQ(timeline.Start(settings_).code(), StatusCode::kFailedPrecondition);
  timeline.Stop("");
  timeline.Stop("again");
  ASSERT_TRUE(timeline.Start(settings_).ok());
  timeline.Record(Span("of the second"));
  timeline.Stop("");
  EXPECT_EQ(Records().size(), 1u);
}

TEST_F(TimelineTest, DropsWhatDoesNotFitAndSaysHowMany) {
  Timeline timeline(owner_, nullptr, /*capacity=*/4);
  ASSERT_TRUE(timeline.Start(settings_).ok());
  // In one call, so that no writer comes between.
  const std::vector<TraceSpan> spans(10, Span("x"));
  timeline.Record(spans.data(), spans.size());
  timeline.Stop("");
  EXPECT_EQ(Records().size(), 4u);
  EXPECT_THAT(Lines(), HasSubstr("\"dropped\":6"));
}

TEST_F(TimelineTest, TakesSamplesOfNumbers) {
  std::atomic<int64_t> asked{0};
  Timeline timeline(owner_, [&asked] {
    return std::vector<TimelineSample>{{"pending", ++asked}, {"bytes", 5}};
  });
  ASSERT_TRUE(timeline.Start(settings_).ok());
  timeline.Stop("");
  const std::vector<TimelineRecord> records = Records();
  ASSERT_EQ(records.size(), 2u * asked);
  ASSERT_GE(records.size(), 2u);
  EXPECT_EQ(records[0].kind, TimelineRecord::kSample);
  EXPECT_EQ(records[0].value, 1);
  EXPECT_EQ(records[0].begin, records[0].end);
  EXPECT_GT(records[0].begin, 0);
  EXPECT_EQ(records[1].value, 5);
  EXPECT_THAT(Lines(), HasSubstr(R"("text":"pending")"));
}

TEST_F(TimelineTest, CyclesAreMarkedWhereTheyAreAskedFor) {
  for (const bool wanted : {false, true}) {
    settings_.mark_cycles = wanted;
    Timeline timeline(owner_);
    ASSERT_TRUE(timeline.Start(settings_).ok());
    TraceSpan cycle = Span("");
    cycle.phase = TracePhase::kCycle;
    timeline.Record(cycle);
    timeline.Stop("");
    const std::vector<TimelineRecord> records = Records();
    ASSERT_EQ(records.size(), wanted ? 1u : 0u);
    for (const TimelineRecord& record : records) {
      EXPECT_EQ(record.kind, TimelineRecord::kMoment);
    }
  }
}

TEST_F(TimelineTest, EndsByItselfAfterItsLength) {
  settings_.length = std::chrono::milliseconds(150);
  Timeline timeline(owner_);
  ASSERT_TRUE(timeline.Start(settings_).ok());
  timeline.Record(Span("x"));
  const TimePoint limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (timeline.active() && std::chrono::steady_clock::now() < limit) {
    timeline.Record(Span("x"));
    std::this_thread::yield();
  }
  EXPECT_FALSE(timeline.active());
  timeline.Stop("");
  EXPECT_FALSE(Records().empty());
  EXPECT_THAT(Lines(), HasSubstr("\"type\":\"end\""));
}

// What was recorded a while before a process is killed can be read.
TEST_F(TimelineTest, IsWrittenWhileItIsRecorded) {
  Timeline timeline(owner_);
  ASSERT_TRUE(timeline.Start(settings_).ok());
  timeline.Record(Span("x"));
  const TimePoint limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (WrittenSoFar() == 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  EXPECT_EQ(Records().size(), 1u);
  EXPECT_THAT(Lines(), HasSubstr(R"("text":"x")"));
}

TEST_F(TimelineTest, WritesEachSpanOnce) {
  Timeline timeline(owner_);
  ASSERT_TRUE(timeline.Start(settings_).ok());
  const TimePoint limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (size_t written = 1; written < 4; ++written) {
    timeline.Record(Span("x"));
    while (WrittenSoFar() < written &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
  }
  timeline.Stop("");
  EXPECT_EQ(Records().size(), 3u);
}

// Long before the usual time, as there would be no room.
TEST_F(TimelineTest, IsWrittenOnceItIsHalfFull) {
  Timeline timeline(owner_, nullptr, /*capacity=*/100);
  ASSERT_TRUE(timeline.Start(settings_).ok());
  // The usual one would take 20 s for as many.
  constexpr size_t kEnough = 10'000;
  const TimePoint limit =
      std::chrono::steady_clock::now() + std::chrono::seconds(5);
  size_t written = 0;
  while (written < kEnough && std::chrono::steady_clock::now() < limit) {
    const std::vector<TraceSpan> spans(50, Span("x"));
    timeline.Record(spans.data(), spans.size());
    written += spans.size();
    while (WrittenSoFar() < written &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
  }
  timeline.Stop("");
  EXPECT_EQ(Records().size(), kEnough);
}

// A program that names its tensors anew in each step.
TEST_F(TimelineTest, NamesHaveALimit) {
  constexpr int kMost = 200'000;
  Timeline timeline(owner_, nullptr, /*capacity=*/kMost + 10);
  ASSERT_TRUE(timeline.Start(settings_).ok());
  for (int i = 0; i < kMost + 2; ++i) {
    timeline.Record(Span(std::to_string(i).c_str()));
  }
  timeline.Record(Span("0"));
  timeline.Stop("");
  const std::vector<TimelineRecord> records = Records();
  ASSERT_EQ(records.size(), kMost + 3u);
  EXPECT_EQ(records[kMost - 1].name, static_cast<uint32_t>(kMost));
  EXPECT_EQ(records[kMost].name, 0u);
  EXPECT_EQ(records[kMost + 1].name, 0u);
  EXPECT_EQ(records[kMost + 2].name, 1u);
}

TEST_F(TimelineTest, AFullDiskEndsItAndNothingElse) {
  LogCapture log;
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 4096;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  Timeline timeline(owner_);
  ASSERT_TRUE(timeline.Start(settings_).ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<TraceSpan> spans(1000, Span("x"));
  timeline.Record(spans.data(), spans.size());
  timeline.Stop("");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(log.lines(), testing::Contains(testing::AllOf(
                               HasSubstr("cannot write the timeline"),
                               HasSubstr("rank.3.spans"))));
}

TEST_F(TimelineTest, SaysWhyItCannotBegin) {
  Timeline timeline(owner_);
  settings_.directory = "/does/not/exist.ranks";
  const Status status = timeline.Start(settings_);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("/does/not/exist.ranks"));
  EXPECT_FALSE(timeline.active());
}

// Under TSAN: threads record while others start and stop.
TEST_F(TimelineTest, ThreadsMayRecordAtAnyTime) {
  Timeline timeline(owner_);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!over) {
        if (timeline.active()) timeline.Record(Span("x"));
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(timeline.Start(settings_).ok());
    timeline.SetClock(TimePoint(), Duration(), Duration());
    timeline.Stop("");
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  for (const TimelineRecord& record : Records()) EXPECT_EQ(record.tag, 33u);
}

TEST_F(TimelineTest, TagsOfProcessSetsAreTheirOwn) {
  const auto timeline = std::make_shared<Timeline>(owner_);
  ProcessSetTrace set(timeline, 2);
  EXPECT_FALSE(set.active());
  ASSERT_TRUE(timeline->Start(settings_).ok());
  EXPECT_TRUE(set.active());
  set.Record(Span("x"));
  timeline->Stop("");
  ASSERT_EQ(Records().size(), 1u);
  EXPECT_EQ(Records()[0].tag, (uint64_t{2} << 48) + 33);
}

}  // namespace
}  // namespace keras_ring
