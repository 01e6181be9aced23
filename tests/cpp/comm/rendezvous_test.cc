#include "csrc/comm/rendezvous/rendezvous.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <string.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/comm/rendezvous/job_mesh.h"
#include "csrc/comm/rendezvous/member_record.h"
#include "csrc/comm/store/tcp_store.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"
#include "tests/cpp/comm/rendezvous_peer.h"

namespace keras_ring {
namespace {

using Joined = Result<std::unique_ptr<StartingMesh>>;

// Whether the ranks of a host come by a relay.
class RendezvousTest : public DescriptorTest,
                       public testing::WithParamInterface<bool> {
 protected:
  void TearDown() override {
    listener_.socket.Close();
    EXPECT_EQ(logs_.count(LogLevel::kWarning), expected_warnings_)
        << testing::PrintToString(logs_.lines(LogLevel::kWarning));
    DescriptorTest::TearDown();
  }

  RendezvousOptions OptionsOf(int rank, int size) {
    RendezvousOptions options = OptionsOfPeer(rank, size, listener_, key_);
    options.host_id = "host";
    options.fingerprint = {"version=1"};
    options.by_host = by_host_;
    return options;
  }

  Joined Join(const RendezvousOptions& options, Deadline deadline = Soon()) {
    return Rendezvous(options, deadline, counters_);
  }

  Joined JoinAndStart(const RendezvousOptions& options) {
    Joined mesh = Join(options);
    if (mesh.ok()) KR_RETURN_IF_ERROR((*mesh)->StartBarrier(OkStatus()));
    return mesh;
  }

  static std::vector<int> Others(int rank, int size) {
    std::vector<int> others;
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) others.push_back(peer);
    }
    return others;
  }

  // Says this rank's number on each link and expects the peer's.
  static void Greet(const Links& links, int rank) {
    const uint8_t own = static_cast<uint8_t>(rank);
    for (const auto& [peer, socket] : links) {
      EXPECT_TRUE(WriteFull(socket, &own, 1, Soon()).ok());
    }
    for (const auto& [peer, socket] : links) {
      uint8_t said = 255;
      EXPECT_TRUE(ReadFull(socket, &said, 1, Soon()).ok());
      EXPECT_EQ(said, peer);
    }
  }

  bool by_host_ = GetParam();
  LogCapture logs_{LogLevel::kWarning};
  int expected_warnings_ = 0;
  const JobKey key_ = NewKey();
  Counters counters_;
  TestListener listener_;
};

TEST_P(RendezvousTest, AllMeetAndConnect) {
  for (const int size : {1, 2, 3, 5, 16}) {
    RunRanks(size, [&](int rank) {
      Joined mesh = Join(OptionsOf(rank, size));
      ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
      ASSERT_EQ((*mesh)->members().size(), static_cast<size_t>(size));
      for (const Member& member : (*mesh)->members()) {
        EXPECT_EQ(member.host_id, "host");
        EXPECT_FALSE(member.host.empty());
        EXPECT_GT(member.pid, 0);
        EXPECT_EQ(member.address, size > 1 ? "127.0.0.1" : "");
      }
      const std::vector<int> others = Others(rank, size);
      // Twice the same kind, once another: links are not mixed up.
      auto control = (*mesh)->Connect(LinkKind::kControl, others, Soon());
      ASSERT_TRUE(control.ok()) << control.status().ToString();
      auto data = (*mesh)->Connect(LinkKind::kData, others, Soon());
      ASSERT_TRUE(data.ok()) << data.status().ToString();
      auto more = (*mesh)->Connect(LinkKind::kData, others, Soon());
      ASSERT_TRUE(more.ok()) << more.status().ToString();
      Greet(*control, rank);
      Greet(*data, rank);
      Greet(*more, rank);
    });
  }
  EXPECT_EQ(counters_.rejected_connections, 0u);
}

TEST_P(RendezvousTest, OneRankNeedsNothing) {
  const int before = OpenDescriptors();
  RendezvousOptions options;
  Joined mesh = Join(options);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ((*mesh)->members().size(), 1u);
}

TEST_P(RendezvousTest, WithoutAnInheritedListener) {
  listener_.socket.Close();
  RunRanks(2, [&](int rank) {
    RendezvousOptions options = OptionsOf(rank, 2);
    options.store_listen_fd = -1;
    Joined mesh = Join(options);
    EXPECT_TRUE(mesh.ok()) << mesh.status().ToString();
  });
}

// Each of the others takes the one by which it comes, also for later links.
TEST_P(RendezvousTest, RankZeroMayHaveSeveralAddresses) {
  RunRanks(3, [&](int rank) {
    RendezvousOptions options = OptionsOf(rank, 3);
    options.store_host = "no-such-host.invalid,127.0.0.9,127.0.0.1";
    Joined mesh = Join(options);
    ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
    if (rank > 0) {
      EXPECT_EQ((*mesh)->members()[0].address, "127.0.0.1");
    }
    auto links = (*mesh)->Connect(LinkKind::kData, Others(rank, 3), Soon());
    ASSERT_TRUE(links.ok()) << links.status().ToString();
    Greet(*links, rank);
  });
}

// Ranks of rank 0's host reach it at any of its addresses, also at one that for
// other hosts leads elsewhere.
TEST_P(RendezvousTest, ARankBesideRankZeroIsWhereRankZeroIs) {
  RunRanks(2, [&](int rank) {
    RendezvousOptions options = OptionsOf(rank, 2);
    options.store_host = "127.0.0.1,127.0.0.9";
    Joined mesh = Join(options);
    ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
    EXPECT_EQ((*mesh)->members()[1].address,
              rank == 0 ? options.store_host : "127.0.0.1");
  });
}

// As where two jobs take ports of one range.
TEST_P(RendezvousTest, AnotherJobAtOneOfTheAddressesIsPassedOver) {
  expected_warnings_ = 1;
  Result<Socket> other = Listen("127.0.0.2", listener_.port);
  ASSERT_TRUE(other.ok());
  auto job = JobMesh::Start(0, 2, NewKey(), std::move(other).value(),
                            /*serve_store=*/true, counters_, nullptr);
  ASSERT_TRUE(job.ok());
  RunRanks(2, [&](int rank) {
    RendezvousOptions options = OptionsOf(rank, 2);
    options.store_host = "127.0.0.2,127.0.0.1";
    Joined mesh = Join(options);
    EXPECT_TRUE(mesh.ok()) << mesh.status().ToString();
  });
}

TEST_P(RendezvousTest, BadOptionsAreRefusedAtOnce) {
  for (auto [rank, size] : {std::pair(0, 0), {-1, 2}, {2, 2}, {0, -3}}) {
    EXPECT_EQ(Join(OptionsOf(rank, size)).status().code(),
              StatusCode::kInvalidArgument);
  }
  RendezvousOptions no_key = OptionsOf(1, 2);
  no_key.key = JobKey();
  EXPECT_EQ(Join(no_key).status().code(), StatusCode::kInvalidArgument);
  RendezvousOptions no_port = OptionsOf(1, 2);
  no_port.store_port = 0;
  EXPECT_EQ(Join(no_port).status().code(), StatusCode::kInvalidArgument);
}

// All ranks fail, with one text.
#define EXPECT_SAME_ERROR(statuses, expected_code)                \
  for (const Status& status : statuses) {                         \
    EXPECT_EQ(status, statuses[0]);                               \
    EXPECT_EQ(status.code(), expected_code) << status.ToString(); \
  }

TEST_P(RendezvousTest, DifferentFingerprintsAreNamedOnAllRanks) {
  std::vector<Status> statuses(3);
  RunRanks(3, [&](int rank) {
    RendezvousOptions options = OptionsOf(rank, 3);
    if (rank == 1) options.fingerprint = {"version=2"};
    statuses[rank] = Join(options).status();
  });
  EXPECT_SAME_ERROR(statuses, StatusCode::kFailedPrecondition);
  EXPECT_EQ(statuses[0].message(),
            "the ranks differ in 'version': ranks 0, 2 have '1', rank 1 has "
            "'2'");
}

TEST_P(RendezvousTest, DifferentSizesAreNamedOnAllRanks) {
  std::vector<Status> statuses(3);
  RunRanks(3, [&](int rank) {
    statuses[rank] = Join(OptionsOf(rank, rank == 2 ? 4 : 3)).status();
  });
  EXPECT_SAME_ERROR(statuses, StatusCode::kInvalidArgument);
  EXPECT_NE(statuses[0].message().find("rank 2"), std::string::npos)
      << statuses[0].ToString();
}

TEST_P(RendezvousTest, TwoProcessesWithOneRankAreNamedOnAllRanks) {
  std::vector<Status> statuses(3);
  RunRanks(3, [&](int process) {
    // Ranks 0, 1 and 1 of three.
    statuses[process] = Join(OptionsOf(process == 0 ? 0 : 1, 3)).status();
  });
  EXPECT_SAME_ERROR(statuses, StatusCode::kInvalidArgument);
  EXPECT_EQ(statuses[0].message().find("two processes have rank 1"), 0u)
      << statuses[0].ToString();
}

TEST_P(RendezvousTest, MissingRanksAreNamedOnAllRanksThatCame) {
  std::vector<Status> statuses(3);
  const Deadline deadline = AfterMs(300);
  RunRanks(3, [&](int process) {
    const int ranks[] = {0, 1, 3};
    statuses[process] = Join(OptionsOf(ranks[process], 5), deadline).status();
  });
  EXPECT_SAME_ERROR(statuses, StatusCode::kDeadlineExceeded);
  EXPECT_EQ(statuses[0].message(),
            "ranks 2, 4 of 5 did not join in time (ranks 0-1, 3 did)");
}

// It had come, and its place was not taken by the one that came after it.
TEST_P(RendezvousTest, ARankThatLeftIsTheMissingOne) {
  std::vector<Status> statuses(4);
  const Deadline deadline = AfterMs(1500);
  std::atomic<bool> left{false};
  MemberRecord record;
  record.rank = 1;
  record.size = 4;
  RunRanks(4, [&](int rank) {
    if (rank == 1) {
      auto store = TcpStoreClient::Connect("127.0.0.1", listener_.port, key_, 1,
                                           deadline);
      ASSERT_TRUE(store.ok()) << store.status().ToString();
      ASSERT_TRUE(
          (*store)->Set(JoinKey(record), Encode(record), deadline).ok());
      ASSERT_TRUE((*store)->List(kMemberPrefix, 3, deadline).ok());
      // Rank 0 has been told of three.
      Pause(std::chrono::milliseconds(50), deadline);
      store->reset();
      left = true;
      return;
    }
    if (rank == 3) {
      EXPECT_TRUE(Eventually([&] { return left.load(); }));
      // The store may see this rank come before it sees the other one go.
      auto store = TcpStoreClient::Connect("127.0.0.1", listener_.port, key_, 3,
                                           deadline);
      ASSERT_TRUE(store.ok()) << store.status().ToString();
      EXPECT_TRUE(Eventually([&] {
        return !(*store)->List(JoinKey(record), 1, AfterMs(10)).ok();
      }));
    }
    statuses[rank] = Join(OptionsOf(rank, 4), deadline).status();
  });
  for (int rank : {0, 2, 3}) {
    EXPECT_EQ(statuses[rank],
              DeadlineExceededError(
                  "rank 1 of 4 did not join in time (ranks 0, 2-3 did)"))
        << rank;
  }
}

// Rank 0 is patient; the others say themselves whom they miss.
TEST_P(RendezvousTest, AnEarlierDeadlineNamesTheMissingRanksToo) {
  RunRanks(2, [&](int rank) {
    Status status =
        Join(OptionsOf(rank, 3), rank == 0 ? AfterMs(2500) : AfterMs(100))
            .status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_NE(status.message().find("of 3 did not join in time"),
              std::string::npos)
        << status.ToString();
    EXPECT_NE(status.message().find("2"), std::string::npos);
  });
}

TEST_P(RendezvousTest, AMissingRankZeroIsNamed) {
  listener_.socket.Close();
  Status status = Join(OptionsOf(1, 2), AfterMs(100)).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message().find("rank 0 did not come to 127.0.0.1:"), 0u)
      << status.ToString();
  EXPECT_NE(status.message().find("Connection refused"), std::string::npos);
}

// Nobody accepts on rank 0's listener yet: that is waited for as well.
TEST_P(RendezvousTest, ASilentRankZeroIsNamed) {
  Status status = Join(OptionsOf(1, 2), AfterMs(100)).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message().find("rank 0 did not come"), 0u)
      << status.ToString();
}

// It stops after it has let this rank in.
TEST_P(RendezvousTest, ARankZeroThatStopsIsNamed) {
  RunRanks(2, [&](int rank) {
    if (rank == 1) {
      Status status = Join(OptionsOf(1, 2), AfterMs(200)).status();
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_EQ(status.message().find("lost rank 0 (at 127.0.0.1:"), 0u)
          << status.ToString();
      listener_.socket.Close();
      return;
    }
    ASSERT_TRUE(WaitFor(listener_.socket, POLLIN, Soon()).ok());
    Result<Socket> client = Accept(listener_.socket);
    ASSERT_TRUE(client.ok() && client->valid());
    ServerHandshake server(std::move(client).value(), key_);
    while (server.Advance() == ServerHandshake::State::kPending) {
      pollfd entry = {server.fd(), server.wanted_events(), 0};
      ASSERT_GT(poll(&entry, 1, 10000), 0);
    }
    ASSERT_EQ(server.Answer(Verdict::kAccepted), ServerHandshake::State::kDone);
    const Link link = server.TakeLink();
    // Until it has given up.
    char byte = 0;
    while (ReadFull(link, &byte, 1, Soon()).ok()) continue;
  });
}

TEST_P(RendezvousTest, ARankWithAnotherKeyIsToldOf) {
  expected_warnings_ = 1;
  RunRanks(2, [&](int rank) {
    RendezvousOptions options = OptionsOf(rank, 2);
    if (rank == 1) {
      options.key = NewKey();
      EXPECT_EQ(Join(options).status().code(), StatusCode::kUnauthenticated);
      return;
    }
    const Status status = Join(options, AfterMs(700)).status();
    EXPECT_EQ(status.message().rfind(
                  "rank 1 of 2 did not join in time (rank 0 did); 1 connection "
                  "was refused, the last from 127.0.0.1:",
                  0),
              0u)
        << status.message();
    EXPECT_NE(status.message().find("as a rank with another key does"),
              std::string::npos);
  });
}

TEST_P(RendezvousTest, AWrongKeyIsSaidAtOnceAndTheJobGoesOn) {
  RunRanks(3, [&](int process) {
    if (process == 2) {
      RendezvousOptions attacker = OptionsOf(1, 2);
      attacker.key = NewKey();
      Status status = Join(attacker).status();
      EXPECT_EQ(status.code(), StatusCode::kUnauthenticated)
          << status.ToString();
      EXPECT_NE(status.message().find("joining the job at 127.0.0.1:"),
                std::string::npos);
      return;
    }
    if (process == 1) {
      // After the attacker.
      EXPECT_TRUE(Eventually(
          [&] { return counters_.rejected_connections.load() == 1; }));
    }
    Joined mesh = Join(OptionsOf(process, 2));
    EXPECT_TRUE(mesh.ok()) << mesh.status().ToString();
  });
  expected_warnings_ = 1;
}

// init, shutdown, init in one process on one listener; the ranks do not wait
// for each other, so one may come back while rank 0 is still closing.
TEST_P(RendezvousTest, AgainOnTheSameListener) {
  RunRanks(3, [&](int rank) {
    for (int round = 0; round < 20; ++round) {
      Joined mesh = Join(OptionsOf(rank, 3));
      ASSERT_TRUE(mesh.ok()) << round << ": " << mesh.status().ToString();
      auto links = (*mesh)->Connect(LinkKind::kData, Others(rank, 3), Soon());
      ASSERT_TRUE(links.ok()) << round << ": " << links.status().ToString();
      Greet(*links, rank);
      // One rank lingers, rank 0 in its turn.
      if (round % 3 == rank) Pause(std::chrono::milliseconds(20), Soon());
    }
  });
}

// No round of links keeps rank 0 there until the others have their tables.
TEST_P(RendezvousTest, AgainWithoutLinks) {
  RunRanks(3, [&](int rank) {
    for (int round = 0; round < 50; ++round) {
      Joined mesh = Join(OptionsOf(rank, 3));
      ASSERT_TRUE(mesh.ok()) << round << ": " << mesh.status().ToString();
    }
  });
}

// A rank that gave up and comes again is not taken for a second one.
TEST_P(RendezvousTest, ARankMayLeaveAndComeAgain) {
  std::promise<void> left;
  RunRanks(3, [&](int rank) {
    if (rank == 1) {
      // Long enough for its handshakes on a busy machine: one that ends in the
      // midst of them is a refused connection, which is logged.
      Status early = Join(OptionsOf(1, 3), AfterMs(800)).status();
      EXPECT_EQ(early.code(), StatusCode::kDeadlineExceeded);
      left.set_value();
    }
    if (rank == 2) left.get_future().wait();
    Joined mesh = Join(OptionsOf(rank, 3));
    EXPECT_TRUE(mesh.ok()) << mesh.status().ToString();
  });
}

TEST_P(RendezvousTest, ALinkThatOnlyOneSideAsksForNamesThePeer) {
  RunRanks(2, [&](int rank) {
    Joined mesh = JoinAndStart(OptionsOf(rank, 2));
    ASSERT_TRUE(mesh.ok());
    if (rank == 0) {
      auto links = (*mesh)->Connect(LinkKind::kData, {1}, AfterMs(50));
      EXPECT_EQ(links.status(),
                DeadlineExceededError("rank 1 did not connect in time"));
    }
  });
}

// A link that its dialler has given up is not handed out.
TEST_P(RendezvousTest, ADeadLinkIsPassedOver) {
  std::vector<std::unique_ptr<Mesh>> meshes(2);
  RunRanks(2, [&](int rank) {
    Joined mesh = Join(OptionsOf(rank, 2));
    ASSERT_TRUE(mesh.ok());
    meshes[rank] = std::move(mesh).value();
  });
  ASSERT_TRUE(meshes[1]->Connect(LinkKind::kData, {0}, Soon()).ok());
  auto links = meshes[1]->Connect(LinkKind::kData, {0}, Soon());
  ASSERT_TRUE(links.ok());
  auto accepted = meshes[0]->Connect(LinkKind::kData, {1}, Soon());
  ASSERT_TRUE(accepted.ok());
  const char said = 'x';
  ASSERT_TRUE(WriteFull(links->at(0), &said, 1, Soon()).ok());
  char heard = 0;
  Status status = ReadFull(accepted->at(1), &heard, 1, Soon());
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(heard, 'x');
}

TEST_P(RendezvousTest, APeerThatLeftIsNamed) {
  std::vector<std::unique_ptr<Mesh>> meshes(2);
  RunRanks(2, [&](int rank) {
    Joined mesh = JoinAndStart(OptionsOf(rank, 2));
    ASSERT_TRUE(mesh.ok());
    meshes[rank] = std::move(mesh).value();
  });
  meshes[0].reset();
  listener_.socket.Close();
  auto links = meshes[1]->Connect(LinkKind::kData, {0}, AfterMs(200));
  EXPECT_EQ(links.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(links.status().message().find("rank 0 on "), 0u)
      << links.status().ToString();
  meshes[1].reset();
}

// The same listener has passed to another job meanwhile: its links are not
// this job's.
TEST_P(RendezvousTest, ALinkToAnEarlierJobIsRefused) {
  std::vector<std::unique_ptr<Mesh>> first(2), second(2);
  for (auto* meshes : {&first, &second}) {
    first[0].reset();
    RunRanks(2, [&](int rank) {
      Joined mesh = JoinAndStart(OptionsOf(rank, 2));
      ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
      (*meshes)[rank] = std::move(mesh).value();
    });
  }
  auto links = first[1]->Connect(LinkKind::kData, {0}, Soon());
  EXPECT_EQ(links.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(links.status().message().find("has left this job"),
            std::string::npos)
      << links.status().ToString();
}

// Unauthenticated peers at every port of a running job change nothing.
TEST_P(RendezvousTest, UnauthenticatedPeersAtARunningJob) {
  std::vector<Socket> attackers;
  std::vector<std::unique_ptr<Mesh>> meshes(3);
  RunRanks(3, [&](int rank) {
    Joined mesh = Join(OptionsOf(rank, 3));
    ASSERT_TRUE(mesh.ok());
    meshes[rank] = std::move(mesh).value();
  });
  for (const Member& member : meshes[0]->members()) {
    for (const char* bytes : {"", "GET /", "KRNG"}) {
      auto socket = Connect(member.address, member.port, Soon());
      ASSERT_TRUE(socket.ok());
      ASSERT_TRUE(WriteFull(*socket, bytes, strlen(bytes), Soon()).ok());
      attackers.push_back(std::move(socket).value());
    }
  }
  EXPECT_TRUE(
      Eventually([&] { return counters_.rejected_connections.load() == 3; }));
  RunRanks(3, [&](int rank) {
    auto links =
        meshes[rank]->Connect(LinkKind::kControl, Others(rank, 3), Soon());
    ASSERT_TRUE(links.ok()) << links.status().ToString();
    Greet(*links, rank);
  });
  expected_warnings_ = 3;  // one per acceptor
}

INSTANTIATE_TEST_SUITE_P(Ways, RendezvousTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "ByHost" : "Direct";
                         });

}  // namespace
}  // namespace keras_ring
