// The transport and the message channel over encrypted links.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "csrc/comm/transport/message_channel.h"
#include "csrc/comm/transport/tcp_transport.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/transport_conformance.h"
#include "tests/cpp/comm/tcp_group.h"
#include "tests/cpp/tls/encrypted.h"

namespace keras_ring {
namespace {

class TlsTransportTest : public DescriptorTest {
 protected:
  std::vector<std::unique_ptr<Transport>> NewGroup(
      int size, std::chrono::milliseconds idle_limit) {
    return NewTcpGroup(EncryptedMesh(size), idle_limit, counters_);
  }

  Counters counters_;
};

TEST_F(TlsTransportTest, Conformance) {
  RunTransportConformance(
      [this](int size, std::chrono::milliseconds idle_limit) {
        return NewGroup(size, idle_limit);
      });
}

// A whole collective in one record with the next: nothing is left to poll for.
TEST_F(TlsTransportTest, OneCollectiveAfterTheOther) {
  auto group = NewGroup(2, std::chrono::seconds(20));
  RunRanks(2, [&](int rank) {
    for (uint64_t tag = 1; tag <= 300; ++tag) {
      std::vector<uint8_t> out(tag * 37 % 500, static_cast<uint8_t>(tag));
      std::vector<uint8_t> in(out.size());
      SendReceivePlan duplex = transport_conformance::Whole(
          tag, 1 - rank, out, 1 - rank, in, tag % 60 + 1);
      const Status status = group[rank]->Run(duplex);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(in, out);
    }
  });
}

TEST_F(TlsTransportTest, MessagesOfAllSizesArrive) {
  auto links = EncryptedMesh(2);
  std::vector<std::unique_ptr<MessageChannel>> channels;
  for (Links& own : links) {
    auto channel = MessageChannel::Create(std::move(own), 8 << 20, counters_);
    ASSERT_TRUE(channel.ok());
    channels.push_back(std::move(channel).value());
  }
  std::vector<std::string> messages;
  for (size_t i = 0; i < 60; ++i) {
    messages.emplace_back(i * i * i * 7, static_cast<char>(i));
  }
  RunRanks(2, [&](int rank) {
    for (const std::string& message : messages) {
      channels[rank]->Send(1 - rank, message);
    }
    size_t heard = 0;
    const TimePoint until = Soon().at();
    while (heard < messages.size() || !channels[rank]->Flushed()) {
      for (const auto& event : channels[rank]->Poll(&until)) {
        ASSERT_EQ(event.kind, MessageChannel::Event::Kind::kMessage)
            << event.status.ToString();
        ASSERT_EQ(event.message, messages[heard++]);
      }
      ASSERT_LT(std::chrono::steady_clock::now(), until);
    }
  });
  channels[0].reset();
  channels[1]->DetachFromThread();
  const TimePoint until = Soon().at();
  const auto events = channels[1]->Poll(&until);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].status,
            UnavailableError("control connection with rank 0: it closed the "
                             "connection"));
}

}  // namespace
}  // namespace keras_ring
