#include "csrc/base/cpu_quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace keras_ring {
namespace {

// A file system of the test's own.
class CpuQuotaTest : public testing::Test {
 protected:
  CpuQuotaTest() {
    std::string name = testing::TempDir() + "cpu_quota_XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~CpuQuotaTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // -1: none.
  double Cores() {
    const std::optional<CpuQuota> quota = ReadCpuQuota(root_);
    return quota ? quota->cores : -1.0;
  }
  uint64_t Inode(const std::string& path) {
    struct stat facts = {};
    stat((root_ + path).c_str(), &facts);
    return facts.st_ino;
  }

  std::string root_;
};

TEST_F(CpuQuotaTest, NoneIsNone) {
  EXPECT_EQ(Cores(), -1.0);
  Write("/proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(Cores(), -1.0);
  Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(Cores(), -1.0);
}

TEST_F(CpuQuotaTest, Version2) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(Cores(), 2.5);
  EXPECT_EQ(ReadCpuQuota(root_)->group, Inode("/sys/fs/cgroup/a/b"));
}

TEST_F(CpuQuotaTest, AGroupHasNoMoreThanThoseAroundIt) {
  Write("/proc/self/cgroup", "0::/a/b/c\n");
  Write("/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n");
  Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/a/cpu.max", "50000 50000\n");
  EXPECT_EQ(Cores(), 1.0);
  EXPECT_EQ(ReadCpuQuota(root_)->group, Inode("/sys/fs/cgroup/a"));
}

TEST_F(CpuQuotaTest, Version1) {
  Write("/proc/self/cgroup",
        "5:memory:/m\n3:cpuset:/\n2:cpu,cpuacct:/a/b\n1:name=systemd:/\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "150000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cores(), 1.5);
  Write("/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(Cores(), -1.0);
  // By the other of its names; and one that only counts is none of them.
  Write("/proc/self/cgroup", "2:cpu:/a\n3:cpuacct:/b\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpuacct/b/cpu.cfs_quota_us", "100000\n");
  Write("/sys/fs/cgroup/cpuacct/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cores(), 3.0);
}

// As a container without a namespace for its groups has it.
TEST_F(CpuQuotaTest, APathOfTheHostsIsNotThere) {
  Write("/proc/self/cgroup", "0::/kubepods/pod12/abc\n");
  Write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(Cores(), 2.0);
}

TEST_F(CpuQuotaTest, WhatIsNoneOfTheseIsNone) {
  Write("/proc/self/cgroup", "no colon\n0:one\n0::\n0::relative\n::/\n0::/a\n");
  for (const char* text : {"", "x", "100000", "0 100000", "1 0", "-5 100000"}) {
    Write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(Cores(), -1.0) << text;
  }
}

// Whatever this system has, it is read.
TEST(ReadCpuQuotaTest, OfThisProcess) {
  const std::optional<CpuQuota> quota = ReadCpuQuota();
  if (quota) {
    EXPECT_GT(quota->cores, 0.0);
  }
}

}  // namespace
}  // namespace keras_ring
