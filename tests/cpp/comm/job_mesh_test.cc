#include "csrc/comm/rendezvous/job_mesh.h"

#include <gtest/gtest.h>

#include <climits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

// Rank 1 of four, and whoever knocks there with the job's key.
class JobMeshTest : public DescriptorTest {
 protected:
  void SetUp() override {
    TestListener listener;
    auto mesh = JobMesh::Start(1, 4, key_, std::move(listener.socket),
                               /*serve_store=*/false, counters_);
    ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
    mesh_ = std::move(mesh).value();
  }

  void TearDown() override {
    mesh_.reset();
    DescriptorTest::TearDown();
  }

  Status Knock(const Hello& hello) {
    KR_ASSIGN_OR_RETURN(Socket socket,
                        Connect("127.0.0.1", mesh_->port(), Soon()));
    return ClientHandshake(socket, key_, hello, Soon());
  }

  const JobKey key_ = NewKey();
  Counters counters_;
  std::unique_ptr<JobMesh> mesh_;
};

TEST_F(JobMeshTest, TakesLinksOfHigherRanksOnly) {
  const uint64_t target = mesh_->target();
  for (int rank : {2, 3}) {
    EXPECT_TRUE(Knock({LinkKind::kData, rank, target}).ok()) << rank;
  }
  for (int rank : {0, 1, 4, INT_MAX}) {
    const Status status = Knock({LinkKind::kData, rank, target});
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << rank;
    EXPECT_NE(status.message().find("takes no such link"), std::string::npos)
        << status.ToString();
  }
}

TEST_F(JobMeshTest, TakesNoLinkThatIsMeantForAnother) {
  const uint64_t target = mesh_->target();
  for (LinkKind kind : {LinkKind::kControl, LinkKind::kData, LinkKind::kHost}) {
    EXPECT_EQ(Knock({kind, 2, target ^ 1}).code(),
              StatusCode::kFailedPrecondition);
  }
  // Nor for rank 0's store, whose clients know no number.
  EXPECT_EQ(Knock({LinkKind::kStore, 2, 0}).code(),
            StatusCode::kFailedPrecondition);
}

// It is full of unauthenticated peers, who stay longer than one dials again
// otherwise; but it is there.
TEST(JobMesh, DialsAgainAsLongAsSomebodyListens) {
  const JobKey key = NewKey();
  Counters counters;
  TestListener own;
  auto mesh = JobMesh::Start(1, 2, key, std::move(own.socket), false, counters);
  ASSERT_TRUE(mesh.ok());
  TestListener busy;
  JobTable table;
  table.members.resize(2);
  table.members[0].address = "127.0.0.1";
  table.members[0].port = busy.port;
  table.targets = {7, 8};
  (*mesh)->SetTable(std::move(table), Soon());
  RunRanks(2, [&](int side) {
    if (side == 0) {
      auto links = (*mesh)->Connect(LinkKind::kData, {0}, Soon());
      EXPECT_TRUE(links.ok()) << links.status().ToString();
      return;
    }
    auto next = [&busy] {
      EXPECT_TRUE(WaitFor(busy.socket, POLLIN, Soon()).ok());
      Result<Socket> client = Accept(busy.socket);
      KR_CHECK(client.ok() && client->valid());
      return std::move(client).value();
    };
    // Its turn comes late, and then it is turned away.
    Socket first = next();
    Pause(std::chrono::milliseconds(3500), Soon());
    first.Close();
    ServerHandshake server(next(), key);
    while (server.Advance() == ServerHandshake::State::kPending) {
      pollfd entry = {server.fd(), server.wanted_events(), 0};
      ASSERT_GT(poll(&entry, 1, 10000), 0);
    }
    EXPECT_EQ(server.Answer(Verdict::kAccepted), ServerHandshake::State::kDone);
  });
}

TEST(LinkInbox, KeepsTheLastFewLinksForOneUse) {
  LinkInbox inbox;
  std::vector<Socket> diallers;
  for (int i = 0; i < 50; ++i) {
    auto [dialler, accepted] = ConnectedPair();
    inbox.Put(Hello{LinkKind::kData, 1, 0, 0}, Link(std::move(accepted)));
    diallers.push_back(std::move(dialler));
  }
  EXPECT_LE(inbox.size(), 4u);
  EXPECT_TRUE(IsDead(diallers.front()));
  EXPECT_FALSE(IsDead(diallers.back()));
}

}  // namespace
}  // namespace keras_ring
