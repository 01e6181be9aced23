// Many threads that want memory, while time goes by and a peer reads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"
#include "csrc/comm/host/arena.h"

namespace keras_ring {
namespace {

constexpr size_t kPage = 4096;
constexpr int kThreads = 4;
constexpr int kRounds = 3000;
// What each thread has lent and had read before it ends: how often the peer
// gets to run is the scheduler's affair, so threads go on until it has.
constexpr int kLoans = 50;

// A block filled with its mark in every page.
struct Block {
  char* data;
  size_t bytes;
  char mark;
};

void Fill(const Block& block) {
  for (size_t at = 0; at < block.bytes; at += kPage)
    block.data[at] = block.mark;
  block.data[block.bytes - 1] = block.mark;
}

bool IsWhole(const char* data, size_t bytes, char mark) {
  for (size_t at = 0; at < bytes; at += kPage) {
    if (data[at] != mark) return false;
  }
  return data[bytes - 1] == mark;
}

// What an owner lends the peer: the owner keeps it until it is read.
class Desk {
 public:
  // False if something lies there already.
  bool Lend(const Block& block) KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (full_) return false;
    full_ = true;
    block_ = block;
    return true;
  }
  bool Look(Block* block) KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    *block = block_;
    return full_ && !read_;
  }
  void SetRead() KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    read_ = true;
  }
  // Whether the block that was lent has been read; then the desk is empty.
  bool TakeBack() KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!read_) return false;
    full_ = read_ = false;
    return true;
  }

 private:
  Mutex mutex_;
  bool full_ KR_GUARDED_BY(mutex_) = false;
  bool read_ KR_GUARDED_BY(mutex_) = false;
  Block block_ KR_GUARDED_BY(mutex_) = {};
};

class ArenaStress : public testing::Test {
 protected:
  ArenaStress() {
    auto arena =
        Arena::Create(size_t{1} << 34, clock_, {std::chrono::seconds(1), 0});
    KR_CHECK(arena.ok());
    arena_ = std::move(arena).value();
  }

  // Like a rank: blocks of random sizes live for random times; now and then one
  // is lent, and freed as soon as it was read.
  void Use(int thread, Desk& desk) {
    std::mt19937 random(thread);
    std::vector<Block> live;
    Block lent = {};
    bool lends = false;
    int loans = 0;
    const Deadline deadline = Deadline::AfterSeconds(60);
    for (int i = 0; i < kRounds || loans < kLoans; ++i) {
      ASSERT_FALSE(deadline.expired()) << loans << " blocks were read";
      clock_.Advance(std::chrono::milliseconds(random() % 4));
      if (lends && desk.TakeBack()) {
        ASSERT_TRUE(IsWhole(lent.data, lent.bytes, lent.mark));
        arena_->Free(lent.data);
        lends = false;
        ++loans;
      }
      // Bursts and lulls, so that pages are kept, given back and taken again.
      const size_t wanted = i / 500 % 2 == 0 ? 24 : 3;
      if (live.size() < wanted && random() % 3 != 0) {
        const size_t bytes =
            random() % (random() % 16 == 0 ? 512 : 24) * kPage + 1 +
            random() % kPage;
        Block block = {static_cast<char*>(arena_->Allocate(bytes)), bytes,
                       static_cast<char>(1 + random() % 255)};
        ASSERT_NE(block.data, nullptr);
        Fill(block);
        live.push_back(block);
      } else if (!live.empty()) {
        const size_t which = random() % live.size();
        const Block block = live[which];
        live[which] = live.back();
        live.pop_back();
        ASSERT_TRUE(IsWhole(block.data, block.bytes, block.mark));
        if (!lends && desk.Lend(block)) {
          lends = true;
          lent = block;
        } else {
          arena_->Free(block.data);
        }
      }
      if (random() % 64 == 0) std::this_thread::yield();
      if (random() % 512 == 0) {
        Pause(std::chrono::microseconds(random() % 1000),
              Deadline::AfterSeconds(1));
      }
    }
    while (lends) {
      if (desk.TakeBack()) {
        arena_->Free(lent.data);
        lends = false;
      }
      std::this_thread::yield();
    }
    for (const Block& block : live) {
      ASSERT_TRUE(IsWhole(block.data, block.bytes, block.mark));
      arena_->Free(block.data);
    }
  }

  ManualClock clock_;
  std::unique_ptr<Arena> arena_;
};

TEST_F(ArenaStress, NoBlockIsEverTouchedByAnother) {
  auto peer =
      SharedMemory::Map(Socket(dup(arena_->memory().descriptor().fd())),
                        arena_->memory().bytes(), SharedMemory::Access::kRead);
  ASSERT_TRUE(peer.ok());
  std::vector<Desk> desks(kThreads);
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0}, read{0};
  std::thread reader([&] {
    while (!over.load()) {
      for (Desk& desk : desks) {
        Block block;
        if (!desk.Look(&block)) continue;
        const size_t offset = block.data - arena_->memory().data();
        wrong += !IsWhole(peer->data() + offset, block.bytes, block.mark);
        ++read;
        desk.SetRead();
      }
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> users;
  for (int i = 0; i < kThreads; ++i) {
    users.emplace_back([this, i, &desks] { Use(i, desks[i]); });
  }
  for (std::thread& user : users) user.join();
  over = true;
  reader.join();

  EXPECT_EQ(wrong, 0);
  EXPECT_GE(read, kThreads * kLoans);
  EXPECT_EQ(arena_->stats().bytes_in_use, 0u);
  EXPECT_EQ(arena_->stats().blocks, 0u);
  EXPECT_GT(arena_->stats().bytes_returned, 0u);
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(std::chrono::seconds(2));
    arena_->Free(arena_->Allocate(1));
  }
  EXPECT_LE(arena_->stats().bytes_kept, kPage);
}

}  // namespace
}  // namespace keras_ring
