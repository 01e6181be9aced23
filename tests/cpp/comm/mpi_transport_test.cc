// MpiTransport over an MPI that is a fake.
#include "csrc/comm/transport/mpi_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/testing/fake_mpi.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/transport_conformance.h"
#include "tests/cpp/comm/loopback.h"
#include "tests/cpp/comm/mpi_group.h"

namespace keras_ring {
namespace {

using std::chrono::milliseconds;
using transport_conformance::Whole;

constexpr TransportTraits kTraits{/*sees_lost_peers=*/false};
constexpr milliseconds kPatient{30000};

class MpiTransportTest : public testing::Test {
 protected:
  TransportFactory Factory(const FakeMpiOptions& options,
                           Duration spin = Duration::zero()) {
    return [=](int size, milliseconds idle_limit) {
      return NewMpiGroup(CreateFakeMpiPorts(size, options), idle_limit,
                         counters_, spin);
    };
  }

  Counters counters_;
};

TEST_F(MpiTransportTest, Conformance) {
  RunTransportConformance(Factory({}), kTraits);
}

TEST_F(MpiTransportTest, ConformanceWithNothingEager) {
  FakeMpiOptions options;
  options.eager_bytes = 0;
  RunTransportConformance(Factory(options), kTraits);
}

TEST_F(MpiTransportTest, ConformanceOfOneThatSpins) {
  RunTransportConformance(Factory({}, std::chrono::microseconds(200)), kTraits);
}

// What MPI has said is done stays with it until it is called; so a rank that
// has sent all does not stop calling before.
TEST_F(MpiTransportTest, WhoHasSentAllHasBroughtItThere) {
  FakeMpiOptions options;
  options.eager_bytes = 1 << 20;  // all is done at once
  auto group = NewMpiGroup(CreateFakeMpiPorts(2, options), kPatient, counters_);
  RunRanks(2, [&](int rank) {
    std::vector<uint8_t> out(1000000, 7), in(1000000);
    SendReceivePlan plan = rank == 0 ? Whole(1, 1, out, -1, in, 5000)
                                     : Whole(1, -1, out, 0, in, 5000);
    const Status status = group[rank]->Run(plan);
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (rank == 1) {
      EXPECT_EQ(in, out);
    }
    // Rank 0 calls no MPI from now on.
  });
}

TEST_F(MpiTransportTest, AnotherNumberOfBytesIsAnError) {
  auto group = NewMpiGroup(CreateFakeMpiPorts(2), kPatient, counters_);
  RunRanks(2, [&](int rank) {
    std::vector<uint8_t> out(1000 + rank), in(1000 + rank);
    SendReceivePlan plan = Whole(1, 1 - rank, out, 1 - rank, in, 300);
    const Status status = group[rank]->Run(plan);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_NE(status.message().find("this rank expects " +
                                    std::to_string(1000 + rank)),
              std::string::npos)
        << status.ToString();
  });
}

// Fault: a rank is told to stop while a message of it is under way, and all of
// its memory goes. The message, which cannot be taken back, does no harm.
TEST_F(MpiTransportTest, AMessageUnderWayOutlivesItsTransport) {
  FakeMpiOptions options;
  options.eager_bytes = 0;
  auto group = NewMpiGroup(CreateFakeMpiPorts(2, options), kPatient, counters_);
  const Status cause = UnavailableError("rank 3 was lost");
  {
    std::vector<uint8_t> out(100000, 7), in(100);
    SendReceivePlan plan = Whole(1, 1, out, 1, in, out.size());
    bool sent = false;
    plan.advance = [&](SendReceivePlan&) {
      if (sent) group[0]->Abort(cause);
      sent = true;
    };
    EXPECT_EQ(group[0]->Run(plan), cause);
    group[0].reset();
  }
  std::vector<uint8_t> in(100000);
  SendReceivePlan plan = Whole(1, -1, in, 0, in, in.size());
  const Status status = group[1]->Run(plan);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(in, std::vector<uint8_t>(100000, 7));
}

// Counts the calls, and fails those that it is told to.
class ProbedPort final : public MpiPort {
 public:
  explicit ProbedPort(std::unique_ptr<MpiPort> port) : port_(std::move(port)) {}

  Status Send(int id, int peer, const void* data, size_t bytes,
              bool until_matched) override {
    last_send_ = id;
    return port_->Send(id, peer, data, bytes, until_matched);
  }
  Status Receive(int id, int peer, void* data, size_t bytes) override {
    first_receive_ = first_receive_ < 0 ? id : first_receive_;
    return port_->Receive(id, peer, data, bytes);
  }
  std::optional<MpiDone> Test() override {
    ++tests_;
    const int failing = fails_sending ? last_send_ : first_receive_;
    if (fails) return MpiDone{failing, 0, UnavailableError("MPI: it is gone")};
    return port_->Test();
  }
  bool Close() override { return port_->Close(); }

  int tests() const { return tests_; }

  bool fails = false;
  bool fails_sending = false;

 private:
  const std::unique_ptr<MpiPort> port_;
  std::atomic<int> tests_{0};
  int last_send_ = -1;
  int first_receive_ = -1;
};

class ProbedMpiTransportTest : public MpiTransportTest {
 protected:
  // Rank 0 of three.
  std::unique_ptr<Transport> NewProbed(Duration idle_limit) {
    auto ports = CreateFakeMpiPorts(3);
    auto probed = std::make_unique<ProbedPort>(std::move(ports[0]));
    port_ = probed.get();
    ports[0] = std::move(probed);
    auto group = NewMpiGroup(std::move(ports), idle_limit, counters_);
    return std::move(group[0]);
  }

  ProbedPort* port_ = nullptr;
};

TEST_F(ProbedMpiTransportTest, AFailureOfMpiNamesThePeer) {
  for (const bool sending : {false, true}) {
    auto transport = NewProbed(kPatient);
    port_->fails_sending = sending;
    std::vector<uint8_t> out(10), in(10);
    SendReceivePlan plan = Whole(1, 1, out, 2, in, 10);
    plan.advance = [&](SendReceivePlan&) {
      port_->fails = plan.outgoing[0].sent > 0;
    };
    const Status status = transport->Run(plan);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), sending
                                    ? "sending to rank 1: MPI: it is gone"
                                    : "receiving from rank 2: MPI: it is gone");
    EXPECT_EQ(transport->Run(plan), status);
  }
}

// So it costs little: it looks some hundred times a second.
TEST_F(ProbedMpiTransportTest, WhoWaitsNaps) {
  auto transport = NewProbed(milliseconds(300));
  std::vector<uint8_t> in(10);
  SendReceivePlan plan = Whole(1, -1, in, 1, in, 10);
  EXPECT_EQ(transport->Run(plan).code(), StatusCode::kDeadlineExceeded);
  // Two looks for each nap, and some fifty naps until these are 2 ms.
  EXPECT_LT(port_->tests(), 600);
}

TEST_F(ProbedMpiTransportTest, AnAbortEndsANap) {
  auto transport = NewProbed(kPatient);
  const Status cause = UnavailableError("rank 2 was lost");
  std::vector<uint8_t> in(10);
  SendReceivePlan plan = Whole(1, -1, in, 1, in, 10);
  TimePoint aborted, ended;
  RunRanks(2, [&](int thread) {
    if (thread == 0) {
      EXPECT_EQ(transport->Run(plan), cause);
      ended = std::chrono::steady_clock::now();
      return;
    }
    Pause(milliseconds(100), Soon());
    aborted = std::chrono::steady_clock::now();
    transport->Abort(cause);
  });
  EXPECT_LT(ended - aborted, milliseconds(500));
}

TEST_F(MpiTransportTest, ASlowRankIsReported) {
  auto group = NewMpiGroup(CreateFakeMpiPorts(2), milliseconds(400), counters_,
                           Duration::zero(), milliseconds(100));
  LogCapture log;
  std::vector<uint8_t> in(10);
  SendReceivePlan plan = Whole(1, -1, in, 1, in, 10);
  EXPECT_FALSE(group[0]->Run(plan).ok());
  ASSERT_EQ(log.count(LogLevel::kWarning), 2);  // after 100 ms, and 200
  EXPECT_NE(log.lines().front().find("while receiving from rank 1; a rank is"),
            std::string::npos)
      << log.lines().front();
}

TEST_F(MpiTransportTest, APeerThatIsNoneIsAnError) {
  auto group = NewMpiGroup(CreateFakeMpiPorts(2), kPatient, counters_);
  std::vector<uint8_t> in(10);
  for (int peer : {0, 2}) {
    SendReceivePlan plan = Whole(1, -1, in, peer, in, 10);
    EXPECT_EQ(group[0]->Run(plan).code(), StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace keras_ring
