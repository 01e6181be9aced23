#include "csrc/comm/rendezvous/sub_mesh.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/comm/rendezvous/job_mesh.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"
#include "tests/cpp/comm/rendezvous_peer.h"

namespace keras_ring {
namespace {

void Say(const Link& link, char what) {
  ASSERT_TRUE(WriteFull(link, &what, 1, Soon()).ok());
}
char Hear(const Link& link) {
  char heard = 0;
  EXPECT_TRUE(ReadFull(link, &heard, 1, Soon()).ok());
  return heard;
}

class SubMeshTest : public DescriptorTest {
 protected:
  void TearDown() override {
    meshes_.clear();
    listener_.socket.Close();
    DescriptorTest::TearDown();
  }

  void JoinAll(int size) {
    meshes_.resize(size);
    RunRanks(size, [&](int rank) {
      RendezvousOptions options = OptionsOfPeer(rank, size, listener_, key_);
      options.host_id = "host " + std::to_string(rank);
      auto mesh = Rendezvous(options, Soon(), counters_);
      ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
      meshes_[rank] = std::move(mesh).value();
    });
  }

  const JobKey key_ = NewKey();
  Counters counters_;
  TestListener listener_;
  std::vector<std::unique_ptr<Mesh>> meshes_;
};

TEST_F(SubMeshTest, CountsRanksFromZero) {
  JoinAll(4);
  RunRanks(4, [&](int rank) {
    const RankSet set(1, {1, 3});
    if (set.Local(rank) < 0) return;
    SubMesh mesh(*meshes_[rank], set);
    ASSERT_EQ(mesh.members().size(), 2u);
    EXPECT_EQ(mesh.members()[0].host_id, "host 1");
    EXPECT_EQ(mesh.members()[1].host_id, "host 3");
    const int peer = 1 - set.Local(rank);
    auto links = mesh.Connect(LinkKind::kData, {peer}, Soon());
    ASSERT_TRUE(links.ok()) << links.status().ToString();
    Say(links->at(peer), static_cast<char>('0' + rank));
    EXPECT_EQ(Hear(links->at(peer)), '0' + set.Global(peer));
  });
}

// Each sees what all have passed, in the order of the ranks, however often.
TEST_F(SubMeshTest, AnExchange) {
  for (int size : {1, 6}) {
    JoinAll(size);
    RunRanks(size, [&](int rank) {
      for (int round = 0; round < 3; ++round) {
        const auto all = meshes_[rank]->Exchange(
            std::string(round * 2000, 'x') + std::to_string(rank), Soon());
        ASSERT_TRUE(all.ok()) << all.status().ToString();
        ASSERT_EQ(all->size(), static_cast<size_t>(size));
        for (int from = 0; from < size; ++from) {
          EXPECT_EQ((*all)[from],
                    std::string(round * 2000, 'x') + std::to_string(from));
        }
      }
    });
    meshes_.clear();
    listener_ = TestListener();
  }
}

TEST_F(SubMeshTest, AnExchangeInASet) {
  JoinAll(4);
  RunRanks(4, [&](int rank) {
    const RankSet set(1, {0, 2, 3});
    if (set.Local(rank) < 0) return;
    SubMesh mesh(*meshes_[rank], set);
    const auto all = mesh.Exchange(std::to_string(rank), Soon());
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    EXPECT_EQ(*all, (std::vector<std::string>{"0", "2", "3"}));
  });
}

// Fault: a rank goes before it has said its part. Error: on all that wait for
// it, with the name of the neighbour they wait for.
TEST_F(SubMeshTest, AnExchangeWithARankThatGoes) {
  JoinAll(3);
  RunRanks(3, [&](int rank) {
    if (rank == 1) {
      auto links = meshes_[1]->Connect(LinkKind::kExchange, {0}, Soon());
      ASSERT_TRUE(links.ok());
      return;  // closes it
    }
    if (rank == 2) return;
    const auto all = meshes_[0]->Exchange("", Deadline::AfterSeconds(2));
    EXPECT_FALSE(all.ok());
    EXPECT_NE(all.status().message().find("rank"), std::string::npos)
        << all.status().ToString();
  });
}

// Fault: a peer that does not keep the protocol. Error: an error, and nothing
// is allocated for what it claims.
TEST_F(SubMeshTest, AnExchangeWithWhoSendsAnything) {
  JoinAll(2);
  for (const std::string& sent :
       {std::string(8, '\xff'), std::string("\x01\0\0\0\0\0\0\0\x05", 9),
        // Two values of rank 0.
        std::string("\x05\0\0\0\0\0\0\0\x02\x01\0\x01\0", 13)}) {
    RunRanks(2, [&](int rank) {
      if (rank == 0) {
        const auto all = meshes_[0]->Exchange("", Soon());
        EXPECT_EQ(all.status().code(), StatusCode::kInternal)
            << all.status().ToString();
        return;
      }
      auto links = meshes_[1]->Connect(LinkKind::kExchange, {0}, Soon());
      ASSERT_TRUE(links.ok());
      ASSERT_TRUE(
          WriteFull(links->at(0), sent.data(), sent.size(), Soon()).ok());
      char end;
      (void)ReadFull(links->at(0), &end, 1, Soon());
    });
  }
}

// Rank 2 dials for everything before rank 0 asks for anything, and in another
// order.
TEST_F(SubMeshTest, LinksOfAPeerThatIsAheadAreNotConfused) {
  JoinAll(3);
  SubMesh first(*meshes_[2], RankSet(1, {0, 2}));
  SubMesh second(*meshes_[2], RankSet(2, {0, 1, 2}));
  auto of_second = second.Connect(LinkKind::kData, {0}, Soon());
  auto of_job = meshes_[2]->Connect(LinkKind::kData, {0}, Soon());
  auto of_first = first.Connect(LinkKind::kData, {0}, Soon());
  ASSERT_TRUE(of_first.ok() && of_second.ok() && of_job.ok());
  Say(of_first->at(0), '1');
  Say(of_second->at(0), '2');
  Say(of_job->at(0), '0');

  SubMesh first_of_0(*meshes_[0], RankSet(1, {0, 2}));
  SubMesh second_of_0(*meshes_[0], RankSet(2, {0, 1, 2}));
  auto links = first_of_0.Connect(LinkKind::kData, {1}, Soon());
  ASSERT_TRUE(links.ok()) << links.status().ToString();
  EXPECT_EQ(Hear(links->at(1)), '1');
  links = meshes_[0]->Connect(LinkKind::kData, {2}, Soon());
  ASSERT_TRUE(links.ok()) << links.status().ToString();
  EXPECT_EQ(Hear(links->at(2)), '0');
  links = second_of_0.Connect(LinkKind::kData, {2}, Soon());
  ASSERT_TRUE(links.ok()) << links.status().ToString();
  EXPECT_EQ(Hear(links->at(2)), '2');
}

TEST_F(SubMeshTest, AMissingPeerHasItsRankOfTheJob) {
  JoinAll(3);
  SubMesh mesh(*meshes_[0], RankSet(1, {0, 2}));
  EXPECT_EQ(mesh.Connect(LinkKind::kData, {1}, AfterMs(20)).status(),
            DeadlineExceededError("rank 2 did not connect in time"));
}

TEST_F(SubMeshTest, AnAbortEndsTheWaitForAPeer) {
  JoinAll(2);
  const Status cause = UnavailableError("lost rank 1");
  RunRanks(2, [&](int thread) {
    if (thread == 1) return meshes_[0]->Abort(cause);
    EXPECT_EQ(meshes_[0]->Connect(LinkKind::kData, {1}, Soon()).status(),
              cause);
  });
}

TEST(LinkInbox, DropsWhatEarlierSetsHaveLeft) {
  LinkInbox inbox;
  for (uint32_t set : {0u, 1u, 2u, 3u}) {
    inbox.Put(Hello{LinkKind::kData, 1, 0, set}, Link(ConnectedPair().first));
  }
  EXPECT_EQ(inbox.size(), 4u);
  (void)inbox.Take(LinkUse(LinkKind::kHost, 2), {1}, AfterMs(0));
  EXPECT_EQ(inbox.size(), 3u) << "those of the job, of set 2 and of set 3";
  (void)inbox.Take(LinkKind::kHost, {1}, AfterMs(0));
  EXPECT_EQ(inbox.size(), 3u) << "the job knows nothing of sets";
}

}  // namespace
}  // namespace keras_ring
