#include "csrc/base/digest_text.h"

#include <gtest/gtest.h>

namespace keras_ring {
namespace {

TEST(DigestText, ShortTextsStayAsTheyAre) {
  EXPECT_EQ(DigestText("", 0), "");
  EXPECT_EQ(DigestText("four", 4), "four");
}

TEST(DigestText, LongTextsAreCutAndStillTellApart) {
  EXPECT_EQ(DigestText("abc", 1),
            "a... (3 bytes, SHA-256 ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad)");
  const std::string text(1 << 20, 'x');
  EXPECT_LT(DigestText(text, 100).size(), 220u);
  EXPECT_EQ(DigestText(text, 100), DigestText(text, 100));
  EXPECT_NE(DigestText(text, 100), DigestText(text + 'x', 100));
}

}  // namespace
}  // namespace keras_ring
