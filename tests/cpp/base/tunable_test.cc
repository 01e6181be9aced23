#include "csrc/base/tunable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TunableTable, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int tunable = 0; tunable < kNumTunables; ++tunable) {
    names.insert(TunableName(static_cast<Tunable>(tunable)));
  }
  EXPECT_EQ(names.size(), size_t{kNumTunables});
  EXPECT_STREQ(TunableName(Tunable::kLinger), "linger");
  EXPECT_STREQ(TunableUnit(Tunable::kLinger), "microseconds");
  EXPECT_STREQ(TunableUnit(Tunable::kAllreducePreference), "");
}

TEST(TunableTable, AreFoundByName) {
  const std::vector<TunableRange> ranges = {
      {Tunable::kLinger, 0}, {Tunable::kPartBytes, 128, 64, 256}};
  const Result<TunableRange> found = FindTunable(ranges, "part_bytes");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->value, 128);
  EXPECT_THAT(FindTunable(ranges, "sockets").status().message(),
              AllOf(HasSubstr("'sockets'"), HasSubstr("linger, part_bytes")));
}

TEST(TunableTable, AValueBeyondItsRangeIsRefused) {
  const TunableRange range = {Tunable::kPartBytes, 128, 64, 256};
  for (const int64_t value : {64, 100, 256}) {
    EXPECT_TRUE(CheckTuned(range, value).ok()) << value;
  }
  for (const int64_t value : {-1, 63, 257}) {
    EXPECT_THAT(
        CheckTuned(range, value).message(),
        AllOf(HasSubstr("part_bytes cannot be " + std::to_string(value)),
              HasSubstr("from 64 to 256")));
  }
}

}  // namespace
}  // namespace keras_ring
