#include "csrc/testing/network_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/collective/hierarchy/hierarchical_collective.h"
#include "csrc/collective/hierarchy/hierarchy_backend.h"
#include "csrc/collective/hierarchy/placement.h"
#include "csrc/collective/net/levels.h"
#include "csrc/testing/simulated_allreduce.h"

namespace keras_ring {
namespace {

NetworkModel Model() {
  NetworkModel model;
  model.latency = 100;
  model.byte = 2;
  model.message = 10;
  model.send_byte = 1;
  model.receive_byte = 1;
  model.quantum = 50;
  model.window = 1000;
  return model;
}

char memory[1000];

void AddMessage(std::vector<SendReceivePlan>& plans, int from, int to,
                size_t bytes) {
  plans[from].outgoing.push_back({to, {{memory, bytes}}, 1});
  plans[to].incoming.push_back({from, {{memory, bytes}}, 1});
}

TEST(NetworkSimulationTest, OneMessageByHand) {
  std::vector<SendReceivePlan> plans(2);
  AddMessage(plans, 0, 1, 20);
  NetworkSimulation simulation(plans, Model());
  EXPECT_TRUE(simulation.Run());
  // It is handed over, goes out, arrives, and is taken.
  EXPECT_DOUBLE_EQ(simulation.time(), (10 + 20) + 40 + 100 + (10 + 20));
  EXPECT_EQ(simulation.max_sends(), 1);
  EXPECT_EQ(simulation.max_bytes(), 20);
  EXPECT_DOUBLE_EQ(simulation.processor_time(), 2 * (10 + 20));
}

TEST(NetworkSimulationTest, InterfacesAreShared) {
  // Two that send to one: its interface takes one after the other.
  std::vector<SendReceivePlan> plans(3);
  AddMessage(plans, 0, 2, 20);
  AddMessage(plans, 1, 2, 20);
  NetworkSimulation simulation(plans, Model());
  EXPECT_TRUE(simulation.Run());
  EXPECT_DOUBLE_EQ(simulation.time(), (10 + 20) + 100 + 2 * 40 + (10 + 20));
}

// Racks of two: their links upwards take twice as long as an interface.
TEST(NetworkSimulationTest, RacksShareTheirLinksUpwards) {
  NetworkModel model = Model();
  model.rack_ranks = 2;
  model.oversubscription = 4;
  const auto time = [&model](std::vector<std::pair<int, int>> messages) {
    std::vector<SendReceivePlan> plans(4);
    for (const auto& [from, to] : messages) AddMessage(plans, from, to, 20);
    NetworkSimulation simulation(plans, model);
    EXPECT_TRUE(simulation.Run());
    return simulation.time();
  };
  EXPECT_DOUBLE_EQ(time({{0, 1}}), 30 + 40 + 100 + 30);
  EXPECT_DOUBLE_EQ(time({{0, 2}}), 30 + 80 + 100 + 30);
  EXPECT_DOUBLE_EQ(time({{0, 2}, {1, 3}}), 30 + 2 * 80 + 100 + 30);
  // Two directions do not share.
  EXPECT_DOUBLE_EQ(time({{0, 2}, {3, 1}}), 30 + 80 + 100 + 30);
  model.racks_in_order = false;
  EXPECT_DOUBLE_EQ(time({{0, 2}}), 30 + 40 + 100 + 30);
  EXPECT_DOUBLE_EQ(time({{0, 1}}), 30 + 80 + 100 + 30);
}

TEST(NetworkSimulationTest, SendsAndReceivesHaveTheirOwnCosts) {
  std::vector<SendReceivePlan> plans(2);
  AddMessage(plans, 0, 1, 20);
  NetworkModel model = Model();
  model.receive_byte = 3;
  NetworkSimulation simulation(plans, model);
  EXPECT_TRUE(simulation.Run());
  EXPECT_DOUBLE_EQ(simulation.time(), (10 + 20) + 40 + 100 + (10 + 60));
}

TEST(NetworkSimulationTest, ARankMayBeginLate) {
  std::vector<SendReceivePlan> plans(2);
  AddMessage(plans, 0, 1, 20);
  NetworkSimulation simulation(plans, Model());
  simulation.StartAt(0, 1000);
  EXPECT_TRUE(simulation.Run());
  EXPECT_DOUBLE_EQ(simulation.time(), 1000 + (10 + 20) + 40 + 100 + (10 + 20));
}

TEST(NetworkSimulationTest, ProcessorsMayBeShared) {
  for (int processors : {0, 1}) {
    std::vector<SendReceivePlan> plans(4);
    AddMessage(plans, 0, 1, 20);
    AddMessage(plans, 2, 3, 20);
    NetworkModel model = Model();
    model.shared_processors = processors;
    NetworkSimulation simulation(plans, model);
    EXPECT_TRUE(simulation.Run());
    const double alone = (10 + 20) + 40 + 100 + (10 + 20);
    EXPECT_DOUBLE_EQ(simulation.time(), alone + processors * 30);
  }
}

TEST(NetworkSimulationTest, LongMessagesGoInQuantaWithinAWindow) {
  std::vector<SendReceivePlan> plans(2);
  AddMessage(plans, 0, 1, 500);
  NetworkModel model = Model();
  NetworkSimulation wide(plans, model);
  EXPECT_TRUE(wide.Run());
  EXPECT_EQ(wide.max_sends(), 10);
  // The interface is the bottleneck, and never waits.
  EXPECT_DOUBLE_EQ(wide.time(), (10 + 50) + 10 * 100 + 100 + (10 + 50));
  plans = std::vector<SendReceivePlan>(2);
  AddMessage(plans, 0, 1, 500);
  model.window = 50;
  NetworkSimulation narrow(plans, model);
  EXPECT_TRUE(narrow.Run());
  EXPECT_GT(narrow.time(), 1.5 * wide.time());
}

TEST(NetworkSimulationTest, APlanIsAdvancedWhenItAskedFor) {
  std::vector<SendReceivePlan> plans(2);
  AddMessage(plans, 0, 1, 20);
  plans[0].outgoing[0].released = 0;
  NetworkSimulation simulation(plans, Model());
  plans[0].advance = [&simulation](SendReceivePlan& plan) {
    if (simulation.now() == 0) simulation.AdvanceAt(1000);
    if (simulation.now() >= 1000) plan.outgoing[0].released = 1;
  };
  EXPECT_TRUE(simulation.Run());
  EXPECT_DOUBLE_EQ(simulation.time(), 1000 + (10 + 20) + 40 + 100 + (10 + 20));
}

TEST(NetworkSimulationTest, WhatComesToAStandstillHasNoEnd) {
  std::vector<SendReceivePlan> plans(2);
  AddMessage(plans, 0, 1, 20);
  plans[1].incoming[0].allowed = 0;
  NetworkSimulation simulation(plans, Model());
  EXPECT_FALSE(simulation.Run());
}

TEST(SimulatedAllreduceTest, ReachesTheBoundOfLinksWhereNothingElseCosts) {
  for (int hosts : {2, 3, 8, 32, 40, 64}) {
    SimulatedJob job;
    job.num_hosts = hosts;
    job.latency = 0;
    job.message = 0;
    job.send_byte = 0;
    job.receive_byte = 0;
    job.memory_byte = 0;
    const SimulatedTime time = SimulateAllreduce(job, 32 << 20);
    EXPECT_TRUE(time.ended) << hosts;
    EXPECT_GE(time.seconds, 0.9999 * time.bound) << hosts;
    EXPECT_LE(time.seconds, 1.01 * time.bound) << hosts;
  }
}

// Of what a job of real links, processors and memory is given. If streams of
// all levels had the same lag, a chunk would take all levels by itself.
TEST(SimulatedAllreduceTest, ComesNearTheBoundOfLinks) {
  for (const auto& [hosts, limit] : {std::pair{8, 1.15}, {64, 1.08}}) {
    SimulatedJob job;
    job.num_hosts = hosts;
    job.ranks_per_host = 8;
    const SimulatedTime time = SimulateAllreduce(job, 102228128);
    EXPECT_TRUE(time.ended) << hosts;
    EXPECT_LE(time.seconds, limit * time.bound) << hosts;
  }
}

// A lane has 1 MiB of such a bucket: as one part it takes twice the bound.
TEST(SimulatedAllreduceTest, ABucketOfAFewPartsComesNearItAsWell) {
  const struct {
    int hosts;
    int ranks;
    double limit;
  } cases[] = {{32, 8, 1.5}, {16, 16, 1.35}, {512, 8, 1.5}};
  for (const auto& [hosts, ranks, limit] : cases) {
    SimulatedJob job;
    job.num_hosts = hosts;
    job.ranks_per_host = ranks;
    const SimulatedTime time = SimulateAllreduce(job, 8 << 20);
    EXPECT_TRUE(time.ended) << hosts;
    EXPECT_LE(time.seconds, limit * time.bound) << hosts;
  }
}

// As docs/scale.md has it of 161 gradients, in buckets as they are made.
TEST(SimulatedAllreduceTest, BucketsOf512HostsComeNearIt) {
  SimulatedJob job;
  job.num_hosts = 512;
  job.ranks_per_host = 8;
  double seconds = 0;
  double bound = 0;
  size_t memory = 0;
  for (const auto& [times, bytes] : {std::pair{2, 16 << 20}, {1, 68673696}}) {
    const SimulatedTime time = SimulateAllreduce(job, bytes);
    EXPECT_TRUE(time.ended);
    seconds += times * time.seconds;
    bound += times * time.bound;
    memory = std::max(memory, time.memory);
  }
  EXPECT_LE(seconds, 1.15 * bound);
  EXPECT_LE(memory, size_t{40} << 20);
}

TEST(SimulatedAllreduceTest, RanksShareTheMemoryOfTheirHost) {
  SimulatedJob job;
  job.num_hosts = 8;
  job.ranks_per_host = 8;
  const double alone = SimulateAllreduce(job, 32 << 20).seconds;
  // Each rank has two threads.
  job.host_memory_byte = job.memory_byte / 16;
  const double all = SimulateAllreduce(job, 32 << 20).seconds;
  EXPECT_GE(all, alone);
  EXPECT_LE(all, 1.2 * alone);
  job.host_memory_byte *= 4;
  const double quarter = SimulateAllreduce(job, 32 << 20).seconds;
  EXPECT_GE(quarter, 1.5 * all);
  EXPECT_LE(quarter, 4.1 * all);
}

TEST(SimulatedAllreduceTest, NoiseMakesItLater) {
  SimulatedJob job;
  job.num_hosts = 16;
  job.ranks_per_host = 4;
  const double quiet = SimulateAllreduce(job, 16 << 20).seconds;
  job.noise.short_rate = 100;
  job.noise.long_rate = 1;
  std::set<double> noisy;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    job.seed = seed;
    const SimulatedTime time = SimulateAllreduce(job, 16 << 20);
    EXPECT_TRUE(time.ended);
    EXPECT_GE(time.seconds, quiet);
    EXPECT_DOUBLE_EQ(SimulateAllreduce(job, 16 << 20).seconds, time.seconds);
    noisy.insert(time.seconds);
  }
  EXPECT_GT(noisy.size(), 5u);
  // A rank that comes late from its computation is waited for.
  job.compute = 10;
  EXPECT_GE(SimulateAllreduce(job, 16 << 20).seconds, quiet + 5e-3);
}

// A part of no size, or of more than there is memory for, would be no part.
TEST(SimulatedAllreduceTest, PartsHaveASize) {
  const HierarchicalOptions options;
  for (size_t lane : {0, 1, 4, 1 << 19, 1 << 20, (1 << 20) + 4, 1 << 26}) {
    for (size_t most : {64, 4096, 128 << 10, 1 << 20}) {
      for (int ranks : {1, 2, 3, 8, 1000}) {
        const PartSizes sizes = PartSizesOf(lane, most, ranks, {8, 8}, options);
        EXPECT_GE(sizes.ends, 64u);
        EXPECT_LE(sizes.ends, sizes.most);
        EXPECT_LE(sizes.most, most);
        EXPECT_EQ(sizes.ends % 64, 0u);
        EXPECT_EQ(sizes.most % 64, 0u);
      }
    }
  }
  // One rank of a host has nothing to sum, and sends all the time.
  const PartSizes alone = PartSizesOf(8 << 20, 1 << 20, 1, {8}, options);
  EXPECT_EQ(alone.ends, alone.most);
  const auto of_eight = [&options](size_t lane, std::vector<int> groups) {
    return PartSizesOf(lane, 2 << 20, 8, groups, options);
  };
  EXPECT_EQ(of_eight(6 << 20, {8, 8, 8}).ends, size_t{192} << 10);
  EXPECT_EQ(of_eight(6 << 20, {8, 8, 8}).most, size_t{768} << 10);
  EXPECT_EQ(of_eight(1 << 20, {8, 8, 8}).most, size_t{384} << 10);
  EXPECT_EQ(of_eight(6 << 20, {2}).ends, size_t{64} << 10);
}

// Messages of a part, one for each host of a group: one send takes them
// (NetworkModel::quantum), and they are worth it.
TEST(SimulatedAllreduceTest, MessagesFitIntoASend) {
  for (int hosts : {2, 4, 8, 24, 64, 128, 256, 512, 1000, 4096}) {
    for (int ranks : {1, 2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << hosts << " x " << ranks);
      const int side = GroupSide(hosts, HierarchicalOptions());
      const size_t message = StageOptionsFor(hosts, ranks).part_bytes / side;
      const bool is_whole = message % (size_t{60} << 10) == 0;
      EXPECT_TRUE(is_whole || message <= NetworkModel().quantum) << message;
      EXPECT_GE(message, size_t{40} << 10);
      if (hosts <= 256 || ranks == 8) {
        EXPECT_LE(message, NetworkModel().quantum);
      }
    }
  }
  // Else 512 hosts of one rank would send 1 KiB at a time on the top.
  EXPECT_EQ(StageOptionsFor(512, 1).part_bytes, size_t{1440} << 10);
}

TEST(SimulatedAllreduceTest, GroupsAreSmallAndEqual) {
  const std::pair<int, std::vector<int>> groups[] = {{2, {2}},
                                                     {32, {32}},
                                                     {64, {8, 8}},
                                                     {256, {16, 16}},
                                                     {512, {8, 8, 8}},
                                                     {1000, {10, 10, 10}},
                                                     {257, {8, 8, 5}},
                                                     {4097, {10, 10, 10, 5}},
                                                     {4096, {16, 16, 16}}};
  for (const auto& [hosts, largest] : groups) {
    EXPECT_EQ(LargestGroups(hosts, GroupSide(hosts, HierarchicalOptions())),
              largest);
  }
}

// Those of the levels of sums, and of those of an alltoall.
TEST(SimulatedAllreduceTest, ARankHasLinksWithAllThatItSendsTo) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < 1024; ++rank) {
    hosts.push_back(std::to_string(rank / 2));
  }
  const Placement placement(hosts);
  const HierarchicalOptions options;
  EXPECT_EQ(AlltoallSide(64, options), 8);
  EXPECT_EQ(AlltoallSide(512, options), 23);
  for (int rank : {0, 7, 8, 1000, 1023}) {
    const std::vector<int> peers = HierarchicalPeers(placement, rank, options);
    const std::set<int> linked(peers.begin(), peers.end());
    for (int side : {GroupSide(512, options), AlltoallSide(512, options)}) {
      for (const Group& group : PlanLevels(rank / 2, 512, side)) {
        for (int host : group.ranks) {
          const int peer = 2 * host + rank % 2;
          EXPECT_EQ(linked.count(peer), peer == rank ? 0u : 1u);
        }
      }
    }
  }
}

// On each level there is something to send while something is received.
TEST(SimulatedAllreduceTest, EachLevelHasChunksUnderWay) {
  EXPECT_EQ(StageOptionsFor(8, 8).depth, 4);
  EXPECT_EQ(StageOptionsFor(256, 8).depth, 4);
  EXPECT_EQ(StageOptionsFor(512, 8).depth, 6);
  EXPECT_EQ(StageOptionsFor(5000, 8).depth, 8);  // there are so many tags
}

TEST(SimulatedAllreduceTest, ASmallOneTakesAFewLatencies) {
  SimulatedJob job;
  job.latency = 1e-3;
  job.num_hosts = 2;
  EXPECT_LT(SimulateAllreduce(job, 4).seconds, 1.1e-3);
  job.num_hosts = 32;
  EXPECT_LT(SimulateAllreduce(job, 4).seconds, 1.3e-3);
  // To a member of the group, to one of the group above, among these, and
  // back.
  job.num_hosts = 512;
  EXPECT_GT(SimulateAllreduce(job, 4).seconds, 5e-3);
  EXPECT_LT(SimulateAllreduce(job, 4).seconds, 5.3e-3);
}

}  // namespace
}  // namespace keras_ring
