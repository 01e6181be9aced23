#include "csrc/comm/host/shm_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace {

constexpr size_t kCapacity = ShmStream::kCapacity;

// The endless sequence that all tests send.
char ByteAt(uint64_t position) {
  return static_cast<char>(position * 131 + (position >> 12));
}
std::string BytesFrom(uint64_t position, size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = ByteAt(position + i);
  return bytes;
}

std::string ReadAll(ShmStream& stream) {
  std::string bytes;
  int pieces = 0;
  Result<size_t> got = stream.Read([&](std::string_view piece) {
    bytes.append(piece);
    ++pieces;
  });
  EXPECT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, bytes.size());
  EXPECT_LE(pieces, 2);
  return bytes;
}

// Zero pages are what the ranks find.
std::unique_ptr<ShmStream> Empty() { return std::make_unique<ShmStream>(); }

TEST(ShmStream, BeginsEmpty) {
  auto stream = Empty();
  EXPECT_TRUE(stream->empty());
  EXPECT_EQ(ReadAll(*stream), "");
  EXPECT_EQ(stream->Write(""), 0u);
  EXPECT_TRUE(stream->empty());
  EXPECT_FALSE(stream->TakeWriterWaits());
}

TEST(ShmStream, TakesWhatFitsAndSaysThatItWaits) {
  auto stream = Empty();
  EXPECT_EQ(stream->Write(BytesFrom(0, kCapacity)), kCapacity);
  EXPECT_FALSE(stream->TakeWriterWaits()) << "all was taken";
  EXPECT_EQ(stream->Write("x"), 0u);
  EXPECT_EQ(ReadAll(*stream), BytesFrom(0, kCapacity));
  EXPECT_TRUE(stream->TakeWriterWaits());
  EXPECT_FALSE(stream->TakeWriterWaits()) << "once";

  EXPECT_EQ(stream->Write(BytesFrom(0, 3 * kCapacity)), kCapacity);
  EXPECT_EQ(ReadAll(*stream), BytesFrom(0, kCapacity));
  EXPECT_EQ(stream->Write("y"), 1u);
  EXPECT_FALSE(stream->TakeWriterWaits()) << "it waits no longer";
}

TEST(ShmStream, WrapsAnywhere) {
  for (size_t offset : {size_t{1}, kCapacity - 1, kCapacity - 7, kCapacity}) {
    auto stream = Empty();
    ASSERT_EQ(stream->Write(std::string(offset, '-')), offset);
    ReadAll(*stream);
    for (size_t count : {size_t{1}, size_t{8}, kCapacity}) {
      ASSERT_EQ(stream->Write(BytesFrom(offset, count)), count);
      ASSERT_EQ(ReadAll(*stream), BytesFrom(offset, count));
    }
  }
}

// Whatever is written and read when: the same bytes in the same order, and
// never more or less than there is room for.
TEST(ShmStream, RandomWritesAndReadsKeepTheSequence) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    auto stream = Empty();
    uint64_t written = 0, read = 0;
    for (int step = 0; step < 200; ++step) {
      if (random() % 3 != 0) {
        const size_t size =
            random() % 4 == 0 ? random() % (2 * kCapacity) : random() % 500;
        const size_t room = kCapacity - (written - read);
        const size_t taken = stream->Write(BytesFrom(written, size));
        ASSERT_EQ(taken, std::min(size, room));
        written += taken;
      } else {
        const std::string bytes = ReadAll(*stream);
        ASSERT_EQ(bytes.size(), written - read);
        ASSERT_EQ(bytes, BytesFrom(read, bytes.size()));
        read = written;
      }
      ASSERT_EQ(stream->empty(), written == read);
    }
  }
}

// Two threads; under TSAN this also shows that the bytes need no lock.
TEST(ShmStream, AWriterAndAReaderAtOnce) {
  constexpr uint64_t kTotal = 4 << 20;
  auto stream = Empty();
  RunRanks(2, [&](int side) {
    std::mt19937 random(side);
    uint64_t position = 0;
    while (position < kTotal) {
      const uint64_t before = position;
      if (side == 0) {
        const size_t size = std::min<uint64_t>(
            1 + random() % (random() % 8 ? 300 : 100000), kTotal - position);
        position += stream->Write(BytesFrom(position, size));
      } else {
        const std::string bytes = ReadAll(*stream);
        ASSERT_EQ(bytes, BytesFrom(position, bytes.size()));
        position += bytes.size();
      }
      if (position == before) std::this_thread::yield();
    }
  });
  EXPECT_TRUE(stream->empty());
}

// Memory that others write to may hold anything.
TEST(ShmStream, BrokenCountersAreAnErrorToTheReader) {
  for (uint64_t written :
       {uint64_t{kCapacity} + 1, uint64_t{1} << 40, ~uint64_t{0}}) {
    auto stream = Empty();
    stream->written = written;
    Result<size_t> got =
        stream->Read([](std::string_view) { FAIL() << "nothing to take"; });
    EXPECT_EQ(got.status(), InternalError("a broken stream"));
  }
}

// A reader that has read what was never written would make room for more than
// there is: the bytes behind the ring are another stream's.
TEST(ShmStream, BrokenCountersAreNoRoomToTheWriter) {
  for (uint64_t read : {uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0} / 2}) {
    auto streams = std::make_unique<ShmStream[]>(2);
    streams[0].read = read;
    EXPECT_EQ(streams[0].Write(std::string(kCapacity + 1000, 'x')), 0u);
    EXPECT_EQ(streams[0].written, 0u);
    EXPECT_EQ(streams[1].written, 0u);
  }
}

}  // namespace
}  // namespace keras_ring
