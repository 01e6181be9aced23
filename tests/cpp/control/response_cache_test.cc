#include "csrc/control/response_cache.h"

#include <gtest/gtest.h>

namespace keras_ring {
namespace {

std::shared_ptr<const Response> AgreedOn(const std::string& name) {
  auto agreed = std::make_shared<Response>();
  agreed->request.name = name;
  return agreed;
}

// One decision over `name`, as a controller applies it: whether it was known.
bool Decide(ResponseCache& cache, const std::string& name, uint64_t sequence) {
  if (std::optional<ResponseCache::Slot> slot = cache.Find(name)) {
    cache.Touch(*slot);
    return true;
  }
  cache.Insert(AgreedOn(name), sequence);
  return false;
}

// How many of names 0 to `names` - 1 are known in each of some cycles.
std::vector<int> KnownInCycles(ResponseCache& cache, int names, int cycles) {
  std::vector<int> known;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    known.push_back(0);
    for (int i = 0; i < names; ++i) {
      if (Decide(cache, std::to_string(i), 1)) ++known.back();
    }
    cache.Forget(1);
  }
  return known;
}

TEST(ResponseCache, ACycleThatIsTooLargeIsKnownAsFarAsThereIsRoom) {
  for (int more : {0, 1, 50, 300}) {
    ResponseCache cache(100);
    EXPECT_EQ(KnownInCycles(cache, 100 + more, 4),
              (std::vector<int>{0, 100, 100, 100}))
        << more << " more than there is room for";
    // So a part of the step can be planned: the slots stay the same.
    const auto slot = cache.Find("7");
    KnownInCycles(cache, 100 + more, 2);
    EXPECT_EQ(cache.Find("7"), slot);
  }
}

TEST(ResponseCache, WhatDoesNotComeAgainMakesRoom) {
  ResponseCache cache(100);
  for (int i = 0; i < 100; ++i) Decide(cache, "once" + std::to_string(i), 1);
  // Names that come in every step, and one more that never comes again.
  int known = 0;
  for (int step = 0; step < 200; ++step) {
    known = 0;
    for (int i = 0; i < 9; ++i) {
      if (Decide(cache, std::to_string(i), 1)) ++known;
    }
    Decide(cache, "step" + std::to_string(step), 1);
    EXPECT_LE(cache.size(), 100u);
  }
  EXPECT_EQ(known, 9);
  EXPECT_FALSE(cache.Find("once99"));
}

TEST(ResponseCache, LargeAgreementsCountByTheirBytes) {
  auto large = [](const std::string& name) {
    auto agreed = std::make_shared<Response>();
    agreed->request.name = name;
    agreed->rows.assign(100, 7);
    return agreed;
  };
  ResponseCache cache(100, 16 << 10);
  for (int i = 0; i < 100; ++i) cache.Insert(large(std::to_string(i)), 1);
  EXPECT_GE(cache.size(), 10u);
  EXPECT_LE(cache.size(), 16u);
  EXPECT_LE(cache.bytes(), size_t{16} << 10);
  // One that has no room even alone makes none.
  const size_t size = cache.size();
  auto huge = std::make_shared<Response>();
  huge->request.name = "huge";
  huge->rows.assign(3000, 7);
  cache.Insert(huge, 2);
  EXPECT_FALSE(cache.Find("huge"));
  EXPECT_EQ(cache.size(), size);
}

TEST(ResponseCache, SlotsAreNeverGivenTwice) {
  ResponseCache cache(1);
  EXPECT_EQ(cache.Insert(AgreedOn("a"), 1), 0u);
  EXPECT_EQ(cache.Insert(AgreedOn("b"), 2), 1u);
  EXPECT_EQ(cache.Insert(AgreedOn("a"), 3), 2u);
}

TEST(ResponseCache, EvictedSlotsStayReadableUntilForgotten) {
  ResponseCache cache(1);
  ResponseCache::Slot a = cache.Insert(AgreedOn("a"), 1);
  // It does not come again.
  for (int i = 0; cache.Find("a"); ++i) {
    cache.Insert(AgreedOn("b" + std::to_string(i)), 5);
  }
  ASSERT_NE(cache.At(a), nullptr);
  EXPECT_EQ(cache.At(a)->request.name, "a");
  cache.Forget(4);
  EXPECT_NE(cache.At(a), nullptr);
  cache.Forget(5);
  EXPECT_EQ(cache.At(a), nullptr);
  EXPECT_EQ(cache.num_evicted(), 0u);
}

TEST(ResponseCache, NewAgreementReplacesTheOldOne) {
  ResponseCache cache(8);
  ResponseCache::Slot old = cache.Insert(AgreedOn("a"), 1);
  ResponseCache::Slot now = cache.Insert(AgreedOn("a"), 2);
  EXPECT_EQ(cache.Find("a"), now);
  EXPECT_NE(cache.At(old), nullptr);
  cache.Touch(old);  // a late decision for it; the new one stays as it is
  EXPECT_EQ(cache.size(), 1u);
}

TEST(ResponseCache, CapacityZeroRemembersNothing) {
  ResponseCache cache(0);
  cache.Insert(AgreedOn("a"), 1);
  EXPECT_FALSE(cache.Find("a"));
  EXPECT_EQ(cache.size(), 0u);
}

TEST(ResponseCache, HashTellsOrderApart) {
  ResponseCache one(4), two(4);
  for (ResponseCache* cache : {&one, &two}) {
    cache->Insert(AgreedOn("a"), 1);
    cache->Insert(AgreedOn("b"), 2);
  }
  EXPECT_EQ(one.Hash(), two.Hash());
  one.Touch(0);
  EXPECT_NE(one.Hash(), two.Hash());
}

}  // namespace
}  // namespace keras_ring
