#include "csrc/comm/net/addresses.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace keras_ring {
namespace {

TEST(IsLoopbackTest, LoopbackIsToldFromOtherAddresses) {
  EXPECT_TRUE(IsLoopback("127.0.0.1"));
  EXPECT_TRUE(IsLoopback("127.3.2.1"));
  EXPECT_TRUE(IsLoopback("::1"));
  EXPECT_TRUE(IsLoopback("localhost"));
  EXPECT_FALSE(IsLoopback("10.0.0.1"));
  EXPECT_FALSE(IsLoopback("0.0.0.0"));
  EXPECT_FALSE(IsLoopback(""));
}

// Said by any host, it means that host.
TEST(MeansLoopbackTest, NamesOfHostsDoNot) {
  for (const char* host : {"127.0.0.1", "127.3.2.1", "::1", "localhost"}) {
    EXPECT_TRUE(MeansLoopback(host)) << host;
  }
  for (const char* host : {"10.0.0.1", "0.0.0.0", "", "head-node"}) {
    EXPECT_FALSE(MeansLoopback(host)) << host;
  }
}

TEST(SplitHostsTest, BracketsAreForThePortAlone) {
  using Hosts = std::vector<std::string>;
  EXPECT_EQ(SplitHosts("node1"), Hosts({"node1"}));
  EXPECT_EQ(SplitHosts("::1"), Hosts({"::1"}));
  EXPECT_EQ(SplitHosts("[fd00::1],10.0.0.1"), Hosts({"fd00::1", "10.0.0.1"}));
}

TEST(ResolveTest, WhatIsNotKnownMayBecomeKnown) {
  EXPECT_EQ(Resolve("no-such-name.invalid", 1, 0).status().code(),
            StatusCode::kUnavailable);
}

TEST(OutsideAddressTest, IsNotLoopback) {
  const std::string address = OutsideAddress();
  if (address.empty()) GTEST_SKIP() << "this host has no network";
  EXPECT_FALSE(MeansLoopback(address)) << address;
  EXPECT_TRUE(Resolve(address, 1, AI_NUMERICHOST).ok()) << address;
}

}  // namespace
}  // namespace keras_ring
