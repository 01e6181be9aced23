#include "csrc/comm/rendezvous/host_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/comm/net/acceptor.h"
#include "csrc/comm/net/local_socket.h"
#include "csrc/comm/rendezvous/member_record.h"
#include "csrc/comm/rendezvous/start_agreement.h"
#include "csrc/comm/rendezvous/store_access.h"
#include "csrc/comm/store/tcp_store.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"
#include "tests/cpp/comm/rendezvous_peer.h"

namespace keras_ring {
namespace {

using ::testing::HasSubstr;

// Rank 0 as the others see it.
class RankZero {
 public:
  explicit RankZero(const JobKey& key, uint16_t at = 0) {
    Result<Socket> listener = Listen("127.0.0.1", at);
    KR_CHECK(listener.ok());
    port = *LocalPort(*listener);
    KR_CHECK(server.Start().ok());
    acceptor_ = std::make_unique<Acceptor>(
        std::move(listener).value(), key,
        [this](const Hello&) {
          return server.sealed() ? Verdict::kNotNow : Verdict::kAccepted;
        },
        [this](const Hello& hello, Link link) {
          ++connections;
          server.Serve(std::move(link), StartedKey(hello.rank));
          served_ = true;
        },
        counters_);
    KR_CHECK(acceptor_->Start().ok());
  }
  ~RankZero() { server.Stop(Duration::zero()); }

  // Once somebody has come, as there is no table before: a sealed store that
  // serves nobody ends.
  void Publish(const JobTable& table) {
    KR_CHECK(Eventually([&] { return served_.load(); }));
    if (table.status.ok()) server.Seal();
    KR_CHECK(server.store().Set(kTableKey, Encode(table), Soon()).ok());
  }
  // The keys under `prefix`.
  std::set<std::string> Keys(const std::string& prefix) {
    std::set<std::string> keys;
    const auto entries = server.store().List(prefix, 0, Soon());
    for (const auto& [key, value] : *entries) keys.insert(key);
    return keys;
  }
  bool Has(const std::string& prefix, const std::set<std::string>& keys) {
    return Eventually([&] { return Keys(prefix) == keys; });
  }

  uint16_t port = 0;
  std::atomic<int> connections{0};
  TcpStoreServer server;

 private:
  Counters counters_;
  std::atomic<bool> served_{false};
  std::unique_ptr<Acceptor> acceptor_;
};

JobTable TableOf(int size) {
  JobTable table;
  for (int rank = 0; rank < size; ++rank) {
    Member member;
    member.host = "there";
    member.pid = 100 + rank;
    table.members.push_back(member);
    table.targets.push_back(rank);
  }
  return table;
}

class HostRelayTest : public DescriptorTest {
 protected:
  void TearDown() override {
    rank_zero_.reset();
    EXPECT_EQ(logs_.count(LogLevel::kWarning), expected_warnings_);
    DescriptorTest::TearDown();
  }

  RendezvousOptions OptionsOf(int rank, const std::string& host = "a",
                              uint16_t port = 0) {
    RendezvousOptions options;
    options.rank = rank;
    options.size = 8;
    options.store_host = "127.0.0.1";
    options.store_port = port != 0 ? port : rank_zero_->port;
    options.key = key_;
    options.host_id = host;
    options.by_host = true;
    return options;
  }

  StoreAccess Reach(const RendezvousOptions& options) {
    Result<StoreAccess> access = ReachStore(options, Soon(), counters_);
    KR_CHECK(access.ok());
    return std::move(access).value();
  }

  LogCapture logs_{LogLevel::kWarning};
  int expected_warnings_ = 0;
  const JobKey key_ = NewKey();
  Counters counters_;
  std::optional<RankZero> rank_zero_{key_};
};

TEST_F(HostRelayTest, AHostTakesOneConnection) {
  constexpr int kSize = 9;
  std::vector<std::string> tables(kSize);
  std::atomic<int> relays{0}, throughs{0};
  RunRanks(kSize, [&](int process) {
    if (process == 0) {
      ASSERT_TRUE(rank_zero_->server.store().List("join/", 8, Soon()).ok());
      rank_zero_->Publish(TableOf(2));
      return;
    }
    // Two hosts, of three and of five ranks.
    StoreAccess access =
        Reach(OptionsOf(process, process % 3 == 0 ? "a" : "b"));
    if (access.relay != nullptr) {
      ++relays;
      throughs += access.route.through;
      EXPECT_EQ(access.route.through, process);
    }
    EXPECT_EQ(access.route.local, "127.0.0.1");
    EXPECT_EQ(access.route.peer, "127.0.0.1");
    const std::string key = "join/" + std::to_string(process);
    ASSERT_TRUE(access.store->Set(key, "x", Soon()).ok());
    const uint64_t asked = AskForVerdict(*access.store);
    Result<StoreEntries> table = access.store->List(kTableKey, 1, Soon());
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    tables[process] = table->begin()->second;
    ASSERT_TRUE(access.store->Set(StartedKey(process), "y", Soon()).ok());
    if (access.relay != nullptr && process % 3 == 0) {
      ASSERT_TRUE(rank_zero_->server.store().List("started/", 8, Soon()).ok());
      ASSERT_TRUE(rank_zero_->server.store()
                      .Set(kVerdictKey, EncodeVerdict(OkStatus()), Soon())
                      .ok());
    }
    EXPECT_TRUE(access.store->EndList(asked, Soon()).ok());
  });
  EXPECT_EQ(rank_zero_->connections, 2);
  EXPECT_EQ(relays, 2);
  for (int rank = 1; rank < kSize; ++rank) {
    EXPECT_EQ(tables[rank], Encode(TableOf(2)));
  }
}

TEST_F(HostRelayTest, ARelayThatGoesStaysForThoseThatHaveYetToAsk) {
  JobTable none;
  none.status = FailedPreconditionError("they differ");
  const struct {
    JobTable table;
    const char* key;
  } answers[] = {
      {none, kTableKey}, {TableOf(3), kTableKey}, {TableOf(3), kVerdictKey}};
  for (const auto& [table, key] : answers) {
    StoreAccess first = Reach(OptionsOf(1));
    StoreAccess second = Reach(OptionsOf(2));
    rank_zero_->Publish(table);
    if (key == kVerdictKey) {
      ASSERT_TRUE(rank_zero_->server.store()
                      .Set(kVerdictKey, EncodeVerdict(OkStatus()), Soon())
                      .ok());
    }
    ASSERT_TRUE(first.store->List(key, 1, Soon()).ok());
    std::thread goes([&] { first = StoreAccess(); });
    Pause(std::chrono::milliseconds(50), Soon());
    EXPECT_TRUE(second.store->List(key, 1, Soon()).ok());
    second.store.reset();
    goes.join();
    rank_zero_.emplace(key_);
  }
}

// All of them wait for as long as that takes.
TEST_F(HostRelayTest, RankZeroMayComeLate) {
  ReservedPort reserved;
  std::atomic<bool> seen{false};
  RunRanks(4, [&](int process) {
    if (process == 0) {
      Pause(std::chrono::milliseconds(2500), Soon());
      RankZero late(key_, reserved.port);
      EXPECT_TRUE(late.Has("join/", {"join/1", "join/2", "join/3"}));
      EXPECT_EQ(late.connections, 1);
      seen = true;
      return;
    }
    const StoreAccess access = Reach(OptionsOf(process, "a", reserved.port));
    EXPECT_NE(access.route.through, 0);
    ASSERT_TRUE(
        access.store->Set("join/" + std::to_string(process), "", Soon()).ok());
    EXPECT_TRUE(Eventually([&] { return seen.load(); }));
  });
}

TEST_F(HostRelayTest, ARankThatGoesTakesItsKeysWithIt) {
  const StoreAccess first = Reach(OptionsOf(1));
  StoreAccess second = Reach(OptionsOf(2));
  ASSERT_TRUE(first.store->Set("join/1", "", Soon()).ok());
  ASSERT_TRUE(second.store->Set("join/2", "", Soon()).ok());
  EXPECT_TRUE(rank_zero_->Has("join/", {"join/1", "join/2"}));
  second.store.reset();
  EXPECT_TRUE(rank_zero_->Has("join/", {"join/1"}));
  // And may come again.
  second = Reach(OptionsOf(2));
  ASSERT_TRUE(second.store->Set("join/2", "", Soon()).ok());
  EXPECT_TRUE(rank_zero_->Has("join/", {"join/1", "join/2"}));
  EXPECT_EQ(rank_zero_->connections, 1);
}

TEST_F(HostRelayTest, ARankThatGoesAfterTheTableIsToldOf) {
  const StoreAccess first = Reach(OptionsOf(1));
  StoreAccess second = Reach(OptionsOf(2));
  rank_zero_->Publish(TableOf(3));
  ASSERT_TRUE(second.store->List(kTableKey, 1, Soon()).ok());
  second.store.reset();
  EXPECT_TRUE(rank_zero_->Has("started/", {"started/2"}));
}

// The relay has not heard yet that the job is complete.
TEST_F(HostRelayTest, ARankThatGoesAsTheTableIsMadeIsToldOf) {
  const StoreAccess first = Reach(OptionsOf(1));
  StoreAccess second = Reach(OptionsOf(2));
  ASSERT_TRUE(second.store->Set("join/2", "", Soon()).ok());
  EXPECT_TRUE(rank_zero_->Has("join/", {"join/2"}));
  rank_zero_->server.Seal();
  second.store.reset();
  EXPECT_TRUE(rank_zero_->Has("started/", {"started/2"}));
  EXPECT_EQ(rank_zero_->Keys("join/"), (std::set<std::string>{"join/2"}));
}

TEST_F(HostRelayTest, AnotherTakesThePlaceOfARelayThatHasGone) {
  StoreAccess first = Reach(OptionsOf(1));
  ASSERT_NE(first.relay, nullptr);
  StoreAccess second = Reach(OptionsOf(2));
  ASSERT_EQ(second.relay, nullptr);
  ASSERT_TRUE(second.store->Set("join/2", "", Soon()).ok());
  EXPECT_TRUE(rank_zero_->Has("join/", {"join/2"}));
  first = StoreAccess();
  EXPECT_EQ(second.store->List(kTableKey, 1, Soon()).status().code(),
            StatusCode::kUnavailable);
  EXPECT_TRUE(rank_zero_->Has("join/", {}));
  second = Reach(OptionsOf(2));
  EXPECT_NE(second.relay, nullptr);
  ASSERT_TRUE(second.store->Set("join/2", "", Soon()).ok());
  EXPECT_TRUE(rank_zero_->Has("join/", {"join/2"}));
}

// As when the store was that of an earlier job.
TEST_F(HostRelayTest, BeforeTheTableTheEndOfRankZeroIsTheEndOfTheRelay) {
  StoreAccess first = Reach(OptionsOf(1));
  StoreAccess second = Reach(OptionsOf(2));
  rank_zero_->server.Stop(Duration::zero());
  for (StoreAccess* access : {&first, &second}) {
    EXPECT_EQ(access->store->List(kTableKey, 1, Soon()).status().code(),
              StatusCode::kUnavailable);
  }
}

TEST_F(HostRelayTest, AfterTheTableAllHearThatRankZeroIsLost) {
  std::vector<StoreAccess> all;
  for (int rank : {1, 2, 3}) all.push_back(Reach(OptionsOf(rank)));
  const JobTable table = TableOf(4);
  rank_zero_->Publish(table);
  std::vector<uint64_t> asked;
  for (StoreAccess& access : all) {
    ASSERT_TRUE(access.store->List(kTableKey, 1, Soon()).ok());
    asked.push_back(AskForVerdict(*access.store));
  }
  rank_zero_->server.Stop(Duration::zero());
  for (size_t i = 0; i < all.size(); ++i) {
    const Status verdict =
        AgreeAsOther(*all[i].store, asked[i], static_cast<int>(i) + 1,
                     all[i].route.through, table.members, OkStatus(), Soon());
    EXPECT_THAT(verdict.message(),
                HasSubstr("lost rank 0 (host there, pid 100) while"));
  }
}

TEST_F(HostRelayTest, WhoIsSilentIsFoundOut) {
  StoreAccess first = Reach(OptionsOf(1));
  StoreAccess second = Reach(OptionsOf(2));
  const JobTable table = TableOf(3);
  rank_zero_->Publish(table);
  ASSERT_TRUE(second.store->List(kTableKey, 1, Soon()).ok());
  const uint64_t asked = AskForVerdict(*second.store);
  // The relay answers, so it is rank 0.
  Status verdict =
      AgreeAsOther(*second.store, asked, 2, second.route.through, table.members,
                   OkStatus(), Deadline::After(Duration::zero()));
  EXPECT_THAT(verdict.message(),
              HasSubstr("lost rank 0 (host there, pid 100)"));
  // A relay that does not: its words stay where they are.
  TestListener listener;
  auto socket = Connect("127.0.0.1", listener.port, Soon());
  ASSERT_TRUE(socket.ok());
  TcpStoreClient silent{Link(std::move(socket).value())};
  verdict = AgreeAsOther(silent, AskForVerdict(silent), 2, 1, table.members,
                         OkStatus(), Deadline::After(Duration::zero()));
  EXPECT_THAT(verdict.message(),
              HasSubstr("lost rank 1 (host there, pid 101)"));
}

// Its own deadline is later.
TEST_F(HostRelayTest, ARelayThatStillWaitsIsNotTakenForOneThatIsStopped) {
  const RendezvousOptions options = OptionsOf(1);
  Result<Socket> listener = ListenLocal(RelayName(options));
  ASSERT_TRUE(listener.ok());
  auto relay = HostRelay::Start(std::move(listener).value(), key_, counters_);
  ASSERT_TRUE(relay.ok());
  EXPECT_EQ(ReachStore(options, AfterMs(50), counters_).status(),
            DeadlineExceededError("process " + std::to_string(getpid()) +
                                  " of this host, which asks for it, still "
                                  "waits for it"));
}

// Without a job the relay has nothing to wait for.
TEST_F(HostRelayTest, AllHearWhyThereIsNoJob) {
  JobTable none;
  none.status = FailedPreconditionError("they differ");
  RunRanks(4, [&](int process) {
    if (process == 0) {
      ASSERT_TRUE(rank_zero_->server.store().List("join/", 3, Soon()).ok());
      return rank_zero_->Publish(none);
    }
    const StoreAccess access = Reach(OptionsOf(process));
    const std::string key = "join/" + std::to_string(process);
    ASSERT_TRUE(access.store->Set(key, "", Soon()).ok());
    Result<StoreEntries> table = access.store->List(kTableKey, 1, Soon());
    ASSERT_TRUE(table.ok()) << process << ": " << table.status().ToString();
    EXPECT_EQ(table->begin()->second, Encode(none));
  });
  EXPECT_TRUE(rank_zero_->server.WaitUntilAlone(Soon()));
}

TEST_F(HostRelayTest, AllSayWhyRankZeroCannotBeReached) {
  ReservedPort nobody;
  RunRanks(3, [&](int process) {
    RendezvousOptions options = OptionsOf(process + 1);
    options.store_port = nobody.port;
    // The relay's deadline is not the first.
    const Status status =
        ReachStore(options, AfterMs(200 + 50 * process), counters_).status();
    EXPECT_THAT(status.message(), HasSubstr("refused")) << process;
  });
}

// Ranks with a key of their own, which is not rank 0's.
TEST_F(HostRelayTest, AWrongKeyIsToldToAllThatHaveIt) {
  expected_warnings_ = 1;  // of rank 0, which refuses it
  const JobKey wrong = NewKey();
  RunRanks(3, [&](int process) {
    RendezvousOptions options = OptionsOf(process + 1);
    options.key = wrong;
    EXPECT_EQ(ReachStore(options, Soon(), counters_).status().code(),
              StatusCode::kUnauthenticated);
  });
}

TEST_F(HostRelayTest, AStrangerUnderTheNameIsPassedBy) {
  expected_warnings_ = 1;  // of the stranger, who refuses this rank
  const RendezvousOptions options = OptionsOf(1);
  // One that knows no key, and one that says nothing.
  for (bool silent : {false, true}) {
    Result<Socket> stranger = ListenLocal(RelayName(options));
    ASSERT_TRUE(stranger.ok());
    std::unique_ptr<Acceptor> acceptor;
    if (!silent) {
      acceptor = std::make_unique<Acceptor>(
          std::move(stranger).value(), NewKey(),
          [](const Hello&) { return Verdict::kAccepted; },
          [](const Hello&, Link) {}, counters_);
      ASSERT_TRUE(acceptor->Start().ok());
    }
    const StoreAccess access = Reach(options);
    EXPECT_EQ(access.relay, nullptr);
    EXPECT_EQ(access.route.through, 0);
    ASSERT_TRUE(access.store->Set("join/1", "", Soon()).ok());
    EXPECT_EQ(rank_zero_->Keys("join/"), (std::set<std::string>{"join/1"}));
    // The stranger may yet have to read that this rank has gone.
    EXPECT_TRUE(Eventually(
        [&] { return logs_.count(LogLevel::kWarning) == expected_warnings_; }));
  }
}

// Else ranks of two jobs would meet the wrong rank 0.
TEST_F(HostRelayTest, ANameIsThatOfOneJobOnOneHost) {
  std::set<std::string> names = {RelayName(OptionsOf(1))};
  EXPECT_EQ(RelayName(OptionsOf(2)), *names.begin());
  names.insert(RelayName(OptionsOf(1, "b")));
  RendezvousOptions options = OptionsOf(1);
  options.store_host = "127.0.0.2";
  names.insert(RelayName(options));
  options = OptionsOf(1);
  options.store_port = 1;
  names.insert(RelayName(options));
  options = OptionsOf(1);
  options.key = NewKey();
  names.insert(RelayName(options));
  EXPECT_EQ(names.size(), 5u);
}

}  // namespace
}  // namespace keras_ring
