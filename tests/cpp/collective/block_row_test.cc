#include "csrc/collective/hierarchy/block_row.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace keras_ring {
namespace {

TEST(StagePartsTest, AsFewChunksAsThereCanBe) {
  const StageParts parts = StageParts::Even(1000, 2, sizeof(float), 1024);
  EXPECT_EQ(parts.num_chunks(), 2);
  EXPECT_EQ(parts.max_count(), 256);
  EXPECT_EQ(parts.Part(1, 1).begin, 768);
  EXPECT_EQ(parts.Part(1, 1).end, 1000);
  EXPECT_EQ(StageParts::Even(0, 2, 4, 1024).num_chunks(), 0);
}

std::vector<int64_t> SizesOf(const StageParts& parts, int lane) {
  std::vector<int64_t> sizes;
  for (const Range& part : parts.PartsOf(lane)) sizes.push_back(part.count());
  return sizes;
}

TEST(StagePartsTest, TheEndsAreSmall) {
  const PartSizes bytes{/*most=*/1024, /*ends=*/256};
  // Elements of 4 bytes, in 2 lanes.
  const auto sizes = [&bytes](int64_t count) {
    return SizesOf(StageParts::Tapered(count, 2, sizeof(float), bytes), 0);
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes(2 * 896), (Sizes{64, 128, 256, 256, 128, 64}));
  EXPECT_EQ(sizes(2 * 960), (Sizes{64, 128, 192, 192, 192, 128, 64}));
  // What is left between two of them is no smaller than they are.
  EXPECT_EQ(sizes(2 * 192), (Sizes{64, 64, 64}));
  EXPECT_EQ(sizes(2 * 64), (Sizes{64}));
  EXPECT_EQ(sizes(0), Sizes());
}

TEST(StagePartsTest, AnySizesCoverTheRow) {
  std::mt19937_64 random(20261126);
  const auto below = [&random](int64_t n) {
    return static_cast<int64_t>(random() % n);
  };
  for (int trial = 0; trial < 1000; ++trial) {
    const int64_t count = below(int64_t{1} << below(16));
    const int lanes = 1 + static_cast<int>(below(9));
    const size_t wire_size = size_t{1} << below(4);
    PartSizes bytes;
    bytes.most = 64 * (1 + below(40));
    bytes.ends = 64 * (1 + below(static_cast<int64_t>(bytes.most) / 64));
    SCOPED_TRACE(testing::Message()
                 << count << " elements of " << wire_size << " in " << lanes
                 << " lanes, parts of " << bytes.ends << " to " << bytes.most);
    const StageParts parts =
        StageParts::Tapered(count, lanes, wire_size, bytes);
    EXPECT_LE(parts.max_count() * wire_size, bytes.most);
    int64_t at = 0;
    for (int64_t chunk = 0; chunk < parts.num_chunks(); ++chunk) {
      EXPECT_GT(parts.Part(chunk, 0).count(), 0);
      for (int lane = 0; lane < lanes; ++lane) {
        EXPECT_EQ(parts.Part(chunk, lane).begin, at);
        at = parts.Part(chunk, lane).end;
      }
    }
    EXPECT_EQ(at, count);
  }
}

// A part has room for one element of each host, and one more to go on with.
TEST(BlockRowTest, FitsWhereEachHostHasRoom) {
  const Placement placement({"a", "b", "c", "a"});
  EXPECT_FALSE(BlockRow::Fits(placement, 8, 24));
  EXPECT_TRUE(BlockRow::Fits(placement, 8, 32));
}

TEST(BlockRowTest, HostsTakeTurns) {
  const Placement placement({"a", "b", "a"});
  const BlockRow row(placement, {300, 800, 100}, 2, 1, 402);
  EXPECT_EQ(row.parts().num_chunks(), 2);
  for (int chunk = 0; chunk < 2; ++chunk) {
    for (int lane = 0; lane < 2; ++lane) {
      EXPECT_EQ(row.Slices(chunk, lane, 0, 1).count(), 100);
      EXPECT_EQ(row.Slices(chunk, lane, 1, 2).count(), 200);
    }
  }
}

// Each element once, in the slices of its host, and no part is too long.
TEST(BlockRowTest, HasEachElementOnce) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int size = 1 + static_cast<int>(random() % 9);
    std::vector<std::string> hosts;
    std::vector<int64_t> counts;
    for (int rank = 0; rank < size; ++rank) {
      hosts.push_back(std::to_string(random() % 4));
      counts.push_back(
          random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 900));
    }
    const Placement placement(hosts);
    const size_t wire_size = size_t{1} << random() % 4;
    const size_t part_bytes = wire_size * (5 + random() % 100);
    const int lanes = 1 + static_cast<int>(random() % placement.num_lanes());
    const BlockRow row(placement, counts, lanes, wire_size, part_bytes);
    SCOPED_TRACE(trial);
    EXPECT_LE(row.parts().max_count() * wire_size, part_bytes);

    std::vector<int64_t> seen(size);
    std::vector<int> host_at;  // by element of the row
    for (const BlockRow::Piece& piece : row.pieces()) {
      EXPECT_EQ(piece.begin, seen[piece.rank]);
      EXPECT_GT(piece.count, 0);
      seen[piece.rank] += piece.count;
      host_at.insert(host_at.end(), piece.count, placement.host(piece.rank));
    }
    EXPECT_EQ(seen, counts);
    int64_t at = 0;
    for (int64_t chunk = 0; chunk < row.parts().num_chunks(); ++chunk) {
      for (int lane = 0; lane < lanes; ++lane) {
        EXPECT_EQ(row.parts().Part(chunk, lane).begin, at);
        for (int host = 0; host < placement.num_hosts(); ++host) {
          const Range slice = row.Slices(chunk, lane, host, host + 1);
          EXPECT_EQ(slice.begin, at);
          for (; at < slice.end; ++at) ASSERT_EQ(host_at[at], host);
        }
        EXPECT_EQ(row.parts().Part(chunk, lane).end, at);
      }
    }
    EXPECT_EQ(at, static_cast<int64_t>(host_at.size()));
  }
}

}  // namespace
}  // namespace keras_ring
