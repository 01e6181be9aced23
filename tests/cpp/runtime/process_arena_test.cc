#include "csrc/runtime/process_arena.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "csrc/testing/log_capture.h"

namespace keras_ring {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(ProcessArenaBytesTest, ArenasOfAHostFitIntoTheAddressesOfAProcess) {
  for (uint64_t memory : {kGiB, 64 * kGiB, 2048 * kGiB, 24576 * kGiB}) {
    for (int ranks : {1, 2, 8, 24, 128, 256}) {
      const uint64_t bytes = ProcessArenaBytes(memory, ranks);
      EXPECT_LE(bytes, 4 * memory);
      EXPECT_LE(bytes * ranks, 65536 * kGiB);
      EXPECT_GE(bytes, std::min(4 * memory, 256 * kGiB));
    }
  }
  // Nobody has that many ranks on a host.
  EXPECT_EQ(ProcessArenaBytes(2048 * kGiB, 4096), 256 * kGiB);
  EXPECT_EQ(ProcessArenaBytes(kGiB, 0), 4 * kGiB);
}

// Runs `in_child` in the child of a fork; its exit code.
template <typename Child>
int Fork(const Child& in_child) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(in_child());
  }
  int state = 0;
  KR_CHECK(waitpid(child, &state, 0) == child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

// A lock that another thread has at the time of a fork is held in the child for
// ever, by nobody; and a child that hangs would hold its parent up.
TEST(ProcessArenaTest, AForkBesideThreadsThatUseTheArena) {
  ASSERT_TRUE(CreateProcessArena(2).ok());
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      const std::shared_ptr<Arena> arena = ProcessArena();
      arena->Free(arena->Allocate(8192));
    }
  });
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(Fork([] {
                const std::shared_ptr<Arena> arena = ProcessArena();
                if (arena->shared()) return 1;
                arena->Free(arena->Allocate(8192));
                return 0;
              }),
              0)
        << i;
  }
  stop = true;
  busy.join();
}

TEST(ProcessArenaTest, AForkOfManyTensorsIsSaidOnce) {
  ASSERT_TRUE(CreateProcessArena(2).ok());
  LogCapture log;
  EXPECT_EQ(Fork([] { return 0; }), 0);
  EXPECT_EQ(log.count(LogLevel::kWarning), 0);
  // Nobody touches it.
  void* large = ProcessArena()->Allocate(ProcessArena()->fork_copy_bytes() + 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Fork([] { return 0; }), 0);
  EXPECT_EQ(log.count(LogLevel::kWarning), 1);
  const std::string line = log.lines(LogLevel::kWarning).at(0);
  EXPECT_NE(line.find("more than 256 MiB of tensors"), std::string::npos)
      << line;
  EXPECT_NE(line.find("'spawn'"), std::string::npos) << line;
  ProcessArena()->Free(large);
}

}  // namespace
}  // namespace keras_ring
