#include "csrc/control/response_cache.h"

#include <gtest/gtest.h>

namespace keras_ring {
namespace {

std::shared_ptr<const Agreed> AgreedOn(const std::string& name) {
  auto agreed = std::make_shared<Agreed>();
  agreed->request.name = name;
  return agreed;
}

TEST(ResponseCache, LeastRecentlyDecidedGoesFirst) {
  ResponseCache cache(2);
  ResponseCache::Slot a = cache.Insert(AgreedOn("a"), 1);
  cache.Insert(AgreedOn("b"), 2);
  cache.Touch(a);
  cache.Insert(AgreedOn("c"), 3);
  EXPECT_TRUE(cache.Find("a"));
  EXPECT_FALSE(cache.Find("b"));
  EXPECT_TRUE(cache.Find("c"));
  EXPECT_EQ(cache.size(), 2u);
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
  cache.Insert(AgreedOn("b"), 5);
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
