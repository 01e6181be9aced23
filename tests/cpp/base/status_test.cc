#include "csrc/base/status.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace keras_ring {
namespace {

TEST(Status, DefaultIsOk) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(OkStatus().ToString(), "OK");
}

TEST(Status, ContextGoesInFrontAndKeepsTheCode) {
  Status status = UnavailableError("reset").WithContext("rank 2");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.ToString(), "UNAVAILABLE: rank 2: reset");
  EXPECT_TRUE(OkStatus().WithContext("rank 2").ok());
}

TEST(Status, EachCodeHasAName) {
  for (const Status& status :
       {CancelledError("x"), InvalidArgumentError("x"),
        DeadlineExceededError("x"), ResourceExhaustedError("x"),
        FailedPreconditionError("x"), AbortedError("x"),
        UnimplementedError("x"), InternalError("x"), UnavailableError("x"),
        DataLossError("x"), UnauthenticatedError("x")}) {
    EXPECT_FALSE(status.ok());
    EXPECT_STRNE(StatusCodeName(status.code()), "UNKNOWN");
  }
}

TEST(Status, ErrnoTextHasTextAndNumber) {
  EXPECT_EQ(ErrnoText(ECONNREFUSED),
            "Connection refused (" + std::to_string(ECONNREFUSED) + ")");
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(3));
  ASSERT_TRUE(value.ok());
  std::unique_ptr<int> taken = std::move(value).value();
  EXPECT_EQ(*taken, 3);
  Result<std::unique_ptr<int>> error(InternalError("no"));
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().message(), "no");
}

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgumentError("odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  KR_ASSIGN_OR_RETURN(int half, Half(value));
  KR_ASSIGN_OR_RETURN(int quarter, Half(half));
  return quarter;
}

TEST(Result, MacrosPassErrorsOn) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status(), InvalidArgumentError("odd"));
}

TEST(CheckDeathTest, SaysWhatFailed) {
  EXPECT_DEATH(KR_CHECK(1 == 2), "KR_CHECK\\(1 == 2\\) failed");
}

}  // namespace
}  // namespace keras_ring
