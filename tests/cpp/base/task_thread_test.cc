#include "csrc/base/task_thread.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace keras_ring {
namespace {

TEST(TaskThreadTest, DoesAllInOrderBeforeItEnds) {
  std::vector<int> done;
  {
    auto thread = TaskThread::Start("test");
    ASSERT_TRUE(thread.ok());
    for (int i = 0; i < 1000; ++i) {
      (*thread)->Push([&done, i] { done.push_back(i); });
    }
  }
  ASSERT_EQ(done.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(done[i], i);
}

TEST(TaskThreadTest, EndsWithoutEverHavingHadATask) {
  ASSERT_TRUE(TaskThread::Start("test").ok());
}

}  // namespace
}  // namespace keras_ring
