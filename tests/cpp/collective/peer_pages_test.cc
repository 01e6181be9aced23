#include "csrc/collective/peer_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/comm/arena.h"

namespace keras_ring {
namespace {

constexpr size_t kMiB = 1 << 20;

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

// A group of this rank and two others, whose arenas it maps as it would those
// of other processes.
class PeerPagesTest : public testing::Test {
 protected:
  static constexpr int kSize = 3;
  static constexpr size_t kTensor = 8 * kMiB;

  PeerPagesTest() {
    std::vector<HostGroup::Member> members;
    for (int rank = 0; rank < kSize; ++rank) {
      auto memory = SharedMemory::Create("arena", 256 * kMiB);
      KR_CHECK(memory.ok());
      auto mapped = SharedMemory::Map(Socket(dup(memory->descriptor().fd())),
                                      256 * kMiB, SharedMemory::Access::kRead);
      KR_CHECK(mapped.ok());
      auto member = NewHostGroupMember(
          rank, layout_,
          std::make_shared<SharedMemory>(std::move(mapped).value()));
      KR_CHECK(member.ok());
      members.push_back(std::move(member).value());
      owners_.push_back(std::move(memory).value());
    }
    group_ = std::make_unique<HostGroup>(std::move(members), 0, layout_);
  }

  // The tensor number t of the rank at `place`, through its owner's mapping.
  char* Owned(int place, int t) { return owners_[place].data() + t * kTensor; }
  // What this rank reads of it; false if that is not what its owner wrote.
  bool Read(PeerPages& pages, int place, int t, char expected) {
    const char* begin = group_->arena(place)->data() + t * kTensor;
    pages.NoteRead(place, begin, kTensor);
    for (size_t at = 0; at < kTensor; at += 512) {
      if (begin[at] != expected) return false;
    }
    pages.UnmapIfTooMany();
    return true;
  }

  const HostGroupLayout layout_;
  Counters counters_;
  std::vector<SharedMemory> owners_;
  std::unique_ptr<HostGroup> group_;
};

TEST_F(PeerPagesTest, NoMoreThanTheLimitStaysMapped) {
  for (int place = 1; place < kSize; ++place) {
    for (int t = 0; t < 16; ++t) {
      std::memset(Owned(place, t), 16 * place + t, kTensor);
    }
  }
  const uint64_t before = ResidentSharedBytes();
  PeerPages pages(*group_, 32 * kMiB, counters_);
  uint64_t most = 0;
  for (int round = 0; round < 3; ++round) {
    for (int t = 0; t < 16; ++t) {
      for (int place = 1; place < kSize; ++place) {
        ASSERT_TRUE(Read(pages, place, t, static_cast<char>(16 * place + t)));
        most = std::max(most, ResidentSharedBytes() - before);
      }
    }
  }
  EXPECT_LE(most, 33 * kMiB) << "with what the kernel counts later";
  EXPECT_GE(most, 24 * kMiB) << "it is not given up without need";
  EXPECT_GE(counters_.peer_bytes_unmapped, 3 * 2 * 16 * kTensor - 32 * kMiB);
}

// The same tensors again and again, as in a training: nothing is unmapped.
TEST_F(PeerPagesTest, WhatIsReadAgainCountsOnce) {
  for (int t = 0; t < 2; ++t) {
    for (int place = 1; place < kSize; ++place) {
      std::memset(Owned(place, t), 'x', kTensor);
    }
  }
  PeerPages pages(*group_, 32 * kMiB, counters_);
  for (int step = 0; step < 50; ++step) {
    for (int t = 0; t < 2; ++t) {
      for (int place = 1; place < kSize; ++place) {
        ASSERT_TRUE(Read(pages, place, t, 'x'));
      }
    }
  }
  EXPECT_EQ(pages.bytes(), 4 * kTensor);
  EXPECT_EQ(counters_.peer_bytes_unmapped, 0u);
}

TEST_F(PeerPagesTest, CountsWhatTheSystemMapsAtOnce) {
  PeerPages pages(*group_, 32 * kMiB, counters_);
  const uint64_t before = ResidentSharedBytes();
  // So that there is something to map around what is read.
  std::memset(Owned(1, 0), 'x', 2 * kTensor);
  const uint64_t owned = ResidentSharedBytes() - before;
  const char* begin = group_->arena(1)->data();
  for (size_t at = 0; at < kTensor; at += kTensor / 16) {
    pages.NoteRead(1, begin + at, 4);
    ASSERT_EQ(begin[at], 'x');
  }
  EXPECT_LE(ResidentSharedBytes() - before - owned, pages.bytes());
  pages.NoteRead(2, group_->arena(2)->data(), 0);
  EXPECT_LE(pages.bytes(), 16 * 2 * kMiB);
}

}  // namespace
}  // namespace keras_ring
