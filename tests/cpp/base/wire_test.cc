#include "csrc/base/wire.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

namespace keras_ring {
namespace {

TEST(Wire, EveryKindComesBack) {
  WireWriter writer;
  writer.Byte(7);
  writer.Fixed32(0xdeadbeef);
  writer.Fixed64(0x0123456789abcdef);
  writer.Double(-1.5e300);
  writer.Text("name");
  writer.Text("");
  writer.Raw("raw");
  WireReader reader(writer.bytes());
  EXPECT_EQ(reader.Byte(), 7);
  EXPECT_EQ(reader.Fixed32(), 0xdeadbeef);
  EXPECT_EQ(reader.Fixed64(), 0x0123456789abcdef);
  EXPECT_EQ(reader.Double(), -1.5e300);
  EXPECT_EQ(reader.Text(4), "name");
  EXPECT_EQ(reader.Text(4), "");
  EXPECT_EQ(reader.Raw(3), "raw");
  EXPECT_TRUE(reader.Finished());
}

TEST(Wire, FixedIntegersAreLittleEndian) {
  WireWriter writer;
  writer.Fixed32(0x04030201);
  EXPECT_EQ(writer.bytes(), std::string("\1\2\3\4"));
}

TEST(Wire, VarintsAtTheirEdges) {
  std::vector<uint64_t> values = {0};
  for (int bit = 0; bit < 64; ++bit) {
    values.push_back(uint64_t{1} << bit);
    values.push_back((uint64_t{1} << bit) - 1);
  }
  values.push_back(std::numeric_limits<uint64_t>::max());
  for (uint64_t value : values) {
    WireWriter writer;
    writer.Varint(value);
    writer.SignedVarint(static_cast<int64_t>(value));
    WireReader reader(writer.bytes());
    EXPECT_EQ(reader.Varint(), value);
    EXPECT_EQ(reader.SignedVarint(), static_cast<int64_t>(value));
    EXPECT_TRUE(reader.Finished()) << value;
  }
}

TEST(Wire, SmallNumbersTakeOneByte) {
  for (int value : {-64, -1, 0, 1, 63}) {
    WireWriter writer;
    writer.SignedVarint(value);
    EXPECT_EQ(writer.bytes().size(), 1u) << value;
  }
}

TEST(Wire, OverlongVarintFails) {
  std::string eleven(10, '\x80');
  eleven += '\1';
  EXPECT_EQ(WireReader(eleven).Varint(), 0u);
  WireReader reader(eleven);
  reader.Varint();
  EXPECT_FALSE(reader.ok());
  // Ten bytes whose value has 65 bits.
  std::string wide(9, '\xff');
  wide += '\2';
  WireReader wide_reader(wide);
  wide_reader.Varint();
  EXPECT_FALSE(wide_reader.ok());
}

TEST(Wire, TextOverItsLimitFails) {
  WireWriter writer;
  writer.Text("12345");
  WireReader reader(writer.bytes());
  EXPECT_EQ(reader.Text(4), "");
  EXPECT_FALSE(reader.ok());
}

TEST(Wire, CountCannotExceedWhatIsLeft) {
  WireWriter writer;
  writer.Varint(3);
  writer.Raw("123456");
  WireReader fits(writer.bytes());
  EXPECT_EQ(fits.Count(2), 3u);
  WireReader short_by_one(writer.bytes());
  EXPECT_EQ(short_by_one.Count(3), 0u);
  EXPECT_FALSE(short_by_one.ok());

  WireWriter huge;
  huge.Varint(std::numeric_limits<uint64_t>::max());
  WireReader reader(huge.bytes());
  EXPECT_EQ(reader.Count(1), 0u);
  EXPECT_FALSE(reader.ok());
}

TEST(Wire, AFailureIsForGood) {
  WireReader reader("\1\2");
  EXPECT_EQ(reader.Fixed32(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.Byte(), 0);
  EXPECT_EQ(reader.Text(10), "");
  EXPECT_FALSE(reader.Finished());
}

// Every prefix of a message fails, and none is read beyond its end (which the
// address sanitizer checks: the prefix is a heap block of exactly its size).
TEST(Wire, EveryTruncationFails) {
  WireWriter writer;
  writer.Varint(300);
  writer.Text("some text");
  writer.Double(2.0);
  writer.SignedVarint(-300);
  const std::string whole = writer.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    std::vector<char> prefix(whole.begin(), whole.begin() + size);
    WireReader reader(std::string_view(prefix.data(), prefix.size()));
    reader.Varint();
    reader.Text(100);
    reader.Double();
    reader.SignedVarint();
    EXPECT_FALSE(reader.ok()) << size;
  }
}

// Random operations on random bytes: no crash, no view outside the bytes, and
// after a failure only zeros.
TEST(Wire, RandomBytes) {
  for (uint32_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<char> bytes(random() % 64);
    for (char& byte : bytes) {
      // Mostly small, so that lengths sometimes fit.
      byte = static_cast<char>(random() % 3 == 0 ? random() : random() % 8);
    }
    WireReader reader(std::string_view(bytes.data(), bytes.size()));
    for (int step = 0; step < 20; ++step) {
      const bool was_ok = reader.ok();
      uint64_t number = 0;
      std::string_view view;
      switch (random() % 7) {
        case 0:
          number = reader.Byte();
          break;
        case 1:
          number = reader.Fixed32();
          break;
        case 2:
          number = reader.Fixed64();
          break;
        case 3:
          number = reader.Varint();
          break;
        case 4:
          view = reader.Text(16);
          ASSERT_LE(view.size(), 16u);
          break;
        case 5:
          view = reader.Raw(random() % 16);
          break;
        case 6:
          number = reader.Count(1 + random() % 4);
          ASSERT_LE(number, bytes.size());
          break;
      }
      if (!view.empty()) {
        ASSERT_GE(view.data(), bytes.data());
        ASSERT_LE(view.data() + view.size(), bytes.data() + bytes.size());
      }
      if (!was_ok) {
        ASSERT_EQ(number, 0u);
        ASSERT_TRUE(view.empty());
        ASSERT_FALSE(reader.ok());
      }
    }
  }
}

}  // namespace
}  // namespace keras_ring
