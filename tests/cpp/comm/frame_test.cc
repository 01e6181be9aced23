#include "csrc/comm/net/frame.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace keras_ring {
namespace {

std::string Framed(const std::string& body) {
  char prefix[10];
  return std::string(prefix, EncodeFrameLength(body.size(), prefix)) + body;
}

// However the stream is cut, the same frames come out.
TEST(FrameReader, RandomFramesInRandomPieces) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<std::string> sent(random() % 20);
    std::string stream;
    for (std::string& body : sent) {
      body.assign(random() % 3 == 0 ? random() % 1000 : random() % 4,
                  static_cast<char>(random()));
      stream += Framed(body);
    }
    FrameReader reader(1000);
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size();) {
      size_t piece = std::min<size_t>(1 + random() % 200, stream.size() - at);
      reader.Append(std::string_view(stream).substr(at, piece));
      at += piece;
      std::string_view frame;
      while (true) {
        Result<bool> whole = reader.Next(&frame);
        ASSERT_TRUE(whole.ok());
        if (!*whole) break;
        got.emplace_back(frame);
      }
    }
    EXPECT_EQ(got, sent);
    EXPECT_FALSE(reader.InFrame());
  }
}

TEST(FrameReader, ALengthOverTheLimitIsRefusedBeforeItsBytesCome) {
  FrameReader reader(1000);
  reader.Append(Framed(std::string(1001, 'x')).substr(0, 2));
  std::string_view frame;
  Result<bool> whole = reader.Next(&frame);
  EXPECT_EQ(whole.status(),
            InternalError("a frame of 1001 bytes, over the limit of 1000"));
}

TEST(FrameReader, AnEndlessLengthIsRefused) {
  FrameReader reader(1000);
  reader.Append(std::string(9, '\x80'));
  std::string_view frame;
  EXPECT_EQ(reader.Next(&frame).status().code(), StatusCode::kInternal);
}

TEST(FrameReader, KnowsWhetherAFrameIsUnfinished) {
  FrameReader reader(1000);
  std::string_view frame;
  EXPECT_FALSE(reader.InFrame());
  reader.Append("\x02z");
  EXPECT_FALSE(*reader.Next(&frame));
  EXPECT_TRUE(reader.InFrame());
  reader.Append("z");
  EXPECT_TRUE(*reader.Next(&frame));
  EXPECT_EQ(frame, "zz");
  EXPECT_FALSE(reader.InFrame());
}

}  // namespace
}  // namespace keras_ring
