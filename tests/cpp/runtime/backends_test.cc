#include "csrc/runtime/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "csrc/collective/shm/shm_collective.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

using ::testing::HasSubstr;

class Backends : public testing::Test {
 protected:
  // The name of the backend, or the message of the error.
  std::string Choose(const std::string& collective, int size,
                     const HostGroup* host = nullptr) {
    Options options;
    options.collective = collective;
    options.size = size;
    const BackendDeps deps{options,          RankSet(),    host,      nullptr,
                           Duration::zero(), SystemTime(), counters_, nullptr};
    const Result<const CollectiveBackend*> chosen = ChooseBackend(deps);
    return chosen.ok() ? (*chosen)->name : chosen.status().message();
  }

  Counters counters_;
};

TEST_F(Backends, AChoiceIsANameInTheList) {
  EXPECT_EQ(CollectiveChoices(), "auto, shm or ring");
  for (const char* name : {"auto", "shm", "ring"}) {
    EXPECT_TRUE(CheckCollectiveChoice(name).ok()) << name;
  }
  for (const char* name : {"", "Ring", "mpi", "ring "}) {
    const Status status = CheckCollectiveChoice(name);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr("'" + std::string(name) +
                                            "': expected auto, shm or ring"));
  }
}

TEST_F(Backends, TheFastestThatIsAvailable) {
  HostGroupLayout layout;
  layout.control_bytes = 64;
  layout.data_bytes = ShmCollective::DataBytes(2, ShmCollectiveOptions());
  const auto groups = CreateLocalHostGroups({0, 1}, layout);
  EXPECT_EQ(Choose("auto", 2, groups[0].get()), "shm");
  EXPECT_EQ(Choose("shm", 2, groups[0].get()), "shm");
  EXPECT_EQ(Choose("ring", 2, groups[0].get()), "ring");
  // Two of three are on this host.
  EXPECT_EQ(Choose("auto", 3, groups[0].get()), "ring");
  EXPECT_EQ(Choose("auto", 3), "ring");
}

TEST_F(Backends, WhatCannotBeIsAnError) {
  EXPECT_EQ(Choose("shm", 3),
            "KERAS_RING_COLLECTIVE is 'shm', but the ranks are on several "
            "hosts; use 'auto'");
  EXPECT_THAT(Choose("mpi", 2), HasSubstr("expected auto, shm or ring"));
}

TEST_F(Backends, OneRankIsServedWhateverWasChosen) {
  for (const char* name : {"auto", "shm", "ring"}) {
    EXPECT_EQ(Choose(name, 1), "ring") << name;
  }
}

TEST_F(Backends, WhatReadsArenas) {
  EXPECT_TRUE(MayReadArenas("auto"));
  EXPECT_TRUE(MayReadArenas("shm"));
  EXPECT_FALSE(MayReadArenas("ring"));
}

}  // namespace
}  // namespace keras_ring
