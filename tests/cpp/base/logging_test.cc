#include "csrc/base/logging.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "csrc/testing/log_capture.h"

namespace keras_ring {
namespace {

TEST(Logging, LinesBelowTheLevelAreNotEvenFormatted) {
  LogCapture capture(LogLevel::kWarning);
  int formatted = 0;
  auto count = [&] { return ++formatted; };
  KR_LOG(kInfo) << count();
  KR_LOG(kWarning) << count();
  EXPECT_EQ(formatted, 1);
  EXPECT_EQ(capture.lines().size(), 1u);
}

TEST(Logging, TheRankStandsInFront) {
  LogCapture capture;
  KR_LOG(kInfo) << "no rank yet";
  SetLogRank(3);
  KR_LOG(kError) << "value " << 7;
  SetLogRank(-1);
  std::vector<std::string> lines = capture.lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "no rank yet");
  EXPECT_EQ(lines[1], "[rank 3] value 7");
}

TEST(Logging, IsOneStatementInAnIfWithoutBraces) {
  LogCapture capture;
  bool otherwise = false;
  if (capture.lines().empty())
    KR_LOG(kInfo) << "yes";
  else
    otherwise = true;
  EXPECT_FALSE(otherwise);
  EXPECT_EQ(capture.lines().size(), 1u);
}

}  // namespace
}  // namespace keras_ring
