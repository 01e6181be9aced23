// One suite for every Store, then what is particular to the TCP one.
#include "csrc/comm/store/store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/comm/net/acceptor.h"
#include "csrc/comm/store/local_store.h"
#include "csrc/comm/store/store_message.h"
#include "csrc/comm/store/tcp_store.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

// A store and the means to reach it as several clients do.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual Store& Client(int number) = 0;
};

class LocalUnderTest final : public StoreUnderTest {
 public:
  Store& Client(int) override { return store_; }

 private:
  LocalStore store_;
};

class TcpUnderTest final : public StoreUnderTest {
 public:
  static constexpr int kClients = 4;

  TcpUnderTest() {
    KR_CHECK(server_.Start().ok());
    TestListener listener;
    port_ = listener.port;
    acceptor_ = std::make_unique<Acceptor>(
        std::move(listener.socket), key_,
        [this](const Hello&) {
          return server_.sealed() ? Verdict::kNotNow : Verdict::kAccepted;
        },
        [this](const Hello&, Link link) { server_.Serve(std::move(link)); },
        counters_);
    KR_CHECK(acceptor_->Start().ok());
    for (int i = 0; i < kClients; ++i) clients_.push_back(NewClient());
  }

  std::unique_ptr<TcpStoreClient> NewClient() {
    auto client = TcpStoreClient::Connect("127.0.0.1", port_, key_, 1, Soon());
    KR_CHECK(client.ok());
    return std::move(client).value();
  }
  // The server's own view is client 0.
  Store& Client(int number) override {
    if (number == 0) return server_.store();
    return *clients_.at(number);
  }

  const JobKey key_ = NewKey();
  Counters counters_;
  uint16_t port_ = 0;
  TcpStoreServer server_;
  std::unique_ptr<Acceptor> acceptor_;
  std::vector<std::unique_ptr<TcpStoreClient>> clients_;
};

TEST(LocalStoreFeed, TellsWhatComesAndGoesInOrder) {
  LocalStore store;
  store.SetOwned("a/0", "before", 7);
  const auto feed = store.Follow("a/");
  store.SetOwned("b/1", "other", 7);
  store.SetOwned("a/1", "x", 8);
  store.RemoveOwner(7);
  EXPECT_FALSE(store.SetIfMissing("a/1", "y"));
  EXPECT_TRUE(store.SetIfMissing("a/2", "z"));
  const std::vector<LocalStore::Change> expected = {
      {"a/0", "before"}, {"a/1", "x"}, {"a/0", "", true}, {"a/2", "z"}};
  for (const LocalStore::Change& change : expected) {
    Result<LocalStore::Change> next = feed->Next(Soon());
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(next->key, change.key);
    EXPECT_EQ(next->value, change.value);
    EXPECT_EQ(next->gone, change.gone);
  }
  EXPECT_EQ(feed->Next(AfterMs(20)).status().code(),
            StatusCode::kDeadlineExceeded);
  RunRanks(2, [&](int thread) {
    if (thread == 0) {
      EXPECT_EQ(feed->Next(Soon())->key, "a/late");
    } else {
      EXPECT_TRUE(store.Set("a/late", "", Soon()).ok());
    }
  });
}

using StoreFactory = std::function<std::unique_ptr<StoreUnderTest>()>;

class StoreConformance : public testing::TestWithParam<StoreFactory> {
 protected:
  void SetUp() override {
    before_ = OpenDescriptors();
    store_ = GetParam()();
  }
  void TearDown() override {
    store_.reset();
    EXPECT_EQ(OpenDescriptors(), before_);
  }
  Store& Client(int number) { return store_->Client(number); }

  int before_ = 0;
  std::unique_ptr<StoreUnderTest> store_;
};

TEST_P(StoreConformance, WhatOneSetsAllSee) {
  for (int setter = 0; setter < 3; ++setter) {
    const std::string key = "key" + std::to_string(setter);
    ASSERT_TRUE(Client(setter).Set(key, "value", Soon()).ok());
    for (int reader = 0; reader < 3; ++reader) {
      auto found = Client(reader).List(key, 1, Soon());
      ASSERT_TRUE(found.ok());
      EXPECT_EQ(*found, (StoreEntries{{key, "value"}}));
    }
  }
}

TEST_P(StoreConformance, SettingAgainReplaces) {
  ASSERT_TRUE(Client(1).Set("k", "old", Soon()).ok());
  ASSERT_TRUE(Client(2).Set("k", "new", Soon()).ok());
  EXPECT_EQ(*Client(1).List("k", 1, Soon()), (StoreEntries{{"k", "new"}}));
}

TEST_P(StoreConformance, ListTakesThePrefixOnly) {
  for (const char* key : {"a", "b/1", "b/2", "b", "c"}) {
    ASSERT_TRUE(Client(1).Set(key, "", Soon()).ok());
  }
  EXPECT_EQ(Client(2).List("b/", 0, Soon())->size(), 2u);
  EXPECT_EQ(Client(2).List("b", 0, Soon())->size(), 3u);
  EXPECT_EQ(Client(2).List("", 0, Soon())->size(), 5u);
  EXPECT_EQ(Client(2).List("zz", 0, Soon())->size(), 0u);
}

TEST_P(StoreConformance, AnyBytesAreAValue) {
  std::string value(100000, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i);
  ASSERT_TRUE(Client(1).Set("k", value, Soon()).ok());
  EXPECT_EQ(Client(2).List("k", 1, Soon())->at("k"), value);
}

TEST_P(StoreConformance, ListWaitsForEnoughKeys) {
  RunRanks(4, [&](int rank) {
    const std::string key = "w/" + std::to_string(rank);
    EXPECT_TRUE(Client(rank).Set(key, key, Soon()).ok());
    auto all = Client(rank).List("w/", 4, Soon());
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    EXPECT_EQ(all->size(), 4u);
  });
}

TEST_P(StoreConformance, ListGivesUpAndTheStoreGoesOn) {
  for (int client = 0; client < 3; ++client) {
    EXPECT_EQ(Client(client).List("never", 1, AfterMs(10)).status().code(),
              StatusCode::kDeadlineExceeded);
  }
  // The late answer to the first question is not taken for the second's.
  ASSERT_TRUE(Client(0).Set("never", "late", Soon()).ok());
  ASSERT_TRUE(Client(0).Set("other", "x", Soon()).ok());
  for (int client = 0; client < 3; ++client) {
    EXPECT_EQ(*Client(client).List("other", 1, Soon()),
              (StoreEntries{{"other", "x"}}));
  }
}

INSTANTIATE_TEST_SUITE_P(Local, StoreConformance, testing::Values([] {
                           return std::make_unique<LocalUnderTest>();
                         }));
INSTANTIATE_TEST_SUITE_P(Tcp, StoreConformance, testing::Values([] {
                           return std::make_unique<TcpUnderTest>();
                         }));

class TcpStoreTest : public DescriptorTest {};

TEST_F(TcpStoreTest, KeysDieWithTheirClient) {
  TcpUnderTest store;
  ASSERT_TRUE(store.Client(1).Set("k", "v", Soon()).ok());
  ASSERT_TRUE(store.Client(0).Set("mine", "v", Soon()).ok());
  store.clients_[1].reset();
  EXPECT_TRUE(Eventually(
      [&] { return store.Client(0).List("k", 0, Soon())->empty(); }));
  EXPECT_EQ(store.Client(0).List("mine", 0, Soon())->size(), 1u);
}

TEST_F(TcpStoreTest, OnceSealedKeysStayAndNewClientsWait) {
  LogCapture logs;  // the client that gives up may do so in mid-handshake
  TcpUnderTest store;
  ASSERT_TRUE(store.Client(1).Set("k", "v", Soon()).ok());
  store.server_.Seal();
  store.clients_[1].reset();
  EXPECT_EQ(TcpStoreClient::Connect("127.0.0.1", store.port_, store.key_, 1,
                                    AfterMs(50))
                .status()
                .code(),
            StatusCode::kUnavailable);
  // Old clients are still served.
  EXPECT_EQ(store.Client(2).List("k", 1, Soon())->size(), 1u);
}

// What was begun is there at its end, whatever was asked for meanwhile, and
// until then the socket is silent.
TEST_F(TcpStoreTest, AListEndsAfterItHasBegun) {
  TcpUnderTest store;
  TcpStoreClient& client = *store.clients_[1];
  const uint64_t begun = client.BeginList("k", 1);
  EXPECT_EQ(WaitFor(client.socket(), POLLIN, AfterMs(20)).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client.EndList(begun, AfterMs(0)).status().code(),
            StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(store.Client(2).Set("k", "v", Soon()).ok());
  EXPECT_TRUE(WaitFor(client.socket(), POLLIN, Soon()).ok());
  // It comes before the reply to this.
  EXPECT_TRUE(client.Set("other", "v", Soon()).ok());
  auto entries = client.EndList(begun, AfterMs(0));
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  EXPECT_EQ(*entries, (StoreEntries{{"k", "v"}}));
}

TEST_F(TcpStoreTest, WhatCameBeforeTheStoreWentIsThere) {
  TcpUnderTest store;
  TcpStoreClient& client = *store.clients_[1];
  const uint64_t begun = client.BeginList("k", 1);
  ASSERT_TRUE(client.List("", 0, Soon()).ok());  // so the server has it
  ASSERT_TRUE(store.Client(0).Set("k", "v", Soon()).ok());
  store.server_.Stop(std::chrono::milliseconds(50));
  EXPECT_EQ(client.Set("other", "v", Soon()).code(), StatusCode::kUnavailable);
  auto entries = client.EndList(begun, Soon());
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  EXPECT_EQ(*entries, (StoreEntries{{"k", "v"}}));
}

TEST_F(TcpStoreTest, WaitUntilAlone) {
  TcpUnderTest store;
  EXPECT_FALSE(store.server_.WaitUntilAlone(AfterMs(10)));
  store.clients_.clear();
  EXPECT_TRUE(store.server_.WaitUntilAlone(Soon()));
}

// Rank 0 may stop its store while another rank is about to ask.
TEST_F(TcpStoreTest, StopServesTheLastQuestions) {
  TcpUnderTest store;
  store.clients_.resize(2);
  RunRanks(2, [&](int side) {
    if (side == 0) {
      store.server_.Stop(std::chrono::seconds(20));
      return;
    }
    Pause(std::chrono::milliseconds(50), Soon());
    EXPECT_TRUE(store.Client(1).List("", 0, Soon()).ok());
    store.clients_.clear();
  });
}

TEST_F(TcpStoreTest, StopDoesNotWaitForEver) {
  TcpUnderTest store;
  store.server_.Stop(std::chrono::milliseconds(20));
  EXPECT_EQ(store.Client(1).List("k", 1, Soon()).status().code(),
            StatusCode::kUnavailable);
}

TEST_F(TcpStoreTest, StopDeliversWhatIsWritten) {
  TcpUnderTest store;
  store.clients_.resize(2);
  // Far more than a socket holds, to a client that reads it later.
  const std::string value(kMaxStoreValueBytes, 'v');
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(
        store.Client(0).Set("v/" + std::to_string(i), value, Soon()).ok());
  }
  RunRanks(2, [&](int side) {
    if (side == 0) {
      auto all = store.Client(1).List("v/", 31, Soon());
      ASSERT_TRUE(all.ok()) << all.status().ToString();
      EXPECT_EQ(all->size(), 31u);
      store.clients_.clear();
      return;
    }
    // The last key comes only when the question is there.
    Pause(std::chrono::milliseconds(50), Soon());
    ASSERT_TRUE(store.Client(0).Set("v/last", value, Soon()).ok());
    store.server_.Stop(std::chrono::seconds(20));
  });
}

TEST_F(TcpStoreTest, TheClientWaitsForTheServerToCome) {
  ReservedPort reserved;
  const JobKey key = NewKey();
  Counters counters;
  TcpStoreServer server;
  ASSERT_TRUE(server.Start().ok());
  std::unique_ptr<Acceptor> acceptor;
  RunRanks(2, [&](int side) {
    if (side == 0) {
      auto client =
          TcpStoreClient::Connect("127.0.0.1", reserved.port, key, 1, Soon());
      EXPECT_TRUE(client.ok()) << client.status().ToString();
      return;
    }
    Pause(std::chrono::milliseconds(100), Soon());
    Result<Socket> late = Listen("127.0.0.1", reserved.port);
    ASSERT_TRUE(late.ok()) << late.status().ToString();
    acceptor = std::make_unique<Acceptor>(
        std::move(late).value(), key,
        [](const Hello&) { return Verdict::kAccepted; },
        [&](const Hello&, Link link) { server.Serve(std::move(link)); },
        counters);
    ASSERT_TRUE(acceptor->Start().ok());
  });
}

// A holder of the key that talks nonsense loses its connection; the others
// notice nothing.
TEST_F(TcpStoreTest, AMalformedRequestClosesThatClientOnly) {
  LogCapture logs;
  TcpUnderTest store;
  for (const std::string& bytes :
       {std::string("\x03\x07\x01\x01"), std::string("\x02\x00\x01", 3),
        std::string(9, '\xff')}) {
    Result<Socket> socket = Connect("127.0.0.1", store.port_, Soon());
    ASSERT_TRUE(socket.ok());
    ASSERT_TRUE(ClientHandshake(*socket, store.key_, {}, Soon()).ok());
    ASSERT_TRUE(WriteFull(*socket, bytes.data(), bytes.size(), Soon()).ok());
    EXPECT_TRUE(Eventually([&] { return IsDead(*socket); }));
  }
  EXPECT_TRUE(store.Client(1).Set("k", "v", Soon()).ok());
  EXPECT_EQ(logs.count(LogLevel::kWarning), 3);
}

// A process that the server forks, such as one that loads data, has its
// connections, too: they are open when the server has closed its own.
TEST_F(TcpStoreTest, AConnectionThatAForkKeepsHarmsNobody) {
  LogCapture logs;
  TcpUnderTest store;
  const std::string nonsense(9, '\xff');
  Result<Socket> socket = Connect("127.0.0.1", store.port_, Soon());
  ASSERT_TRUE(socket.ok());
  ASSERT_TRUE(ClientHandshake(*socket, store.key_, {}, Soon()).ok());
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  const auto write = [&] {
    return WriteFull(*socket, nonsense.data(), nonsense.size(), Soon()).ok();
  };
  EXPECT_TRUE(write());
  EXPECT_TRUE(Eventually([&] { return logs.count(LogLevel::kWarning) == 1; }));
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(write());
    EXPECT_TRUE(store.Client(1).Set("k", "v", Soon()).ok());
  }
  EXPECT_EQ(logs.count(LogLevel::kWarning), 1);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(StoreMessage, TruncatedAndRandomBytesAreRefused) {
  StoreRequest request;
  request.id = 7;
  request.key = "key";
  request.value = "value";
  const std::string set = Encode(request);
  StoreRequest read;
  ASSERT_TRUE(Decode(set, &read));
  EXPECT_EQ(read.value, "value");
  const std::string reply = Encode(StoreReply{7, {{"a", "b"}, {"c", "d"}}});
  StoreReply read_reply;
  ASSERT_TRUE(Decode(reply, &read_reply));
  EXPECT_EQ(read_reply.entries.size(), 2u);
  for (size_t size = 0; size < set.size(); ++size) {
    EXPECT_FALSE(Decode(set.substr(0, size), &read)) << size;
  }
  for (size_t size = 0; size < reply.size(); ++size) {
    EXPECT_FALSE(Decode(reply.substr(0, size), &read_reply)) << size;
  }
  EXPECT_FALSE(Decode(set + "x", &read));
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    StoreReply any_reply;
    StoreRequest any_request;
    (void)Decode(bytes, &any_request);
    if (Decode(bytes, &any_reply)) {
      EXPECT_LE(any_reply.entries.size(), 20u);
    }
  }
}

}  // namespace
}  // namespace keras_ring
