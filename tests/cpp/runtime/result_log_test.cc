#include "csrc/runtime/elastic/result_log.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace keras_ring {
namespace {

using Use = ResultLog::Use;
using Results = ResultLog::Results;

// What a rank with this log gives to one that lacks these.
ResultLog::Found Ask(const ResultLog& log, const std::vector<Use>& wanted) {
  const auto read = ResultLog::DecodeWanted(ResultLog::EncodeWanted(wanted));
  EXPECT_TRUE(read.ok());
  ResultLog::Found found;
  EXPECT_TRUE(ResultLog::DecodeFound(log.EncodeFound(*read), found).ok());
  return found;
}

TEST(ResultLog, CountsTheUsesOfAName) {
  ResultLog log;
  EXPECT_EQ(log.Begin("a").number, 0u);
  EXPECT_EQ(log.Begin("b").number, 0u);
  const Use second = log.Begin("a");
  EXPECT_EQ(second.number, 1u);
  log.TakeBack(second);
  EXPECT_EQ(log.Begin("a").number, 1u);
}

TEST(ResultLog, GivesWhatIsWantedAndThere) {
  ResultLog log;
  log.Add({"a", 0}, Results{"old"});
  log.Add({"a", 1}, Results{"one", std::string("\0two", 4)});
  log.Add({"barrier", 0}, Results{});
  log.Add({"scattered", 3}, std::nullopt);
  const auto found =
      Ask(log, {{"a", 1}, {"a", 2}, {"barrier", 0}, {"scattered", 3}});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(*found.at({"a", 1}), (Results{"one", std::string("\0two", 4)}));
  EXPECT_EQ(*found.at({"barrier", 0}), Results());
  // It has ended, and nobody can have its results.
  EXPECT_FALSE(found.at({"scattered", 3}).has_value());
  EXPECT_TRUE(Ask(log, {}).empty());
}

TEST(ResultLog, RemembersNoLargeResults) {
  ResultLog log;
  log.Add({"large", 0}, Results{std::string(ResultLog::kMostOfOne, 'x')});
  EXPECT_FALSE(Ask(log, {{"large", 0}}).at({"large", 0}).has_value());
}

TEST(ResultLog, ForgetsTheOldest) {
  ResultLog log;
  const std::string some(ResultLog::kMostOfOne / 2, 'x');
  const uint64_t count = 2 * ResultLog::kMostOfAll / some.size();
  for (uint64_t i = 0; i < count; ++i) log.Add({"a", i}, Results{some});
  EXPECT_TRUE(Ask(log, {{"a", 0}}).empty());
  EXPECT_EQ(*Ask(log, {{"a", count - 1}}).at({"a", count - 1}), Results{some});
}

TEST(ResultLog, OtherBytesAreErrors) {
  ResultLog log;
  log.Add({"name", 300}, Results{"result"});
  const std::string wanted = ResultLog::EncodeWanted({{"name", 300}});
  const std::string found = log.EncodeFound({{"name", 300}});
  ResultLog::Found read;
  for (size_t length = 0; length < wanted.size(); ++length) {
    EXPECT_FALSE(ResultLog::DecodeWanted(wanted.substr(0, length)).ok());
  }
  for (size_t length = 0; length < found.size(); ++length) {
    EXPECT_FALSE(ResultLog::DecodeFound(found.substr(0, length), read).ok());
  }
  EXPECT_FALSE(ResultLog::DecodeWanted(wanted + "x").ok());
  EXPECT_FALSE(ResultLog::DecodeFound(found + "x", read).ok());
}

}  // namespace
}  // namespace keras_ring
