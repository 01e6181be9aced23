#include "csrc/comm/rendezvous/membership.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "csrc/comm/net/socket.h"

namespace keras_ring {
namespace {

const std::function<bool()> kNever = [] { return false; };

MemberReport AReport() {
  MemberReport report;
  report.stand = MemberStand::kAdmits;
  report.generation = 300;
  report.host = "10.0.0.7";
  report.port = 40000;
  report.cause = "lost rank 2";
  report.steps = {{"adam", 1 << 20, true, false}, {"sgd", 0, false, true}};
  return report;
}

NextGeneration ANext() {
  NextGeneration next;
  next.generation = 301;
  next.admitted = true;
  next.rank = 2;
  next.members = {0, 300, 2};
  next.host = "10.0.0.7";
  next.port = 40000;
  next.settled = {{"adam", 1 << 20, StepOutcome::kDiscarded},
                  {"sgd", 0, StepOutcome::kCommitted}};
  return next;
}

TEST(MembershipMessages, ReportsComeAsTheyWere) {
  const MemberReport sent = AReport();
  const auto got = DecodeReport(EncodeReport(sent));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->stand, sent.stand);
  EXPECT_EQ(got->generation, sent.generation);
  EXPECT_EQ(got->host, sent.host);
  EXPECT_EQ(got->port, sent.port);
  EXPECT_EQ(got->cause, sent.cause);
  ASSERT_EQ(got->steps.size(), sent.steps.size());
  for (size_t i = 0; i < sent.steps.size(); ++i) {
    EXPECT_EQ(got->steps[i].group, sent.steps[i].group);
    EXPECT_EQ(got->steps[i].settled, sent.steps[i].settled);
    EXPECT_EQ(got->steps[i].begun, sent.steps[i].begun);
    EXPECT_EQ(got->steps[i].whole, sent.steps[i].whole);
  }
}

TEST(MembershipMessages, GenerationsComeAsTheyWere) {
  const NextGeneration sent = ANext();
  const auto got = DecodeNext(EncodeNext(sent));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->generation, sent.generation);
  EXPECT_EQ(got->admitted, sent.admitted);
  EXPECT_EQ(got->rank, sent.rank);
  EXPECT_EQ(got->members, sent.members);
  EXPECT_EQ(got->host, sent.host);
  EXPECT_EQ(got->port, sent.port);
  ASSERT_EQ(got->settled.size(), sent.settled.size());
  for (size_t i = 0; i < sent.settled.size(); ++i) {
    EXPECT_EQ(got->settled[i].group, sent.settled[i].group);
    EXPECT_EQ(got->settled[i].step, sent.settled[i].step);
    EXPECT_EQ(got->settled[i].outcome, sent.settled[i].outcome);
  }
}

TEST(MembershipMessages, TheEndHasAReason) {
  const auto got = DecodeNext(EncodeEnd("all ranks are lost"));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(got.status().message(), "all ranks are lost");
}

TEST(MembershipMessages, TellHowManyWait) {
  EXPECT_EQ(DecodeWaiting(EncodeWaiting(300)), 300u);
  EXPECT_EQ(DecodeWaiting(EncodeWaiting(0)), 0u);
  EXPECT_FALSE(DecodeWaiting(EncodeWaiting(300) + "x"));
  EXPECT_FALSE(DecodeWaiting(EncodeNext(ANext())));
  EXPECT_FALSE(DecodeWaiting(""));
}

TEST(MembershipMessages, TellThatAGenerationIsOver) {
  const std::string bytes = EncodeOver(300, "host b is gone");
  const std::optional<GenerationOver> over = DecodeOver(bytes);
  ASSERT_TRUE(over);
  EXPECT_EQ(over->generation, 300u);
  EXPECT_EQ(over->reason, "host b is gone");
  EXPECT_FALSE(DecodeOver(bytes + "x"));
  EXPECT_FALSE(DecodeOver(bytes.substr(0, 4)));
  EXPECT_FALSE(DecodeOver(EncodeWaiting(300)));
  EXPECT_FALSE(DecodeNext(bytes).ok());
}

TEST(MembershipMessages, OtherBytesAreErrors) {
  const std::string report = EncodeReport(AReport());
  const std::string next = EncodeNext(ANext());
  for (size_t length = 0; length < report.size(); ++length) {
    EXPECT_FALSE(DecodeReport(report.substr(0, length)).ok()) << length;
  }
  for (size_t length = 0; length < next.size(); ++length) {
    EXPECT_FALSE(DecodeNext(next.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(DecodeReport(report + "x").ok());
  EXPECT_FALSE(DecodeNext(next + "x").ok());
  EXPECT_FALSE(DecodeReport(next).ok());
  NextGeneration outside = ANext();
  outside.rank = static_cast<int32_t>(outside.members.size());
  EXPECT_FALSE(DecodeNext(EncodeNext(outside)).ok());
  std::string unknown = next;
  unknown.back() = 3;  // no outcome
  EXPECT_FALSE(DecodeNext(unknown).ok());
  unknown = report;
  unknown[1] = 3;  // no stand
  EXPECT_FALSE(DecodeReport(unknown).ok());
}

class MembershipTest : public testing::Test {
 protected:
  MembershipTest() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    rank_ = Socket(pair[0]);
    launcher_ = Socket(pair[1]);
    membership_ = std::move(OpenMembership(rank_.fd())).value();
    EXPECT_TRUE(membership_
                    ->Watch([this](const GenerationOver& over) {
                      over_.set_value(over);
                    })
                    .ok());
  }

  // What has been said has been read then.
  bool WaitsBecome(uint64_t number) {
    const Deadline deadline = Deadline::AfterSeconds(30);
    while (membership_->NumWaiting() != number && !deadline.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return membership_->NumWaiting() == number;
  }

  Result<NextGeneration> Await(double seconds = 30) {
    return membership_->Await(Deadline::AfterSeconds(seconds), kNever);
  }
  void Tell(const std::string& bytes) {
    ASSERT_EQ(send(launcher_.fd(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }

  Socket rank_, launcher_;
  std::promise<GenerationOver> over_;
  std::unique_ptr<Membership> membership_;
};

TEST_F(MembershipTest, SendsAndAwaits) {
  ASSERT_TRUE(membership_->Send(AReport()).ok());
  std::string bytes(1 << 16, '\0');
  bytes.resize(recv(launcher_.fd(), bytes.data(), bytes.size(), 0));
  EXPECT_EQ(bytes, EncodeReport(AReport()));
  // Each message by itself.
  Tell(EncodeNext(ANext()));
  Tell(EncodeEnd("over"));
  EXPECT_EQ(Await()->generation, ANext().generation);
  EXPECT_EQ(Await().status().message(), "over");
}

TEST_F(MembershipTest, EndsItsWait) {
  EXPECT_EQ(Await(0.02).status().code(), StatusCode::kDeadlineExceeded);
  int looks = 0;
  const auto stopped = membership_->Await(Deadline::AfterSeconds(30),
                                          [&looks] { return ++looks > 2; });
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
  launcher_.Close();
  EXPECT_EQ(Await().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(membership_->Send(AReport()).code(), StatusCode::kUnavailable);
}

TEST_F(MembershipTest, KnowsHowManyWait) {
  EXPECT_EQ(membership_->NumWaiting(), 0u);
  Tell(EncodeWaiting(1));
  Tell(EncodeWaiting(2));
  EXPECT_TRUE(WaitsBecome(2));
  // They may have been let in by then.
  Tell(EncodeNext(ANext()));
  EXPECT_TRUE(WaitsBecome(0));
  Tell(EncodeWaiting(1));
  EXPECT_EQ(Await()->generation, ANext().generation);
  EXPECT_TRUE(WaitsBecome(1));
  launcher_.Close();
  EXPECT_EQ(Await().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(membership_->NumWaiting(), 1u);
}

TEST_F(MembershipTest, HearsThatAGenerationIsOver) {
  // Whether or not anybody waits for an answer.
  Tell(EncodeOver(300, "host b is gone"));
  const GenerationOver over = over_.get_future().get();
  EXPECT_EQ(over.generation, 300u);
  EXPECT_EQ(over.reason, "host b is gone");
  Tell(EncodeNext(ANext()));
  EXPECT_EQ(Await()->generation, ANext().generation);
}

TEST_F(MembershipTest, LeavesWhatComesLaterToAnotherOne) {
  membership_->Stop();
  Tell(EncodeNext(ANext()));
  membership_ = std::move(OpenMembership(rank_.fd())).value();
  ASSERT_TRUE(membership_->Watch([](const GenerationOver&) {}).ok());
  EXPECT_EQ(Await()->generation, ANext().generation);
}

TEST_F(MembershipTest, RefusesAMessageThatIsTooLong) {
  Tell(std::string((64 << 10) + 1, 'x'));
  EXPECT_EQ(Await().status().code(), StatusCode::kInternal);
}

TEST(OpenMembership, RefusesOtherDescriptors) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Socket one(pair[0]), other(pair[1]);
  for (const int fd : {one.fd(), 1 << 20}) {
    const auto opened = OpenMembership(fd);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace keras_ring
