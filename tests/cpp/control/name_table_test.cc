#include "csrc/control/name_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace keras_ring {
namespace {

struct Value {
  std::vector<int> numbers;
  void Clear() { numbers.clear(); }
};

TEST(NameTable, FindsWhatIsThereAndNothingElse) {
  NameTable<Value> table;
  EXPECT_TRUE(table.empty());
  auto [a, is_new] = table.TryEmplace("a");
  EXPECT_TRUE(is_new);
  a->second.numbers = {1};
  EXPECT_FALSE(table.TryEmplace("a").second);
  EXPECT_EQ(table.find("a")->second.numbers.size(), 1u);
  EXPECT_TRUE(table.find("b") == table.end());
  table.Erase("b");
  EXPECT_EQ(table.size(), 1u);
  table.Erase("a");
  EXPECT_TRUE(table.find("a") == table.end());
  EXPECT_TRUE(table.empty());
}

TEST(NameTable, WhatComesAgainIsNewInOldMemory) {
  NameTable<Value> table;
  std::set<const Value*> places;
  for (const char* name : {"a", "b", "c"}) {
    Value& value = table.TryEmplace(name).first->second;
    value.numbers.assign(100, 1);
    places.insert(&value);
  }
  table.Clear();
  EXPECT_TRUE(table.empty());
  for (const char* name : {"x", "y", "z"}) {
    Value& value = table.TryEmplace(name).first->second;
    EXPECT_EQ(places.count(&value), 1u);
    EXPECT_TRUE(value.numbers.empty());
    EXPECT_GE(value.numbers.capacity(), 100u);
    EXPECT_EQ(&table.find(name)->second, &value);
  }
  EXPECT_TRUE(table.find("a") == table.end());
  EXPECT_EQ(table.size(), 3u);
}

// Another table may point to them.
TEST(NameTable, ValuesByAnotherKeyStayWhereTheyAre) {
  NameTable<Value, uint64_t> table;
  std::set<const Value*> places;
  for (uint64_t key = 0; key < 1000; ++key) {
    places.insert(&table.TryEmplace(key).first->second);
  }
  for (uint64_t key = 0; key < 1000; key += 2) table.Erase(key);
  EXPECT_EQ(table.size(), 500u);
  for (uint64_t key = 1; key < 1000; key += 2) {
    EXPECT_EQ(places.count(&table.find(key)->second), 1u);
  }
}

}  // namespace
}  // namespace keras_ring
