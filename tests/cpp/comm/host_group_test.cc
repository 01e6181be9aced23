#include "csrc/comm/host/host_group.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "csrc/comm/net/local_socket.h"
#include "csrc/testing/local_host_group.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

using Formed = Result<std::unique_ptr<HostGroup>>;

HostGroupLayout Layout() {
  HostGroupLayout layout;
  layout.control_bytes = 4096;
  layout.data_bytes = 8192;
  return layout;
}

// links[i]: of the i-th of `ranks` to the others as Form wants them.
std::vector<Links> LinksOf(const std::vector<int>& ranks) {
  std::vector<Links> links(ranks.size());
  for (size_t i = 1; i < ranks.size(); ++i) {
    auto [leader, other] = ConnectedPair();
    links[0][ranks[i]] = Link(std::move(leader));
    links[i][ranks[0]] = Link(std::move(other));
  }
  return links;
}

// Names of abstract sockets on which this process listens for its host.
std::vector<std::string> ListenerNames() {
  std::vector<std::string> own;
  std::error_code gone;  // descriptors come and go meanwhile
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    own.push_back(std::filesystem::read_symlink(entry.path(), gone));
  }
  std::vector<std::string> names;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word, inode, path;
    for (int i = 0; i < 6; ++i) words >> word;
    words >> inode >> path;
    const bool is_own = std::find(own.begin(), own.end(),
                                  "socket:[" + inode + "]") != own.end();
    if (is_own && path.rfind("@keras_ring-", 0) == 0) {
      names.push_back(path.substr(1));
    }
  }
  return names;
}

class HostGroupTest : public DescriptorTest {
 protected:
  void TearDown() override {
    arenas_.clear();
    DescriptorTest::TearDown();
  }

  // Every rank forms its group with its links, and drops them then, as a rank
  // that starts does. `before` runs on the rank's thread.
  std::vector<Formed> FormAll(
      const std::vector<int>& ranks,
      const std::function<void(int index, Links&)>& before = nullptr,
      const std::function<HostGroupLayout(int index)>& layout = nullptr) {
    std::vector<Links> links = LinksOf(ranks);
    std::vector<Formed> formed;
    for (size_t i = 0; i < ranks.size(); ++i) {
      formed.emplace_back(InternalError("not tried"));
    }
    RunRanks(static_cast<int>(ranks.size()), [&](int i) {
      Links own = std::move(links[i]);
      if (before) before(i, own);
      // It closed its links: a rank that is gone.
      if (own.empty()) return;
      formed[i] =
          HostGroup::Form(ranks, ranks[i], layout ? layout(i) : Layout(),
                          arenas_.empty() ? nullptr : arenas_[i], own, Soon());
    });
    return formed;
  }

  // All fail, each with a cause.
  static void ExpectNone(const std::vector<Formed>& formed) {
    for (const Formed& one : formed) {
      ASSERT_FALSE(one.ok());
      EXPECT_NE(one.status().code(), StatusCode::kDeadlineExceeded)
          << one.status().ToString();
    }
  }
  static void ExpectAll(const std::vector<Formed>& formed) {
    for (const Formed& one : formed) {
      EXPECT_TRUE(one.ok()) << one.status().ToString();
    }
  }

  std::vector<std::shared_ptr<const SharedMemory>> arenas_;  // by index
};

TEST_F(HostGroupTest, EveryRankSeesEverySegmentAndBell) {
  for (const std::vector<int>& ranks :
       {std::vector<int>{0, 1}, {2, 5, 6}, {0, 1, 2, 3, 9}}) {
    std::vector<Formed> groups = FormAll(ranks);
    ExpectAll(groups);
    if (HasFailure()) return;
    const int size = static_cast<int>(ranks.size());
    for (int i = 0; i < size; ++i) {
      const HostGroup& group = **groups[i];
      EXPECT_EQ(group.size(), size);
      EXPECT_EQ(group.local_rank(), i);
      EXPECT_EQ(group.LocalRankOf(7), -1);
      EXPECT_EQ(group.data_bytes(), 8192u);
      EXPECT_EQ(group.data(i) - group.control(i), 4096);
      EXPECT_GE(group.NumUsableCores(), 1);
      for (int j = 0; j < size; ++j) {
        EXPECT_EQ(group.rank(j), ranks[j]);
        EXPECT_EQ(group.LocalRankOf(ranks[j]), j);
        // A mark of i in the memory of j, at both ends of each part.
        group.control(j)[i] = group.control(j)[4096 - 8 + i] =
            group.data(j)[i] = group.data(j)[8192 - 8 + i] =
                static_cast<char>('a' + i);
      }
    }
    for (int i = 0; i < size; ++i) {
      const HostGroup& group = **groups[i];
      for (int j = 0; j < size; ++j) {
        for (int k = 0; k < size; ++k) {
          const char mark = static_cast<char>('a' + k);
          EXPECT_EQ(group.control(j)[k], mark);
          EXPECT_EQ(group.control(j)[4096 - 8 + k], mark);
          EXPECT_EQ(group.data(j)[k], mark);
          EXPECT_EQ(group.data(j)[8192 - 8 + k], mark);
        }
        Signal(group.bell(j));
        for (int k = 0; k < size; ++k) {
          const bool rung =
              WaitFor((*groups[k])->bell(k), POLLIN, AfterMs(0)).ok();
          EXPECT_EQ(rung, k == j);
        }
        ClearSignal((*groups[j])->bell(j));
      }
    }
  }
}

// Clang's thread sanitizer ends a process that maps more than a few terabytes.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KR_FEW_ADDRESSES
#endif
#endif
#if defined(KR_FEW_ADDRESSES)
constexpr bool kFewAddresses = true;
#else
constexpr bool kFewAddresses = false;
#endif

// Each rank has an arena of `bytes`; null where there are no such addresses.
std::vector<std::shared_ptr<const SharedMemory>> Arenas(int count,
                                                        size_t bytes) {
  std::vector<std::shared_ptr<const SharedMemory>> arenas;
  for (int i = 0; i < count; ++i) {
    Result<SharedMemory> arena = SharedMemory::Create("arena", bytes);
    if (!arena.ok()) return {};
    arenas.push_back(std::make_shared<SharedMemory>(std::move(*arena)));
  }
  return arenas;
}

// How many of the arenas, over all ranks, each has mapped.
int NumArenas(const std::vector<Formed>& groups) {
  int count = 0;
  for (const Formed& group : groups) {
    for (int index = 0; index < (*group)->size(); ++index) {
      count += (*group)->arena(index) != nullptr;
    }
  }
  return count;
}

TEST_F(HostGroupTest, EveryRankMapsEveryArena) {
  arenas_ = Arenas(3, size_t{1} << 30);
  const std::vector<Formed> groups = FormAll({0, 1, 2});
  ExpectAll(groups);
  if (HasFailure()) return;
  EXPECT_EQ(NumArenas(groups), 9);
}

// Addresses do not suffice for those of all. The ranks do without them, and all
// know it; but they share the rest.
TEST_F(HostGroupTest, ARankThatCannotMapAllArenasHasAllDoWithout) {
  if (kFewAddresses) GTEST_SKIP() << "a sanitizer has not that many addresses";
  // Three of them are mapped by three ranks each, in one process.
  arenas_ = Arenas(3, size_t{28} << 40);
  if (arenas_.empty()) GTEST_SKIP() << "there are not that many addresses";
  LogCapture log;
  const std::vector<Formed> groups = FormAll({0, 1, 2});
  ExpectAll(groups);
  if (HasFailure()) return;
  EXPECT_EQ(NumArenas(groups), 0);
  EXPECT_THAT(log.lines(),
              testing::Contains(testing::HasSubstr(
                  "cannot be read where they are (mapping 30786325577728 "
                  "bytes: Cannot allocate memory")));
}

// What ranks may use of their cores, as told by each.
TEST(HostGroupCoresTest, AQuotaCountsOncePerGroup) {
  struct Told {
    double cores;
    uint64_t group;
  };
  struct Case {
    std::vector<Told> told;
    int expected;
  };
  for (const Case& each : std::vector<Case>{
           {{{0, 0}, {0, 0}}, 8},
           {{{3.9, 7}, {3.9, 7}}, 3},
           {{{3, 7}, {2.5, 8}}, 5},
           {{{0.5, 7}, {0.5, 7}}, 0},
           {{{100, 7}, {100, 7}}, 8},
           // One has none.
           {{{1, 7}, {0, 0}}, 8},
       }) {
    const auto groups = CreateLocalHostGroups(2, Layout());
    const HostGroup& group = *groups[0];
    for (int i = 0; i < 2; ++i) {
      auto* facts =
          reinterpret_cast<HostFacts*>(group.control(i) - HostFacts::kBytes);
      CPU_ZERO(&facts->cores);
      for (int core = 0; core < 8; ++core) CPU_SET(core, &facts->cores);
      facts->quota_cores = each.told[i].cores;
      facts->quota_group = each.told[i].group;
    }
    EXPECT_EQ(group.NumUsableCores(), each.expected);
  }
}

TEST_F(HostGroupTest, LeavesNothingBehind) {
  auto count = [] {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      files += entry.path().filename().string().find("keras_ring") !=
               std::string::npos;
    }
    return files;
  };
  const int before = count();
  std::vector<Formed> groups = FormAll({0, 1, 2});
  ExpectAll(groups);
  EXPECT_EQ(count(), before);
  EXPECT_TRUE(ListenerNames().empty());
}

// Fault: one rank's segment is too small for the others. Error: on all ranks,
// at once; those that see it say so.
TEST_F(HostGroupTest, ARankThatCannotMapFailsAll) {
  for (int odd : {0, 1, 2}) {
    const auto formed = FormAll({0, 1, 2}, nullptr, [&](int index) {
      HostGroupLayout layout = Layout();
      if (index == odd) layout.data_bytes -= 4096;
      return layout;
    });
    ExpectNone(formed);
    for (int i = 0; i < 3; ++i) {
      const std::string& text = formed[i].status().message();
      EXPECT_EQ(text.rfind("sharing memory on this host: ", 0), 0u) << text;
      EXPECT_NE(text.find(i == odd ? "another rank of this host"
                                   : "not a sealed segment"),
                std::string::npos)
          << text;
    }
  }
}

// Fault: a rank cannot make its segment. Error: on it, why; on all others,
// that there is one.
TEST_F(HostGroupTest, ARankWithoutMemoryFailsAll) {
  for (int poor : {0, 1, 2}) {
    const auto formed = FormAll({0, 1, 2}, nullptr, [&](int index) {
      HostGroupLayout layout = Layout();
      if (index == poor) layout.data_bytes = size_t{1} << 62;
      return layout;
    });
    ExpectNone(formed);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(formed[i].status().code(), i == poor
                                               ? StatusCode::kResourceExhausted
                                               : StatusCode::kUnavailable)
          << formed[i].status().ToString();
    }
  }
}

// Fault: a rank is gone before it begins. Error: on all others, at once.
TEST_F(HostGroupTest, ARankThatIsGoneFailsAll) {
  for (int gone : {0, 1, 2, 3}) {
    const auto formed = FormAll({0, 1, 2, 3}, [&](int index, Links& links) {
      if (index == gone) links.clear();
    });
    ExpectNone(formed);
  }
}

// Fault: a rank goes after its invitation, and says nothing or that it cannot
// come. Error: on all others, at once.
TEST_F(HostGroupTest, AGuestThatDoesNotComeFailsAll) {
  for (bool says_so : {false, true}) {
    const auto formed = FormAll({0, 1, 2}, [&](int index, Links& links) {
      if (index != 1) return;
      char well = 0;
      EXPECT_TRUE(ReadFull(links[0], &well, 1, Soon()).ok());
      EXPECT_EQ(well, 1);
      well = 0;
      if (says_so) {
        EXPECT_TRUE(WriteFull(links[0], &well, 1, Soon()).ok());
      }
      links.clear();
    });
    ExpectNone(formed);
  }
}

// Fault: a guest shows its pass, but its descriptors do not follow (the system
// may refuse to pass more of them); it says so, but stays. Error: on all, and
// long before the deadline.
TEST_F(HostGroupTest, AGuestWithoutDescriptorsFailsAll) {
  const TimePoint began = std::chrono::steady_clock::now();
  std::atomic<bool> there{false};
  const auto formed = FormAll({0, 1, 2}, [&](int index, Links& links) {
    if (index == 2) {
      EXPECT_TRUE(Eventually([&] { return there.load(); }));
    }
    if (index != 1) return;
    char invitation[1 + 40 + 32];
    ASSERT_TRUE(
        ReadFull(links[0], invitation, sizeof(invitation), Soon()).ok());
    Result<Socket> leader = ConnectLocal(invitation + 1, Soon());
    ASSERT_TRUE(leader.ok()) << leader.status().ToString();
    const int32_t own = 1;
    char verdict = 0;
    EXPECT_TRUE(WriteFull(*leader, invitation + 41, 32, Soon()).ok());
    EXPECT_TRUE(WriteFull(*leader, &own, sizeof(own), Soon()).ok());
    EXPECT_TRUE(WriteFull(links[0], &verdict, 1, Soon()).ok());
    there = true;
    (void)ReadFull(links[0], &verdict, 1, Soon());
    links.clear();
  });
  ExpectNone(formed);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

// Fault: at each point of the way, no descriptor is left. All ranks of this
// test have the same limit, so each may be the first to fail: but either all
// form a group or none, and nobody waits.
TEST_F(HostGroupTest, AnyLimitOnOpenFilesEndsAlikeOnAllRanks) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  int failed = 0;
  for (int room = 0;; ++room) {
    SCOPED_TRACE(room);
    ASSERT_LT(room, 200);
    std::atomic<int> ready{0};
    const std::vector<Formed> formed = FormAll({0, 1, 2}, [&](int, Links&) {
      // The next free one tells how many are open.
      if (++ready == 3) {
        rlimit low = before;
        low.rlim_cur = NewEventFd()->fd() + room;
        KR_CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
        ready = 4;
      }
      while (ready < 4) std::this_thread::yield();
    });
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (formed[0].ok()) {
      ExpectAll(formed);
      break;
    }
    ++failed;
    ExpectNone(formed);
    if (HasFailure()) break;
  }
  EXPECT_GT(failed, 10);
}

// Unauthenticated peers find the socket in /proc/net/unix. They take no rank's
// place and learn nothing: all that they get is an end.
TEST_F(HostGroupTest, UnauthenticatedPeersDoNotStopIt) {
  std::vector<Socket> attackers;
  std::atomic<bool> there{false};
  const std::vector<Formed> formed = FormAll({0, 1, 2}, [&](int index, Links&) {
    if (index == 1) {
      std::vector<std::string> names;
      // The leader listens before anybody else does anything.
      ASSERT_TRUE(Eventually([&] {
        names = ListenerNames();
        return !names.empty();
      }));
      const std::string wrong(36, 'w');
      for (const std::string& says :
           {std::string(), wrong, wrong + wrong, wrong.substr(0, 5)}) {
        Result<Socket> attacker = ConnectLocal(names.front(), Soon());
        ASSERT_TRUE(attacker.ok());
        ASSERT_TRUE(
            WriteFull(*attacker, says.data(), says.size(), Soon()).ok());
        attackers.push_back(std::move(*attacker));
      }
      there = true;
    }
    if (index == 2) {
      EXPECT_TRUE(Eventually([&] { return there.load(); }));
    }
  });
  ExpectAll(formed);
  for (const Socket& attacker : attackers) {
    char byte = 0;
    EXPECT_EQ(ReadFull(attacker, &byte, 1, Soon()).code(),
              StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace keras_ring
