#include "csrc/comm/net/descriptor_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace keras_ring {
namespace {

// Runs `body` in a process with these limits; what it returns.
template <typename Body>
int WithLimits(rlim_t soft, rlim_t hard, const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {soft, hard};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(99);
    _exit(body());
  }
  int state = 0;
  KR_CHECK(waitpid(child, &state, 0) == child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

rlim_t SoftLimit() {
  rlimit limit = {};
  KR_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  return limit.rlim_cur;
}

TEST(DescriptorLimit, IsRaisedAsFarAsIsNeeded) {
  EXPECT_EQ(WithLimits(64, 2000,
                       [] {
                         if (!MakeRoomForDescriptors(500, "it").ok()) return 1;
                         const rlim_t raised = SoftLimit();
                         return raised > 500 && raised < 1500 ? 0 : 2;
                       }),
            0);
}

TEST(DescriptorLimit, IsNotLowered) {
  EXPECT_EQ(WithLimits(1900, 2000,
                       [] {
                         if (!MakeRoomForDescriptors(10, "it").ok()) return 1;
                         return SoftLimit() == 1900 ? 0 : 2;
                       }),
            0);
}

TEST(DescriptorLimit, WhatIsNotEnoughIsSaid) {
  EXPECT_EQ(WithLimits(64, 512,
                       [] {
                         const Status status =
                             MakeRoomForDescriptors(4096, "rank 0 of 4096");
                         if (status.code() != StatusCode::kResourceExhausted) {
                           return 1;
                         }
                         const std::string& text = status.message();
                         return text.rfind("rank 0 of 4096 needs 4", 0) == 0 &&
                                        text.find("may have 512;") !=
                                            std::string::npos
                                    ? 0
                                    : 2;
                       }),
            0);
}

}  // namespace
}  // namespace keras_ring
