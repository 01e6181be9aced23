#include "csrc/testing/log_capture.h"

#include <gtest/gtest.h>

namespace keras_ring {
namespace {

TEST(LogCaptureTest, CountsByLevel) {
  LogCapture capture;
  KR_LOG(kDebug) << "a";
  KR_LOG(kWarning) << "b" << 1;
  KR_LOG(kError) << "c";
  KR_LOG(kWarning) << "d";
  EXPECT_EQ(capture.count(LogLevel::kDebug), 1);
  EXPECT_EQ(capture.count(LogLevel::kInfo), 0);
  EXPECT_EQ(capture.count(LogLevel::kWarning), 2);
  EXPECT_EQ(capture.count(LogLevel::kError), 1);
  EXPECT_EQ(capture.lines(LogLevel::kWarning),
            (std::vector<std::string>{"b1", "c", "d"}));
}

TEST(LogCaptureTest, DropsWhatIsBelowItsLevel) {
  LogCapture capture(LogLevel::kWarning);
  KR_LOG(kInfo) << "a";
  EXPECT_TRUE(capture.lines().empty());
}

TEST(LogCaptureTest, RestoresWhatWasBefore) {
  { LogCapture capture; }
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  EXPECT_TRUE(LogEnabled(LogLevel::kWarning));
  testing::internal::CaptureStderr();
  KR_LOG(kWarning) << "to standard error";
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "W keras_ring: to standard error\n");
}

}  // namespace
}  // namespace keras_ring
