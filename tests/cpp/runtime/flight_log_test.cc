#include "csrc/runtime/diagnostics/flight_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace keras_ring {
namespace {

using ::testing::HasSubstr;

FlightLog LogOf(const std::string& name) {
  auto request = std::make_shared<Request>();
  request->name = name;
  request->op = ReduceOp::kAverage;
  request->tensors = {{DType::kFloat32, {3, 4}}, {DType::kInt64, {}}};
  FlightRecord record;
  record.number = 5;
  record.request = request;
  record.submitted = std::chrono::steady_clock::now();
  FlightLog log;
  log.rank = 1;
  log.members = {0, 1, 3};
  log.reason = "a test";
  log.records = {record};
  return log;
}

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class FlightLogTest : public ::testing::Test {
 protected:
  FlightLogTest() {
    char name[] = "/tmp/kr-flight-XXXXXX";
    parent_ = mkdtemp(name);
  }
  ~FlightLogTest() override {
    const std::string remove = "rm -r " + parent_;
    EXPECT_EQ(std::system(remove.c_str()), 0);
  }
  std::string parent_;
};

TEST(FlightLogTextTest, LargeJobsWriteLessOfEachRank) {
  EXPECT_EQ(NumLoggedRecords(1), FlightRecorder::kUsualCapacity);
  EXPECT_EQ(NumLoggedRecords(256), FlightRecorder::kUsualCapacity);
  EXPECT_EQ(NumLoggedRecords(512), 2048u);
  EXPECT_EQ(NumLoggedRecords(1 << 20), 256u);
}

// What a rank still waits for is what one looks for.
TEST(FlightLogTextTest, WhatHasNotEndedIsWrittenHoweverOld) {
  std::vector<FlightRecord> records(6);
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].number = i + 1;
    records[i].state = FlightState::kDone;
  }
  records[1].state = FlightState::kWaiting;
  records[2].state = FlightState::kRunning;
  std::vector<uint64_t> numbers;
  for (const FlightRecord& record : NewestRecords(records, 2)) {
    numbers.push_back(record.number);
  }
  EXPECT_EQ(numbers, (std::vector<uint64_t>{2, 3, 5, 6}));
  EXPECT_EQ(NewestRecords(records, 6).size(), 6u);
}

TEST(FlightLogTextTest, TellsAllOfARecord) {
  FlightLog log = LogOf("dense/kernel");
  std::string text = FlightLogText(log);
  EXPECT_THAT(text,
              HasSubstr("\"format\": 1, \"rank\": 1, \"members\": [0, 1, 3], "
                        "\"process_set\": 0, \"host\": \""));
  EXPECT_THAT(text, HasSubstr("\"reason\": \"a test\""));
  EXPECT_THAT(
      text,
      HasSubstr("{\"number\": 5, \"name\": \"dense/kernel\", \"kind\": "
                "\"allreduce\", \"op\": \"Average\", \"tensors\": "
                "[[\"float32\", 3, 4], [\"int64\"]], \"state\": \"waiting\", "
                "\"decision\": null, \"submitted\": 1"));
  EXPECT_THAT(text, HasSubstr("\"decided\": null, \"ended\": null}"));

  log.records[0].state = FlightState::kFailed;
  log.records[0].decided = log.records[0].ended = log.records[0].submitted;
  log.records[0].decision = 12;
  log.records[0].last = LastReady::Of(3, std::chrono::microseconds(4100));
  log.records[0].error = "INTERNAL: why";
  text = FlightLogText(log);
  EXPECT_THAT(text, HasSubstr("\"state\": \"failed\", \"decision\": 12, "
                              "\"last_rank\": 3, \"late\": 0.004100, "
                              "\"submitted\": 1"));
  EXPECT_THAT(text, HasSubstr(", \"error\": \"INTERNAL: why\"}"));
}

TEST(FlightLogTextTest, QuotesWhatJsonWouldTakeForItsOwn) {
  EXPECT_THAT(FlightLogText(LogOf("a\"b\\c\nd\x01")),
              HasSubstr("\"a\\\"b\\\\c\\u000ad\\u0001\""));
}

// The file of rank 1, and this process.
std::string OwnFile(const std::string& ending) {
  return "flight.1." + std::to_string(getpid()) + ending;
}

TEST_F(FlightLogTest, IsForItsUserAlone) {
  const std::string directory = parent_ + "/new";
  const Result<std::string> path = WriteFlightLog(directory, LogOf("x"));
  ASSERT_TRUE(path.ok()) << path.status().message();
  EXPECT_EQ(*path, directory + "/" + OwnFile(".json"));
  EXPECT_THAT(Read(*path), HasSubstr("\"name\": \"x\""));
  struct stat about;
  ASSERT_EQ(stat(path->c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(directory.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
}

TEST_F(FlightLogTest, ALaterOneTakesItsPlace) {
  ASSERT_TRUE(WriteFlightLog(parent_, LogOf("first")).ok());
  FlightLog log = LogOf("second");
  ASSERT_TRUE(WriteFlightLog(parent_, log).ok());
  EXPECT_THAT(Read(parent_ + "/" + OwnFile(".json")), HasSubstr("second"));
  log.process_set = 3;
  ASSERT_TRUE(WriteFlightLog(parent_, log).ok());
  EXPECT_EQ(access((parent_ + "/" + OwnFile(".set.3.json")).c_str(), F_OK), 0);
}

// Of another job, or of an earlier generation of this one.
TEST_F(FlightLogTest, OfAnotherProcessIsLeftAlone) {
  const pid_t other = fork();
  if (other == 0) _exit(WriteFlightLog(parent_, LogOf("theirs")).ok() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(WriteFlightLog(parent_, LogOf("own")).ok());
  EXPECT_THAT(Read(parent_ + "/flight.1." + std::to_string(other) + ".json"),
              HasSubstr("theirs"));
  EXPECT_THAT(Read(parent_ + "/" + OwnFile(".json")), HasSubstr("own"));
}

TEST_F(FlightLogTest, DoesNotWriteThroughALinkThatSomebodyHasLeft) {
  const std::string target = parent_ + "/target";
  std::ofstream(target) << "precious";
  const std::string part = parent_ + "/" + OwnFile(".json.part");
  ASSERT_EQ(symlink(target.c_str(), part.c_str()), 0);
  ASSERT_TRUE(WriteFlightLog(parent_, LogOf("x")).ok());
  EXPECT_EQ(Read(target), "precious");
}

TEST_F(FlightLogTest, SaysWhatItCouldNotWrite) {
  const Result<std::string> path =
      WriteFlightLog(parent_ + "/none/deeper", LogOf("x"));
  ASSERT_FALSE(path.ok());
  EXPECT_THAT(path.status().message(),
              HasSubstr("cannot write the flight record " + parent_ +
                        "/none/deeper/" + OwnFile(".json") + ": No such file"));
}

}  // namespace
}  // namespace keras_ring
