// The port to a real MPI: each of those that `make engines` installs, one a
// process.
#include "csrc/comm/transport/mpi_library.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "csrc/testing/transport_conformance.h"
#include "tests/cpp/comm/mpi_group.h"
#include "tests/cpp/comm/process_mpi.h"

namespace keras_ring {
namespace {

TEST(MpiSettings, AreParsed) {
  const auto settings =
      MpiSettings::Parse("8 18446744071629176834 7 /a path/MPI.so");
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->handle_bytes, 8);
  EXPECT_EQ(settings->communicator, 18446744071629176834u);
  EXPECT_EQ(settings->byte_type, 7u);
  EXPECT_EQ(settings->path, "/a path/MPI.so");
}

TEST(MpiSettings, OthersAreErrors) {
  for (const char* text :
       {"", "8", "8 1 2", "8 1 2 ", "a 1 2 /lib", "8 1 /l"}) {
    const auto settings = MpiSettings::Parse(text);
    EXPECT_EQ(settings.status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(MpiLibrary, IsOneThatTheProcessHasLoaded) {
  MpiSettings settings;
  settings.handle_bytes = sizeof(void*);
  settings.path = "/no/such/MPI.so";
  EXPECT_EQ(NewMpiPort(settings, {}, false).status().code(),
            StatusCode::kFailedPrecondition);
  // One that is no MPI.
  settings.path = "libc.so.6";
  const auto port = NewMpiPort(settings, {}, false);
  EXPECT_EQ(port.status().message(), "the MPI of mpi4py has no MPI_Isend");
}

class ProcessMpiTest : public testing::Test {
 protected:
  void SetUp() override {
    if (ProcessMpi::Path() == nullptr) GTEST_SKIP() << "no MPI: make engines";
  }

  Counters counters_;
};

TEST_F(ProcessMpiTest, TransportConformance) {
  RunTransportConformance(
      [this](int size, std::chrono::milliseconds idle_limit) {
        return NewMpiGroup(ProcessMpi::Get().NewPorts(size), idle_limit,
                           counters_);
      },
      TransportTraits{/*sees_lost_peers=*/false});
}

TEST_F(ProcessMpiTest, AHandleOfAnotherSizeIsAnError) {
  MpiSettings settings = ProcessMpi::Get().settings();
  settings.handle_bytes = 2;
  const auto port = NewMpiPort(settings, {}, false);
  EXPECT_EQ(port.status().code(), StatusCode::kFailedPrecondition);
}

// A message that is not matched cannot be taken back; a receive can.
TEST_F(ProcessMpiTest, WhatClosesIsWhatWaitsForNobody) {
  auto ports = ProcessMpi::Get().NewPorts(2);
  std::vector<char> memory(1 << 20);
  ASSERT_TRUE(ports[0]->Receive(1, 1, memory.data(), memory.size()).ok());
  EXPECT_TRUE(ports[0]->Close());
  ASSERT_TRUE(ports[1]->Send(1, 0, memory.data(), memory.size(), true).ok());
  EXPECT_FALSE(ports[1]->Close());
  std::vector<char> received(1 << 20);
  ASSERT_TRUE(ports[0]->Receive(1, 1, received.data(), received.size()).ok());
  // Either may move what the other waits for.
  std::optional<MpiDone> sent, here;
  while (!sent || !here) {
    if (!sent) sent = ports[1]->Test();
    if (!here) here = ports[0]->Test();
  }
  EXPECT_EQ(here->bytes, memory.size());
  EXPECT_TRUE(ports[1]->Close());
}

}  // namespace
}  // namespace keras_ring
