#include "csrc/comm/host/arena.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace keras_ring {
namespace {

using std::chrono::seconds;

constexpr size_t kPage = 4096;

// Pages of the process that are in shared memory: what the kernel says.
uint64_t ResidentSharedBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssShmem:", 0) == 0) {
      return std::stoull(line.substr(9)) * 1024;
    }
  }
  return 0;
}

class ArenaTest : public testing::Test {
 protected:
  explicit ArenaTest(size_t bytes = size_t{1} << 36,
                     const ArenaOptions& options = {seconds(10), 0}) {
    auto arena = Arena::Create(bytes, clock_, options);
    KR_CHECK(arena.ok());
    arena_ = std::move(arena).value();
  }

  void* Allocate(size_t bytes) {
    void* block = arena_->Allocate(bytes);
    EXPECT_NE(block, nullptr);
    std::memset(block, 0x5a, bytes);  // now its pages are there
    return block;
  }

  ManualClock clock_;
  std::unique_ptr<Arena> arena_;
};

// Of any slack and any peak: a part of a page that went back to the system
// would take a part of a block with it.
TEST(ArenaPages, WhatGoesBackIsWholePagesToo) {
  for (uint64_t slack : {uint64_t{1}, 3 * kPage + 7, uint64_t{64} << 20}) {
    ManualClock clock;
    auto arena = Arena::Create(size_t{1} << 36, clock, {seconds(10), slack});
    ASSERT_TRUE(arena.ok());
    std::mt19937 random(1);
    std::vector<std::pair<char*, size_t>> blocks;
    for (int i = 0; i < 20000; ++i) {
      if (!blocks.empty() && random() % 2 == 0) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        const auto [block, bytes] = blocks.back();
        const char mark = block[0];
        ASSERT_NE(mark, 0);
        ASSERT_EQ(std::count(block, block + bytes, mark), ptrdiff_t(bytes));
        (*arena)->Free(block);
        blocks.pop_back();
      } else {
        const size_t bytes = random() % (30 * kPage) + 1;
        char* block = static_cast<char*>((*arena)->Allocate(bytes));
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % kPage, 0u);
        std::memset(block, random() % 100 + 1, bytes);
        blocks.emplace_back(block, bytes);
      }
      if (random() % 100 == 0) clock.Advance(seconds(4));
    }
    EXPECT_GT((*arena)->stats().bytes_returned, 0u);
    for (const auto& [block, bytes] : blocks) (*arena)->Free(block);
  }
}

TEST_F(ArenaTest, BlocksAreWholePagesOfItsOwn) {
  void* a = Allocate(1);
  void* b = Allocate(kPage + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % kPage, 0u);
  EXPECT_EQ(arena_->BlockBytes(a), kPage);
  EXPECT_EQ(arena_->BlockBytes(b), 2 * kPage);
  EXPECT_TRUE(arena_->Contains(a));
  EXPECT_FALSE(arena_->Contains(this));
  EXPECT_EQ(arena_->stats().bytes_in_use, 3 * kPage);
  arena_->Free(a);
  arena_->Free(b);
  EXPECT_EQ(arena_->stats().bytes_in_use, 0u);
  EXPECT_EQ(arena_->BlockBytes(a), 0u);
}

TEST_F(ArenaTest, WhatWasFreedIsUsedAgain) {
  void* first = Allocate(10 * kPage);
  arena_->Free(first);
  EXPECT_EQ(arena_->stats().bytes_kept, 10 * kPage);
  EXPECT_EQ(Allocate(10 * kPage), first);
}

// Many steps of a training, each with the same blocks in another order: no page
// is ever given back or asked for again.
TEST_F(ArenaTest, StepsThatRepeatNeedNoNewPages) {
  std::mt19937 random(1);
  std::vector<size_t> sizes;
  for (int i = 0; i < 60; ++i) sizes.push_back((random() % 40 + 8) * kPage);
  uint64_t resident = 0;
  for (int step = 0; step < 200; ++step) {
    std::vector<void*> blocks;
    for (size_t bytes : sizes) blocks.push_back(Allocate(bytes));
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (void* block : blocks) arena_->Free(block);
    clock_.Advance(std::chrono::milliseconds(100));
    if (step == 20) resident = ResidentSharedBytes();
  }
  EXPECT_EQ(ResidentSharedBytes(), resident);
  EXPECT_EQ(arena_->stats().bytes_returned, 0u);
}

TEST_F(ArenaTest, MemoryGoesBackWhenItIsNotNeededForAWhile) {
  const uint64_t before = ResidentSharedBytes();
  std::vector<void*> large;
  for (int i = 0; i < 16; ++i) large.push_back(Allocate(256 * kPage));
  for (void* block : large) arena_->Free(block);
  EXPECT_EQ(arena_->stats().bytes_kept, 16 * 256 * kPage);
  // Now little is in use. After two windows nothing else counts.
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(seconds(11));
    arena_->Free(Allocate(kPage));
  }
  EXPECT_LE(arena_->stats().bytes_kept, kPage);
  EXPECT_LE(ResidentSharedBytes(), before + 2 * kPage);
}

// A little more than ever before does not cost the pages of a large block.
TEST_F(ArenaTest, OnlyTheExcessGoesBackAndTheOldestFirst) {
  void* small = Allocate(8 * kPage);
  void* other = Allocate(100 * kPage);
  arena_->Free(small);
  arena_->Free(other);
  void* wide = Allocate(104 * kPage);  // of the two together; 4 are left
  small = Allocate(8 * kPage);
  EXPECT_EQ(arena_->stats().bytes_in_use, 112 * kPage);
  arena_->Free(wide);
  arena_->Free(small);
  EXPECT_EQ(arena_->stats().bytes_kept, 112 * kPage);
  EXPECT_EQ(arena_->stats().bytes_returned, 4 * kPage);
}

class SmallArenaTest : public ArenaTest {
 protected:
  SmallArenaTest() : ArenaTest(64 * kPage) {}
};

TEST_F(SmallArenaTest, IsFullWhenItIsAndServesAfterwards) {
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(Allocate(kPage));
  EXPECT_EQ(arena_->Allocate(1), nullptr);
  for (int i = 0; i < 64; i += 2) arena_->Free(blocks[i]);
  EXPECT_EQ(arena_->Allocate(2 * kPage), nullptr) << "only single pages";
  for (int i = 1; i < 64; i += 2) arena_->Free(blocks[i]);
  EXPECT_NE(arena_->Allocate(64 * kPage), nullptr);
}

// Pieces that were given back and pieces that were kept, side by side.
TEST_F(SmallArenaTest, JoinsUnlikeNeighboursBeforeItGivesUp) {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(Allocate(8 * kPage));
  for (int i = 0; i < 8; i += 2) arena_->Free(blocks[i]);
  for (int i = 0; i < 3; ++i) {  // gives back what is free
    clock_.Advance(seconds(11));
    arena_->Free(blocks[1]);
    blocks[1] = Allocate(8 * kPage);
  }
  for (int i = 1; i < 8; i += 2) arena_->Free(blocks[i]);
  EXPECT_NE(arena_->Allocate(64 * kPage), nullptr);
}

// Against a model: blocks keep their contents, and never overlap.
TEST_F(ArenaTest, RandomBlocksKeepTheirContents) {
  std::mt19937 random(7);
  std::map<char*, std::pair<size_t, char>> model;
  uint64_t in_use = 0;
  for (int i = 0; i < 20000; ++i) {
    clock_.Advance(std::chrono::milliseconds(random() % 10));
    if (model.size() < 40 && random() % 2 == 0) {
      const size_t bytes = (random() % 30 + 1) * kPage;
      char* block = static_cast<char*>(arena_->Allocate(bytes));
      ASSERT_NE(block, nullptr);
      const char mark = static_cast<char>(random());
      block[0] = block[bytes - 1] = mark;
      model[block] = {bytes, mark};
      in_use += bytes;
    } else if (!model.empty()) {
      auto it = std::next(model.begin(), random() % model.size());
      const auto [bytes, mark] = it->second;
      ASSERT_EQ(it->first[0], mark);
      ASSERT_EQ(it->first[bytes - 1], mark);
      arena_->Free(it->first);
      in_use -= bytes;
      model.erase(it);
    }
    const Arena::Stats stats = arena_->stats();
    ASSERT_EQ(stats.bytes_in_use, in_use);
    ASSERT_EQ(stats.blocks, model.size());
  }
}

// New pages, while kept ones are in pieces too small: these go back at once,
// not when the next block is freed.
TEST_F(ArenaTest, NewPagesTakeThePlaceOfKeptOnes) {
  std::vector<void*> small;
  for (int i = 0; i < 64; ++i) small.push_back(Allocate(8 * kPage));
  for (int i = 0; i < 64; i += 2) arena_->Free(small[i]);
  Allocate(256 * kPage);
  const Arena::Stats stats = arena_->stats();
  EXPECT_EQ(stats.bytes_in_use, 512 * kPage);
  EXPECT_EQ(stats.bytes_kept, 0u);
  EXPECT_EQ(stats.bytes_returned, 256 * kPage);
}

class SlackArenaTest : public ArenaTest {
 protected:
  SlackArenaTest() : ArenaTest(size_t{1} << 36, {seconds(10), 64 * kPage}) {}
};

// Pieces into which nothing fits stay, but not many of them.
TEST_F(SlackArenaTest, SomePiecesStayBesideNewPages) {
  std::vector<void*> small;
  for (int i = 0; i < 128; ++i) small.push_back(Allocate(8 * kPage));
  for (int i = 0; i < 128; i += 2) arena_->Free(small[i]);
  EXPECT_EQ(arena_->stats().bytes_kept, 512 * kPage);
  Allocate(64 * kPage);
  EXPECT_EQ(arena_->stats().bytes_returned, 0u);
  Allocate(512 * kPage);
  EXPECT_EQ(arena_->stats().bytes_in_use, 1088 * kPage);
  EXPECT_EQ(arena_->stats().bytes_kept, 64 * kPage);
}

// Runs `in_child` in the child of a fork, after `in_parent` has run in the
// parent; returns the child's exit code.
template <typename Child, typename Parent>
int Fork(Arena& arena, const Child& in_child, const Parent& in_parent) {
  int go[2];
  KR_CHECK(pipe(go) == 0);
  arena.BeforeFork();
  const pid_t child = fork();
  arena.AfterFork(child == 0);
  if (child == 0) {
    close(go[1]);
    char none;
    (void)!read(go[0], &none, 1);
    _exit(in_child());
  }
  in_parent();
  close(go[0]);
  close(go[1]);
  int state = 0;
  KR_CHECK(waitpid(child, &state, 0) == child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

bool AllBytesAre(char value, const void* block, size_t bytes) {
  const char* at = static_cast<const char*>(block);
  return std::all_of(at, at + bytes, [&](char c) { return c == value; });
}

// Parent and child have the same contents, and then each its own, whatever the
// other one does.
TEST_F(ArenaTest, AForkDoesNotShareTensors) {
  constexpr size_t kBytes = 16 * kPage;
  void* changed = Allocate(kBytes);
  void* freed = Allocate(kBytes);
  void* kept = Allocate(kBytes);
  const int code = Fork(
      *arena_,
      [&] {
        if (arena_->shared()) return 1;
        if (!AllBytesAre(0x5a, changed, kBytes)) return 2;
        if (!AllBytesAre(0x5a, freed, kBytes)) return 3;
        std::memset(kept, 'c', kBytes);
        arena_->Free(freed);
        void* fresh = arena_->Allocate(4 * kBytes);
        std::memset(fresh, 'c', 4 * kBytes);
        return AllBytesAre('c', kept, kBytes) ? 0 : 4;
      },
      [&] {
        std::memset(changed, 'p', kBytes);
        arena_->Free(freed);
        std::memset(arena_->Allocate(kBytes), 'p', kBytes);
      });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(AllBytesAre(0x5a, kept, kBytes));
  EXPECT_TRUE(AllBytesAre('p', changed, kBytes));
  EXPECT_TRUE(arena_->shared());
}

// The child has what it needs, and gives back what it does not.
TEST_F(ArenaTest, TheChildOfAForkHasAnArenaLikeAnyOther) {
  Arena& arena = *arena_;
  constexpr size_t kAgain = 200 * kPage;
  char* block = static_cast<char*>(Allocate(256 * kPage));
  char* end = block + 256 * kPage;
  const int code = Fork(
      arena,
      [&] {
        arena.Free(block);
        for (int i = 0; i < 3; ++i) {
          clock_.Advance(seconds(11));
          arena.Free(arena.Allocate(kPage));
        }
        if (arena.stats().bytes_kept > kPage) return 1;
        void* again = arena.Allocate(kAgain);
        // At the same place, but new pages, hence zero.
        if (again < block || again > end) return 2;
        if (!AllBytesAre(0, again, kAgain)) return 3;
        std::memset(again, 'c', kAgain);
        return Fork(
            arena, [&] { return AllBytesAre('c', again, kAgain) ? 0 : 4; },
            [] {});
      },
      [] {});
  EXPECT_EQ(code, 0);
}

// A peer that maps the arena sees nothing of the child.
TEST_F(ArenaTest, PeersReadTheParentNotTheChild) {
  void* block = Allocate(kPage);
  Result<SharedMemory> peer =
      SharedMemory::Map(Socket(dup(arena_->memory().descriptor().fd())),
                        arena_->memory().bytes(), SharedMemory::Access::kRead);
  ASSERT_TRUE(peer.ok());
  const size_t offset = static_cast<char*>(block) - arena_->memory().data();
  EXPECT_EQ(Fork(
                *arena_,
                [&] {
                  std::memset(block, 'c', kPage);
                  return 0;
                },
                [] {}),
            0);
  EXPECT_TRUE(AllBytesAre(0x5a, peer->data() + offset, kPage));
}

class ForkedArenaTest : public ArenaTest {
 protected:
  static constexpr size_t kCopied = 8 * kPage;
  ForkedArenaTest()
      : ArenaTest(size_t{1} << 36,
                  {seconds(10), 0, kCopied, std::chrono::milliseconds(200)}) {}

  // Of the arena, that the system has given.
  uint64_t FileBytes() {
    struct stat facts = {};
    KR_CHECK(fstat(arena_->memory().descriptor().fd(), &facts) == 0);
    return facts.st_blocks * 512;
  }
};

// The private pages of the mapping that an address is in. A sanitizer has some
// of its own elsewhere.
uint64_t PrivateBytes(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto place = reinterpret_cast<uintptr_t>(address);
  uint64_t bytes = 0;
  bool is_in_it = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      is_in_it = begin <= place && place < end;
    } else if (is_in_it && line.rfind("Private_", 0) == 0) {
      bytes += std::stoull(line.substr(line.find(':') + 1)) * 1024;
    }
  }
  return bytes;
}

// A copy of many gigabytes takes seconds, and in each of some workers it is
// more memory than there is. So a child sees the blocks where they are, and
// what it does to them is its own.
TEST_F(ForkedArenaTest, AForkOfManyTensorsCopiesNone) {
  constexpr size_t kLarge = 4096 * kPage;
  char* block = static_cast<char*>(Allocate(kLarge));
  char* freed = static_cast<char*>(Allocate(16 * kPage));
  Allocate(kPage);
  arena_->Free(freed);
  EXPECT_FALSE(arena_->IsCopiedByFork());
  const uint64_t before = FileBytes();
  const int code = Fork(
      *arena_,
      [&] {
        if (arena_->shared() || !arena_->IsCopiedByFork()) return 1;
        if (!AllBytesAre(0x5a, block, kLarge)) return 2;
        if (PrivateBytes(block) > kLarge / 2) return 3;
        std::memset(block, 'c', 16 * kPage);
        // Its new blocks take nothing of the parent's.
        char* fresh = static_cast<char*>(arena_->Allocate(kLarge));
        if (!AllBytesAre(0, fresh, kLarge)) return 4;
        std::memset(fresh, 'c', kLarge);
        arena_->Free(block);
        clock_.Advance(seconds(30));
        arena_->Free(arena_->Allocate(kPage));
        // Given back, and had again: nothing of the parent's is there.
        char* again = static_cast<char*>(arena_->Allocate(kLarge));
        if (!AllBytesAre(0, again, kLarge)) return 5;
        std::memset(again, 'c', kLarge);
        if (FileBytes() != before) return 6;
        // The child of a child has all of it.
        return Fork(
            *arena_, [&] { return AllBytesAre('c', fresh, kLarge) ? 0 : 7; },
            [] {});
      },
      [] {});
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(AllBytesAre(0x5a, block, kLarge));
  EXPECT_EQ(FileBytes(), before);
  EXPECT_TRUE(arena_->shared());
}

TEST_F(ForkedArenaTest, FewAreCopied) {
  char* block = static_cast<char*>(Allocate(kCopied));
  EXPECT_TRUE(arena_->IsCopiedByFork());
  EXPECT_EQ(
      Fork(
          *arena_, [&] { return AllBytesAre(0x5a, block, kCopied) ? 0 : 1; },
          [&] { std::memset(block, 'p', kCopied); }),
      0);
}

// Fault: the child hangs in what another library does after a fork, before it
// has its copy. Its parent goes on after a while.
TEST_F(ForkedArenaTest, AChildThatHangsHoldsItsParentUpForAWhileOnly) {
  Allocate(kPage);
  arena_->BeforeFork();
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  const TimePoint began = std::chrono::steady_clock::now();
  arena_->AfterFork(/*in_child=*/false);
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(5));
  Allocate(kPage);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace keras_ring
