#include "csrc/base/thread_checker.h"

#include <gtest/gtest.h>

#include <thread>

namespace keras_ring {
namespace {

bool IsOwnerElsewhere(const ThreadChecker& checker) {
  bool owner = false;
  std::thread([&] { owner = checker.IsOwner(); }).join();
  return owner;
}

TEST(ThreadChecker, TheFirstThreadThatAsksIsTheOwner) {
  ThreadChecker checker;
  EXPECT_TRUE(checker.IsOwner());
  EXPECT_TRUE(checker.IsOwner());
  EXPECT_FALSE(IsOwnerElsewhere(checker));
}

TEST(ThreadChecker, AfterAHandOverTheNextOneIs) {
  ThreadChecker checker;
  EXPECT_TRUE(checker.IsOwner());
  checker.Detach();
  EXPECT_TRUE(IsOwnerElsewhere(checker));
  EXPECT_FALSE(checker.IsOwner());
}

}  // namespace
}  // namespace keras_ring
