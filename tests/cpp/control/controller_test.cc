#include "csrc/control/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "csrc/testing/controller_cluster.h"

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;
using ::testing::VariantWith;

const ExecuteCommand& AsExecute(const Command& command) {
  return std::get<ExecuteCommand>(command);
}
const FailCommand& AsFail(const Command& command) {
  return std::get<FailCommand>(command);
}
// What it executes; null if it is something else.
const ExecuteCommand* IfExecute(const Command& command) {
  return std::get_if<ExecuteCommand>(&command);
}
// Whether it ends the joins of all ranks.
bool EndsJoins(const Command& command) {
  const auto* join = std::get_if<JoinCommand>(&command);
  return join != nullptr && join->last_rank.has_value();
}

// Names executed by `rank`, in order; the names of one bucket are joined.
std::vector<std::vector<std::string>> Executed(const ControllerCluster& cluster,
                                               int rank) {
  std::vector<std::vector<std::string>> buckets;
  for (const Command& command : cluster.commands(rank)) {
    const auto* execute = std::get_if<ExecuteCommand>(&command);
    if (execute == nullptr) continue;
    buckets.emplace_back();
    for (const auto& agreed : execute->items) {
      buckets.back().push_back(agreed->request.name);
    }
  }
  return buckets;
}

const std::vector<std::string> kFlat = {"a", "a", "a", "a"};
const std::vector<std::string> kTwoHosts = {"a", "a", "b", "b"};
// Leaders 0, 2, 3, 5, 6 in a binary tree: two levels of leaders.
const std::vector<std::string> kFiveHosts = {"a", "a", "b", "c",
                                             "c", "d", "e", "e"};

class ControllerTopology
    : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(ControllerTopology, NothingIsDecidedBeforeTheLastRankAsked) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  for (int rank = 1; rank < cluster.size(); ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 8));
  }
  cluster.Settle();
  EXPECT_TRUE(Executed(cluster, 0).empty());
  cluster.Submit(0, AllreduceRequest("x", 8));
  cluster.Settle();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    EXPECT_THAT(Executed(cluster, rank), ElementsAre(ElementsAre("x")));
  }
}

TEST_P(ControllerTopology, EqualStepsComeToTheSameBuckets) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  std::mt19937 random(1);
  std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  const auto all = UnorderedElementsAreArray(names);
  // Each rank asks for all of them at once.
  auto step = [&] {
    for (int rank = 0; rank < cluster.size(); ++rank) {
      std::shuffle(names.begin(), names.end(), random);
      cluster.SetHeld(true);
      for (const std::string& name : names) {
        cluster.Submit(rank, AllreduceRequest(name, 8));
      }
      cluster.Release();
    }
    cluster.Settle();
  };
  const std::vector<Command>& commands = cluster.commands(cluster.size() - 1);
  auto last_plan = [&commands] {
    return std::find_if(commands.rbegin(), commands.rend(),
                        [](const Command& command) {
                          return std::holds_alternative<PlanCommand>(command);
                        });
  };
  for (int i = 0; i < 10; ++i) step();
  ASSERT_TRUE(last_plan() != commands.rend());
  EXPECT_THAT(std::get<PlanCommand>(*last_plan()).buckets, ElementsAre(all));
  const size_t before = Executed(cluster, 0).size();
  for (int i = 0; i < 10; ++i) step();
  auto executed = Executed(cluster, 0);
  ASSERT_EQ(executed.size(), before + 10);
  for (size_t j = before; j < executed.size(); ++j) {
    EXPECT_THAT(executed[j], all);
  }
  // When one of them comes no more, the others go on, and the plan goes.
  names.pop_back();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(Executed(cluster, 0).size(), before + 20);
  EXPECT_THAT(std::get<PlanCommand>(*last_plan()).buckets, Not(Contains(all)));
  EXPECT_TRUE(cluster.error().ok()) << cluster.error().ToString();
}

// A complete bucket does not draw in what is not of it, and the other way
// round.
TEST_P(ControllerTopology, WhatIsNotPlannedRunsApart) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  auto step = [&](const std::vector<std::string>& names) {
    for (int rank = 0; rank < cluster.size(); ++rank) {
      cluster.SetHeld(true);
      for (const std::string& name : names) {
        cluster.Submit(rank, AllreduceRequest(name, 8));
      }
      cluster.Release();
    }
    cluster.Settle();
  };
  auto last_two = [&] {
    auto executed = Executed(cluster, cluster.size() - 1);
    executed.erase(executed.begin(), executed.end() - 2);
    return executed;
  };
  step({"x", "y"});
  for (int i = 0; i < 10; ++i) {
    step({"a", "b"});
    step({"c", "d"});
  }
  step({"x", "a", "y", "b"});
  EXPECT_THAT(last_two(), UnorderedElementsAre(ElementsAre("x", "y"),
                                               ElementsAre("a", "b")));
}

// Each collective takes time to begin and to end: what is there shares it.
TEST_P(ControllerTopology, CompleteBucketsAreJoined) {
  constexpr int64_t kCount = 8;
  constexpr int64_t kBytes = kCount * 4;
  ControllerOptions options;
  options.schedule.planned_bucket = 2 * kBytes;
  options.schedule.fusion_threshold = 6 * kBytes;
  ControllerCluster cluster(GetParam(), options, 2);
  std::vector<std::string> names;
  for (char name = 'a'; name < 'a' + 10; ++name) names.emplace_back(1, name);
  // As a program does that asks for everything at once, and for what is of
  // another kind.
  auto step = [&] {
    for (int rank = 0; rank < cluster.size(); ++rank) {
      cluster.SetHeld(true);
      for (const std::string& name : names) {
        Request request = AllreduceRequest(name, kCount);
        if (name == "e" || name == "f") request.op = ReduceOp::kMax;
        cluster.Submit(rank, request);
      }
      cluster.Release();
    }
    cluster.Settle();
  };
  for (int i = 0; i < 8; ++i) step();
  const size_t before = Executed(cluster, 0).size();
  step();
  auto executed = Executed(cluster, cluster.size() - 1);
  executed.erase(executed.begin(), executed.begin() + before);
  // Three buckets are all that the threshold has room for.
  EXPECT_THAT(executed,
              ElementsAre(ElementsAre("a", "b", "c", "d", "g", "h"),
                          ElementsAre("e", "f"), ElementsAre("i", "j")));
  EXPECT_TRUE(cluster.error().ok()) << cluster.error().ToString();
}

// The property that everything rests on: whatever the order in which ranks ask,
// messages travel and buckets finish, all ranks execute the same buckets in
// the same order, each request exactly once, with equal caches. A small cache
// makes slots come and go while they are named in messages on their way.
TEST_P(ControllerTopology, AnyInterleavingEndsAlikeEverywhere) {
  constexpr int kSeeds = 1000;
  constexpr int kTensors = 40;
  std::vector<std::string> names;
  for (int i = 0; i < kTensors; ++i) names.push_back("t" + std::to_string(i));
  int plans = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    ControllerOptions options;
    options.cache_capacity = seed % 3 == 0 ? 0 : (seed % 3 == 1 ? 7 : 1024);
    options.schedule.fusion_threshold = 4 * (1 << (random() % 12));
    options.schedule.planned_bucket = 4 * (1 << (random() % 8));
    // Steps are planned after some that are equal.
    const int rounds = seed % 10 == 2 ? 12 : 3;
    ControllerCluster cluster(GetParam(), options, 2);

    // Per rank, what it will ask for: each round in an order of its own. A
    // name is asked for again only after its last use was executed.
    std::vector<std::vector<int>> to_ask(cluster.size());
    for (auto& list : to_ask) {
      for (int round = 0; round < rounds; ++round) {
        std::vector<int> order(kTensors);
        for (int i = 0; i < kTensors; ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        list.insert(list.end(), order.begin(), order.end());
      }
    }
    std::vector<size_t> asked(cluster.size(), 0);
    std::vector<std::vector<int>> uses(cluster.size(),
                                       std::vector<int>(kTensors));
    std::vector<std::vector<int>> done = uses;
    std::vector<size_t> seen(cluster.size(), 0);

    // What may happen next; one of them is drawn.
    struct Move {
      enum { kDeliver, kExecute, kSubmit } kind;
      int rank;  // kDeliver: of the sender
      int to;    // kDeliver
    };
    std::vector<Move> moves;
    for (;;) {
      moves.clear();
      for (const auto& [from, to] : cluster.BusyLinks()) {
        moves.push_back({Move::kDeliver, from, to});
      }
      for (int rank = 0; rank < cluster.size(); ++rank) {
        if (cluster.Unexecuted(rank) > 0) {
          moves.push_back({Move::kExecute, rank, -1});
        }
        if (asked[rank] == to_ask[rank].size()) continue;
        int tensor = to_ask[rank][asked[rank]];
        if (uses[rank][tensor] > done[rank][tensor]) continue;
        moves.push_back({Move::kSubmit, rank, -1});
      }
      if (moves.empty()) {
        if (cluster.Release()) continue;
        break;
      }
      cluster.SetHeld(random() % 2 == 0);
      const Move move = moves[random() % moves.size()];
      if (move.kind == Move::kDeliver) {
        cluster.Deliver({move.rank, move.to});
      } else if (move.kind == Move::kExecute) {
        cluster.Execute(move.rank);
      } else {
        int tensor = to_ask[move.rank][asked[move.rank]++];
        ++uses[move.rank][tensor];
        cluster.Submit(move.rank,
                       AllreduceRequest(names[tensor], 1 + tensor % 5));
      }
      ASSERT_TRUE(cluster.error().ok()) << cluster.error().ToString();
      for (int rank = 0; rank < cluster.size(); ++rank) {
        const auto& commands = cluster.commands(rank);
        for (; seen[rank] < commands.size(); ++seen[rank]) {
          const ExecuteCommand* command = IfExecute(commands[seen[rank]]);
          if (command == nullptr) continue;
          for (const auto& agreed : command->items) {
            ++done[rank][std::stoi(agreed->request.name.substr(1))];
          }
        }
      }
    }
    const auto expected = Executed(cluster, 0);
    size_t total = 0;
    for (const auto& bucket : expected) total += bucket.size();
    ASSERT_EQ(total, static_cast<size_t>(kTensors * rounds));
    for (const Command& command : cluster.commands(0)) {
      plans += std::holds_alternative<PlanCommand>(command) ? 1 : 0;
    }
    for (int rank = 0; rank < cluster.size(); ++rank) {
      ASSERT_EQ(Executed(cluster, rank), expected) << "rank " << rank;
      ASSERT_EQ(cluster.at(rank).cache().Hash(), cluster.at(0).cache().Hash());
      ASSERT_EQ(done[rank], std::vector<int>(kTensors, rounds));
    }
  }
  EXPECT_GT(plans, 20);
}

Request JoinRequest() {
  Request request;
  request.name = "join";
  request.kind = RequestKind::kJoin;
  return request;
}

// Ranks with steps of their own number, which then join, twice. Which ranks a
// use of a name goes without follows from these numbers alone, in whatever
// order things happen.
TEST_P(ControllerTopology, AnyInterleavingOfStepsAndJoinsEndsAlikeEverywhere) {
  constexpr int kSeeds = 500;
  constexpr int kTensors = 6;
  constexpr int kEpochs = 2;
  for (int seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    ControllerOptions options;
    options.cache_capacity = seed % 3 == 0 ? 0 : (seed % 3 == 1 ? 4 : 1024);
    options.schedule.fusion_threshold = 4 * (1 << (random() % 12));
    ControllerCluster cluster(GetParam(), options, 2);
    const int size = cluster.size();

    struct Rank {
      int epoch = 0;
      bool joining = false;
      std::vector<int> to_ask;  // of this epoch
      size_t asked = 0;
      int under_way = 0;
      std::vector<bool> busy = std::vector<bool>(kTensors);
      size_t seen = 0;  // commands
    };
    std::vector<Rank> ranks(size);
    // By epoch and rank.
    std::vector<std::vector<int>> steps(kEpochs, std::vector<int>(size));
    for (auto& of_epoch : steps) {
      for (int& count : of_epoch) count = random() % 6;
    }
    auto begin_epoch = [&](int rank) {
      Rank& state = ranks[rank];
      state.to_ask.clear();
      state.asked = 0;
      if (state.epoch == kEpochs) return;
      for (int step = 0; step < steps[state.epoch][rank]; ++step) {
        std::vector<int> order(kTensors);
        for (int i = 0; i < kTensors; ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        state.to_ask.insert(state.to_ask.end(), order.begin(), order.end());
      }
    };
    for (int rank = 0; rank < size; ++rank) begin_epoch(rank);
    auto request_of = [&](int rank, int tensor) {
      Request request = AllreduceRequest(std::to_string(tensor), 1 + tensor);
      if (tensor == 0) {
        request.kind = RequestKind::kAllgather;
        request.tensors[0].shape = {rank + 1};
      }
      return request;
    };
    // What each use of a name must go without, from the commands of a rank.
    auto check = [&](int rank) {
      int epoch = 0;
      std::vector<int> uses(kTensors);
      for (const Command& command : cluster.commands(rank)) {
        if (EndsJoins(command)) {
          const int most =
              *std::max_element(steps[epoch].begin(), steps[epoch].end());
          EXPECT_EQ(uses, std::vector<int>(kTensors, most));
          uses.assign(kTensors, 0);
          ++epoch;
        }
        const ExecuteCommand* execute = IfExecute(command);
        if (execute == nullptr) continue;
        for (const auto& item : execute->items) {
          const int tensor = std::stoi(item->request.name);
          std::vector<int32_t> joined;
          for (int r = 0; r < size; ++r) {
            if (steps[epoch][r] <= uses[tensor]) joined.push_back(r);
          }
          EXPECT_EQ(std::vector<int32_t>(execute->joined.begin(),
                                         execute->joined.end()),
                    joined);
          ++uses[tensor];
          if (tensor != 0) continue;
          std::vector<int64_t> rows(size);
          for (int r = 0; r < size; ++r) rows[r] = r + 1;
          for (int32_t r : joined) rows[r] = 0;
          EXPECT_EQ(item->rows, rows);
        }
      }
      EXPECT_EQ(epoch, kEpochs);
    };

    struct Move {
      enum { kDeliver, kExecute, kSubmit, kJoin } kind;
      int rank;  // kDeliver: of the sender
      int to;    // kDeliver
    };
    std::vector<Move> moves;
    for (;;) {
      for (int rank = 0; rank < size; ++rank) {
        Rank& state = ranks[rank];
        const auto& commands = cluster.commands(rank);
        for (; state.seen < commands.size(); ++state.seen) {
          const Command& command = commands[state.seen];
          if (EndsJoins(command)) {
            ASSERT_TRUE(state.joining);
            state.joining = false;
            ++state.epoch;
            begin_epoch(rank);
          }
          const ExecuteCommand* execute = IfExecute(command);
          if (execute == nullptr || execute->joined.Contains(rank)) continue;
          for (const auto& item : execute->items) {
            const int tensor = std::stoi(item->request.name);
            ASSERT_TRUE(state.busy[tensor]);
            state.busy[tensor] = false;
            --state.under_way;
          }
        }
      }
      moves.clear();
      for (const auto& [from, to] : cluster.BusyLinks()) {
        moves.push_back({Move::kDeliver, from, to});
      }
      for (int rank = 0; rank < size; ++rank) {
        const Rank& state = ranks[rank];
        if (cluster.Unexecuted(rank) > 0) {
          moves.push_back({Move::kExecute, rank, -1});
        }
        if (state.joining || state.epoch == kEpochs) continue;
        if (state.asked < state.to_ask.size()) {
          if (!state.busy[state.to_ask[state.asked]]) {
            moves.push_back({Move::kSubmit, rank, -1});
          }
        } else if (state.under_way == 0) {
          moves.push_back({Move::kJoin, rank, -1});
        }
      }
      if (moves.empty()) {
        if (cluster.Release()) continue;
        break;
      }
      cluster.SetHeld(random() % 2 == 0);
      const Move move = moves[random() % moves.size()];
      Rank& mover = ranks[move.rank];
      switch (move.kind) {
        case Move::kDeliver:
          cluster.Deliver({move.rank, move.to});
          break;
        case Move::kExecute:
          cluster.Execute(move.rank);
          break;
        case Move::kSubmit: {
          const int tensor = mover.to_ask[mover.asked++];
          mover.busy[tensor] = true;
          ++mover.under_way;
          cluster.Submit(move.rank, request_of(move.rank, tensor));
          break;
        }
        case Move::kJoin:
          mover.joining = true;
          cluster.Submit(move.rank, JoinRequest());
          break;
      }
      ASSERT_TRUE(cluster.error().ok()) << cluster.error().ToString();
    }
    for (int rank = 0; rank < size; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      check(rank);
      if (HasFailure()) return;
      ASSERT_EQ(Executed(cluster, rank), Executed(cluster, 0));
      ASSERT_EQ(cluster.at(rank).cache().Hash(), cluster.at(0).cache().Hash());
      const Command& last = cluster.commands(rank).back();
      ASSERT_EQ(last.index(), cluster.commands(0).back().index());
      if (const auto* join = std::get_if<JoinCommand>(&last)) {
        ASSERT_EQ(join->last_rank,
                  std::get<JoinCommand>(cluster.commands(0).back()).last_rank);
      }
    }
  }
}

// Ranks that join at the same time are one message of an inner node and one
// decision. Which of them was last, nobody can tell: it is the lowest.
TEST(Controller, JoinsThatComeTogetherAreOneDecision) {
  ControllerCluster cluster(kTwoHosts, ControllerOptions(), 2);
  auto join_all_but_rank_0 = [&] {
    cluster.Submit(1, JoinRequest());
    cluster.Submit(3, JoinRequest());
    cluster.SetHeld(true);
    cluster.Submit(2, JoinRequest());
    cluster.Deliver({3, 2});
    cluster.Release();
    cluster.SetHeld(true);
    for (const auto& link : cluster.BusyLinks()) cluster.Deliver(link);
    cluster.Release();
    cluster.Settle();
  };
  join_all_but_rank_0();
  EXPECT_EQ(cluster.traffic_to(0).messages, 2u);
  ASSERT_EQ(cluster.commands(0).size(), 1u);
  EXPECT_FALSE(EndsJoins(cluster.commands(0)[0]));
  for (int last : {0, 1}) {
    cluster.Submit(0, JoinRequest());
    cluster.Settle();
    if (last == 1) join_all_but_rank_0();
    for (int rank = 0; rank < cluster.size(); ++rank) {
      ASSERT_EQ(cluster.commands(rank).size(), last == 0 ? 2u : 4u);
      EXPECT_EQ(std::get<JoinCommand>(cluster.commands(rank).back()).last_rank,
                last);
    }
  }
  EXPECT_TRUE(cluster.error().ok()) << cluster.error().ToString();
}

// One by one they would be 512 messages to the coordinator, and as many
// decisions.
TEST(Controller, JoinsOfManyRanksAreFewDecisions) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < 512; ++rank) {
    hosts.push_back("host " + std::to_string(rank / 8));
  }
  ControllerCluster cluster(hosts, ControllerOptions());
  cluster.SetHeld(true);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    cluster.Submit(rank, JoinRequest());
  }
  while (cluster.Release()) {
    cluster.SetHeld(true);
    for (const auto& link : cluster.BusyLinks()) cluster.Deliver(link);
  }
  ASSERT_TRUE(cluster.error().ok()) << cluster.error().ToString();
  // A message of each child in each turn; leaves are a level below leaders.
  EXPECT_LE(cluster.traffic_to(0).messages, 7u + 8u * 3u);
  EXPECT_LE(cluster.commands(0).size(), 4u);
  for (int rank : {0, 1, 511}) {
    EXPECT_TRUE(EndsJoins(cluster.commands(rank).back()));
  }
}

// What needs a rank that has joined fails on the others, whether they have
// agreed on it before or not, and the job goes on.
TEST_P(ControllerTopology, WhatNeedsARankThatHasJoinedFails) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const int size = cluster.size();
  const int gone = size - 1;
  auto submit = [&](const Request& request, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) cluster.Submit(rank, request);
    cluster.Settle();
  };
  std::vector<Request> requests;
  const std::pair<RequestKind, int> kinds[] = {{RequestKind::kBroadcast, gone},
                                               {RequestKind::kBroadcast, 0},
                                               {RequestKind::kReducescatter, 0},
                                               {RequestKind::kAlltoall, 0}};
  for (bool known : {true, false}) {
    for (const auto& [kind, root] : kinds) {
      Request request = AllreduceRequest(
          std::to_string(requests.size()) + (known ? "" : " new"), 2 * size);
      request.kind = kind;
      request.root = root;
      requests.push_back(request);
      if (known) submit(request, size);
    }
  }
  // To all but the one that joins.
  Request spared = requests[3];
  spared.name = "spared";
  spared.splits.assign(size, 0);
  spared.splits[0] = 2 * size;
  requests.push_back(spared);
  cluster.Submit(gone, JoinRequest());
  cluster.Settle();
  const size_t before = cluster.commands(0).size();
  for (const Request& request : requests) submit(request, gone);
  for (int rank = 0; rank < gone; ++rank) cluster.Submit(rank, JoinRequest());
  cluster.Settle();
  submit(AllreduceRequest("after", 8), size);
  ASSERT_TRUE(cluster.error().ok()) << cluster.error().ToString();
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> failed;
    std::vector<std::string> executed;
    const auto& commands = cluster.commands(rank);
    for (size_t i = before; i < commands.size(); ++i) {
      if (const auto* execute = std::get_if<ExecuteCommand>(&commands[i])) {
        for (const auto& item : execute->items) {
          executed.push_back(item->request.name);
        }
      }
      const auto* fail = std::get_if<FailCommand>(&commands[i]);
      if (fail == nullptr) continue;
      failed.push_back(fail->names.front());
      EXPECT_EQ(fail->status.code(), StatusCode::kFailedPrecondition);
      EXPECT_THAT(
          fail->status.message(),
          AllOf(HasSubstr("'" + failed.back() + "'"), HasSubstr("has joined"),
                HasSubstr("rank " + std::to_string(gone))));
    }
    EXPECT_THAT(failed, ElementsAre("0", "2", "3", "4 new", "6 new", "7 new"));
    EXPECT_THAT(executed, ElementsAre("1", "5 new", "spared", "after"));
  }
}

void PassTime(ControllerCluster& cluster, double seconds) {
  cluster.PassTime(std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(seconds)));
}

TEST_P(ControllerTopology, AStallDoesNotBlameARankThatHasJoined) {
  ControllerOptions options;
  options.stalls.shutdown_time = std::chrono::seconds(100);
  ControllerCluster cluster(GetParam(), options, 2);
  const int late = cluster.size() - 1;
  const int gone = cluster.size() - 2;
  cluster.Submit(gone, JoinRequest());
  for (int rank = 0; rank < gone; ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 8));
  }
  cluster.Settle();
  PassTime(cluster, 61);
  const std::string joined =
      "Rank " + std::to_string(gone) + " has joined and brings nothing.";
  ASSERT_FALSE(cluster.reports(0).empty());
  EXPECT_THAT(cluster.reports(0).back(),
              AllOf(HasSubstr("missing rank " + std::to_string(late) + "."),
                    HasSubstr(joined)));
  PassTime(cluster, 40);
  ASSERT_FALSE(cluster.commands(0).empty());
  EXPECT_THAT(AsFail(cluster.commands(0).back()).status.message(),
              AllOf(HasSubstr("missing rank " + std::to_string(late) + "."),
                    HasSubstr(joined)));
}

TEST_P(ControllerTopology, MismatchFailsAlikeAndTheJobGoesOn) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const int odd = cluster.size() - 1;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", rank == odd ? 9 : 8));
  }
  cluster.Settle();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ASSERT_EQ(cluster.commands(rank).size(), 1u);
    const auto& command = AsFail(cluster.commands(rank)[0]);
    EXPECT_THAT(command.names, ElementsAre("x"));
    EXPECT_EQ(command.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(command.status.message(),
                AllOf(HasSubstr("allreduce 'x'"), HasSubstr("shape"),
                      HasSubstr("[8]"), HasSubstr("[9]"),
                      HasSubstr("rank " + std::to_string(odd) + " has [9]")));
    EXPECT_EQ(command.status, AsFail(cluster.commands(0)[0]).status);
  }
  for (int rank = 0; rank < cluster.size(); ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 8));
  }
  cluster.Settle();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    EXPECT_THAT(Executed(cluster, rank), ElementsAre(ElementsAre("x")));
  }
}

// One rank changes the shape of a cached tensor: the others name the slot, it
// sends the request in full, and the two must meet.
TEST_P(ControllerTopology, SlotAndFullRequestOfOneNameMeet) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  auto submit_all = [&](int64_t own, int64_t odd_count) {
    for (int rank = 0; rank < cluster.size(); ++rank) {
      cluster.Submit(rank, AllreduceRequest("x", rank == 1 ? odd_count : own));
    }
    cluster.Settle();
  };
  submit_all(8, 8);
  submit_all(8, 5);
  submit_all(8, 8);
  submit_all(5, 5);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    const auto execute = VariantWith<ExecuteCommand>(testing::_);
    EXPECT_THAT(cluster.commands(rank),
                ElementsAre(execute, VariantWith<FailCommand>(testing::_),
                            execute, execute));
    EXPECT_THAT(AsFail(cluster.commands(rank)[1]).status.message(),
                HasSubstr("rank 1 has [5]"));
  }
}

TEST_P(ControllerTopology, AllgatherBringsEveryRanksRows) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < cluster.size(); ++rank) {
      Request request = AllreduceRequest("g", 0);
      request.kind = RequestKind::kAllgather;
      // The last round differs from what is cached on rank 0 only.
      int64_t rows = rank == 0 && round == 2 ? 7 : rank;
      request.tensors[0].shape = {rows, 3};
      cluster.Submit(rank, request);
    }
    cluster.Settle();
  }
  std::vector<int64_t> rows(cluster.size());
  for (int rank = 0; rank < cluster.size(); ++rank) rows[rank] = rank;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ASSERT_EQ(cluster.commands(rank).size(), 3u);
    EXPECT_EQ(AsExecute(cluster.commands(rank)[0]).items[0]->rows, rows);
    EXPECT_EQ(AsExecute(cluster.commands(rank)[1]).items[0]->rows, rows);
  }
  rows[0] = 7;
  EXPECT_EQ(AsExecute(cluster.commands(1)[2]).items[0]->rows, rows);
}

// A leader speaks for the ranks of its host: one request, whatever their rows.
TEST(Controller, ALeaderSendsOneRequestForItsRanks) {
  constexpr int kRanks = 100;
  std::vector<std::string> hosts(kRanks, "b");
  hosts[0] = "a";
  ControllerCluster cluster(hosts, ControllerOptions());
  const std::string name(100, 'n');
  for (int rank = 1; rank < kRanks; ++rank) {
    Request request = AllreduceRequest(name, 4);
    request.kind = RequestKind::kAllgather;
    request.tensors[0].shape = {rank, 8};
    cluster.Submit(rank, request);
  }
  const auto links = cluster.BusyLinks();
  ASSERT_EQ(links.size(), kRanks - 2u);
  for (size_t i = 0; i + 1 < links.size(); ++i) cluster.Deliver(links[i]);
  const uint64_t before = cluster.bytes_sent();
  cluster.Deliver(links.back());
  const uint64_t sent = cluster.bytes_sent() - before;
  EXPECT_GT(sent, 100u + kRanks);
  EXPECT_LE(sent, 160u + kRanks);
  // Rank 0 brings as many rows as it likes, too.
  Request last = AllreduceRequest(name, 4);
  last.kind = RequestKind::kAllgather;
  last.tensors[0].shape = {1000, 8};
  cluster.Submit(0, last);
  cluster.Settle();
  ASSERT_EQ(cluster.commands(50).size(), 1u);
  const ExecuteCommand& command = AsExecute(cluster.commands(50)[0]);
  for (int rank = 1; rank < kRanks; ++rank) {
    EXPECT_EQ(command.items[0]->rows[rank], rank);
  }
  EXPECT_EQ(command.items[0]->rows[0], 1000);
}

TEST_P(ControllerTopology, AlltoallBringsEveryRanksSplits) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const int size = cluster.size();
  auto request_of = [&](int rank, int round) {
    Request request = AllreduceRequest("x", 0);
    request.kind = RequestKind::kAlltoall;
    // All rows to one rank; on rank 0, in the last round, to another one.
    request.splits.resize(size);
    request.splits[(rank + (rank == 0 && round == 2)) % size] = rank;
    request.tensors[0].shape = {rank, 3};
    return request;
  };
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < size; ++rank) {
      cluster.Submit(rank, request_of(rank, round));
    }
    cluster.Settle();
  }
  for (int rank = 0; rank < size; ++rank) {
    ASSERT_EQ(cluster.commands(rank).size(), 3u);
    for (int round = 0; round < 3; ++round) {
      const Response& agreed =
          *AsExecute(cluster.commands(rank)[round]).items[0];
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ(agreed.RequestOf(other), request_of(other, round));
      }
    }
    // What is cached is not agreed on again.
    EXPECT_EQ(AsExecute(cluster.commands(rank)[0]).items[0],
              AsExecute(cluster.commands(rank)[1]).items[0]);
  }
}

TEST_P(ControllerTopology, WrongSplitsOfOneRankFailOnAll) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const int size = cluster.size();
  for (int rank = 0; rank < size; ++rank) {
    Request request = AllreduceRequest("x", 2 * size);
    request.kind = RequestKind::kAlltoall;
    if (rank == size - 1) request.splits = {-1};
    cluster.Submit(rank, request);
  }
  cluster.Settle();
  for (int rank = 0; rank < size; ++rank) {
    ASSERT_EQ(cluster.commands(rank).size(), 1u);
    const auto& command = AsFail(cluster.commands(rank)[0]);
    EXPECT_EQ(command.status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(command.status.message(),
                HasSubstr("rank " + std::to_string(size - 1) + " has splits"));
  }
}

// An alltoall whose splits are numbers of eight bytes.
Request AlltoallOfLongSplits(const std::string& name, int size) {
  Request request = AllreduceRequest(name, 0);
  request.kind = RequestKind::kAlltoall;
  request.splits.assign(size, int64_t{1} << 50);
  request.tensors[0].shape = {size * (int64_t{1} << 50)};
  return request;
}

// What a decision needs is the square of the number of ranks. A message that is
// longer than its receiver takes would break the job.
TEST_P(ControllerTopology, SplitsThatAreTooLongFailOnAll) {
  const int size = static_cast<int>(GetParam().size());
  // There is no room for those of all ranks; then only for those of one, so
  // that an inner node finds none for those below it.
  for (const int times : {size - 1, 3}) {
    ControllerOptions options;
    options.max_message_bytes = times * size * 8;
    ControllerCluster cluster(GetParam(), options, 2);
    for (int rank = 0; rank < size; ++rank) {
      cluster.Submit(rank, AlltoallOfLongSplits("x", size));
    }
    cluster.Settle();
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_EQ(cluster.commands(rank).size(), 1u);
      const auto& command = AsFail(cluster.commands(rank)[0]);
      EXPECT_EQ(command.status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(command.status.message(),
                  HasSubstr("alltoall 'x': the numbers of rows"));
    }
    // The job goes on, and equal splits take no room.
    for (int rank = 0; rank < size; ++rank) {
      Request request = AllreduceRequest("x", 2 * size);
      request.kind = RequestKind::kAlltoall;
      cluster.Submit(rank, request);
    }
    cluster.Settle();
    EXPECT_TRUE(cluster.error().ok()) << cluster.error().ToString();
    for (int rank = 0; rank < size; ++rank) {
      ASSERT_EQ(Executed(cluster, rank).size(), 1u);
    }
  }
}

// Each has room in a message, all together have not.
TEST_P(ControllerTopology, LongSplitsGoInSeveralMessages) {
  const int size = static_cast<int>(GetParam().size());
  constexpr int kNames = 5;
  ControllerOptions options;
  options.max_message_bytes = 2 * size * size * 8;
  ControllerCluster cluster(GetParam(), options, 2);
  cluster.SetHeld(true);
  for (int rank = 0; rank < size; ++rank) {
    for (int name = 0; name < kNames; ++name) {
      cluster.Submit(rank,
                     AlltoallOfLongSplits("x" + std::to_string(name), size));
    }
  }
  cluster.SetHeld(false);
  cluster.Release();
  cluster.Settle();
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(Executed(cluster, rank).size(), size_t{kNames});
    EXPECT_LE(cluster.traffic_to(rank).longest, options.max_message_bytes);
  }
}

TEST_P(ControllerTopology, LeavingEndsTheJobForAll) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  cluster.Submit(0, AllreduceRequest("x", 8));
  cluster.Leave(cluster.size() - 1, "ValueError: no");
  cluster.Leave(0, "");
  cluster.Settle();
  std::set<std::string> texts;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ASSERT_EQ(cluster.commands(rank).size(), 1u);
    texts.insert(
        std::get<EndCommand>(cluster.commands(rank)[0]).status.message());
  }
  EXPECT_EQ(texts.size(), 1u);
}

// The number of tensors in each bucket.
std::vector<size_t> BucketSizes(const ControllerCluster& cluster, int rank) {
  std::vector<size_t> sizes;
  for (const auto& bucket : Executed(cluster, rank)) {
    sizes.push_back(bucket.size());
  }
  return sizes;
}

TEST_P(ControllerTopology, WhatIsTunedChangesAtOnePlaceOfTheSequence) {
  ControllerOptions options;
  options.cache_capacity = 0;
  ControllerCluster cluster(GetParam(), options, 2);
  // All tensors become ready at once.
  auto step = [&] {
    for (int rank = cluster.size() - 1; rank >= 0; --rank) {
      cluster.SetHeld(rank == 0);
      for (const char* name : {"a", "b", "c", "d"}) {
        cluster.Submit(rank, AllreduceRequest(name, 8));
      }
      if (rank > 0) cluster.Settle();
    }
    cluster.Release();
    cluster.Settle();
  };
  step();
  cluster.Tune(Tunable::kFusionThreshold, 2 * 8 * 4);
  step();
  cluster.Tune(Tunable::kLinger, 5000);
  step();
  // They are ready, and held back.
  EXPECT_EQ(cluster.commands(0).size(), 5u);
  cluster.clock().Advance(std::chrono::milliseconds(5));
  cluster.Timer(0);
  cluster.Settle();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    EXPECT_THAT(BucketSizes(cluster, rank), ElementsAre(4u, 2u, 2u, 2u, 2u));
    std::vector<size_t> tuned_at;
    for (size_t i = 0; i < cluster.commands(rank).size(); ++i) {
      const Command& command = cluster.commands(rank)[i];
      EXPECT_EQ(SequenceOf(command), i + 1);
      if (const auto* tune = std::get_if<TuneCommand>(&command)) {
        tuned_at.push_back(i);
        EXPECT_EQ(tune->value, tuned_at.size() == 1 ? 64 : 5000);
      }
    }
    EXPECT_THAT(tuned_at, ElementsAre(1u, 4u));
  }
}

TEST_P(ControllerTopology, AnotherBoundOfBucketsIsANewPlanOnAllRanks) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const auto steps = [&](int count) {
    for (int step = 0; step < count; ++step) {
      for (int rank = cluster.size() - 1; rank >= 0; --rank) {
        cluster.SetHeld(rank == 0);
        for (const char* name : {"a", "b", "c", "d"}) {
          cluster.Submit(rank, AllreduceRequest(name, 8));
        }
        if (rank > 0) cluster.Settle();
      }
      cluster.Release();
      cluster.Settle();
    }
  };
  steps(8);
  cluster.Tune(Tunable::kPlannedBucket, 2 * 8 * 4);
  steps(8);
  ASSERT_TRUE(cluster.error().ok()) << cluster.error().ToString();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    std::vector<size_t> plans;
    for (const Command& command : cluster.commands(rank)) {
      const auto* plan = std::get_if<PlanCommand>(&command);
      if (plan != nullptr) plans.push_back(plan->buckets.size());
    }
    EXPECT_THAT(plans, ElementsAre(1u, 0u, 2u));
  }
  EXPECT_GT(cluster.counters(0).steps, 8u);
  EXPECT_EQ(cluster.counters(0).step_bytes, cluster.counters(0).steps * 128);
  EXPECT_EQ(cluster.counters(1).steps, 0u) << "the coordinator counts";
}

TEST_P(ControllerTopology, ANewGenerationEndsTheOld) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    cluster.Submit(rank, AllreduceRequest("before", 8));
  }
  cluster.Settle();
  cluster.Submit(1, AllreduceRequest("pending", 8));
  cluster.Reconfigure(7);
  cluster.Settle();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    cluster.Submit(rank, AllreduceRequest("after", 8));
  }
  cluster.Leave(cluster.size() - 1, "");
  cluster.Settle();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ASSERT_THAT(cluster.commands(rank),
                ElementsAre(VariantWith<ExecuteCommand>(testing::_),
                            VariantWith<ReconfigureCommand>(testing::_)));
    const auto& last =
        std::get<ReconfigureCommand>(cluster.commands(rank).back());
    EXPECT_EQ(last.generation, 7u);
    EXPECT_THAT(last.status.message(), HasSubstr("generation 7"));
  }
  EXPECT_TRUE(cluster.error().ok()) << cluster.error().ToString();
}

TEST_P(ControllerTopology, StallIsReportedWithTheRanks) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  // All but the last rank, so that an inner node's subtree is incomplete.
  const int late = cluster.size() - 1;
  for (int rank = 0; rank < late; ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 8));
  }
  cluster.Settle();
  PassTime(cluster, 61);
  ASSERT_FALSE(cluster.reports(0).empty());
  EXPECT_THAT(cluster.reports(0).back(),
              AllOf(HasSubstr("allreduce 'x'"),
                    HasSubstr("missing rank " + std::to_string(late))));
  EXPECT_TRUE(Executed(cluster, 0).empty());
  cluster.Submit(late, AllreduceRequest("x", 8));
  cluster.Settle();
  EXPECT_EQ(Executed(cluster, 0).size(), 1u);
}

TEST_P(ControllerTopology, AReportSaysWhatTheMissingDo) {
  ControllerOptions options;
  options.stalls.shutdown_time = std::chrono::seconds(100);
  options.stalls.describe = [](const std::vector<std::string>& names) {
    return RankActivity{"is asked about " + names.front(), {}, {false}};
  };
  ControllerCluster cluster(GetParam(), options, 2);
  const int late = cluster.size() - 1;
  const std::string activity =
      "\n  Rank " + std::to_string(late) + " is asked about x.";
  for (int rank = 0; rank < late; ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 8));
  }
  cluster.Settle();
  PassTime(cluster, 61);
  ASSERT_EQ(cluster.reports(0).size(), 1u);
  EXPECT_THAT(cluster.reports(0)[0], HasSubstr("\nMeanwhile:" + activity));
  // Once, whatever inner nodes tell; and what is known is in the error, too.
  PassTime(cluster, 2);
  EXPECT_EQ(cluster.reports(0).size(), 1u);
  PassTime(cluster, 38);
  ASSERT_FALSE(cluster.commands(0).empty());
  EXPECT_THAT(AsFail(cluster.commands(0).back()).status.message(),
              HasSubstr(activity));
  EXPECT_TRUE(cluster.error().ok());
}

TEST_P(ControllerTopology, ReportsComeAtGrowingIntervals) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const int late = cluster.size() - 1;
  for (int rank = 0; rank < late; ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 8));
  }
  cluster.Settle();
  std::vector<int> at;
  for (int second = 1; second <= 1000; ++second) {
    PassTime(cluster, 1);
    while (at.size() < cluster.reports(0).size()) at.push_back(second);
  }
  ASSERT_EQ(at.size(), 4u);
  EXPECT_NEAR(at[0], 60, 2);
  EXPECT_NEAR(at[1], 180, 4);
  EXPECT_NEAR(at[2], 420, 6);
  EXPECT_NEAR(at[3], 900, 8);
}

// Each rank asks for a name of its own, some milliseconds after the last: when
// the first is reported, the others are too young to prove anything.
TEST_P(ControllerTopology, ADeadlockFailsOnceTheYoungestHasStalled) {
  constexpr auto kApart = std::chrono::milliseconds(5);
  ControllerOptions options;
  ControllerCluster cluster(GetParam(), options, 2);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    if (rank > 0) cluster.clock().Advance(kApart);
    cluster.Submit(rank, AllreduceRequest(std::to_string(rank), 8));
    cluster.Settle();
  }
  const TimePoint provable = cluster.clock().Now() + options.stalls.check_time;
  // Inner nodes take together what comes from below.
  const Duration gathering = std::chrono::seconds(2);
  // As a loop does: each rank looks when it has said that it will.
  while (cluster.commands(0).empty()) {
    TimePoint next = TimePoint::max();
    for (int rank = 0; rank < cluster.size(); ++rank) {
      next = std::min(next,
                      cluster.at(rank).NextTimer().value_or(TimePoint::max()));
    }
    ASSERT_GE(next, cluster.clock().Now());
    ASSERT_LE(next, provable + gathering);
    cluster.clock().Advance(next - cluster.clock().Now());
    for (int rank = 0; rank < cluster.size(); ++rank) {
      cluster.Timer(rank);
      cluster.Settle();
    }
  }
  EXPECT_GE(cluster.clock().Now(), provable);
  // Said once, before that.
  EXPECT_EQ(cluster.reports(0).size(), 1u);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    ASSERT_EQ(cluster.commands(rank).size(), 1u);
    EXPECT_EQ(AsFail(cluster.commands(rank)[0]).names.size(),
              size_t(cluster.size()));
    EXPECT_EQ(AsFail(cluster.commands(rank)[0]).status.code(),
              StatusCode::kFailedPrecondition);
  }
}

// The last rank comes long after the report, with a name of its own: what was
// asked then does not tell what it does now.
TEST_P(ControllerTopology, ADeadlockIsExplainedByWhatTheRanksDoThen) {
  ControllerOptions options;
  std::string activity = "sleeps";
  options.stalls.describe = [&](const std::vector<std::string>& names) {
    std::vector<std::string> waits;
    if (activity == "waits") waits = {"y"};
    return RankActivity{activity, waits, std::vector<bool>(names.size(), true)};
  };
  ControllerCluster cluster(GetParam(), options, 2);
  const int late = cluster.size() - 1;
  for (int rank = 0; rank < late; ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 8));
  }
  cluster.Settle();
  PassTime(cluster, 61);
  ASSERT_EQ(cluster.reports(0).size(), 1u);
  PassTime(cluster, 9);
  activity = "waits";
  cluster.Submit(late, AllreduceRequest("y", 8));
  cluster.Settle();
  PassTime(cluster, 59);
  EXPECT_TRUE(cluster.commands(0).empty());
  PassTime(cluster, 3);
  ASSERT_EQ(cluster.commands(0).size(), 1u);
  EXPECT_THAT(AsFail(cluster.commands(0)[0]).status.message(),
              AllOf(HasSubstr("for something else now"),
                    Not(HasSubstr("in no collective"))));
}

// Somewhere in the tree a rank has waited for long. The last one has just come
// with the first of two names, and the second is what that one waits for.
TEST_P(ControllerTopology, WhoHasJustComeMayBringMore) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const int late = cluster.size() - 1;
  for (int rank = 0; rank < late; ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 8));
  }
  cluster.Settle();
  cluster.clock().Advance(std::chrono::seconds(60));
  cluster.Submit(late, AllreduceRequest("y", 8));
  cluster.Settle();
  PassTime(cluster, 2);
  EXPECT_EQ(cluster.reports(0).size(), 1u);
  cluster.Submit(late, AllreduceRequest("x", 8));
  cluster.Settle();
  EXPECT_THAT(Executed(cluster, 0), ElementsAre(ElementsAre("x")));
}

// At any time something waits, and nothing for long.
TEST_P(ControllerTopology, WhatComesTogetherInTimeIsNotReported) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const int late = cluster.size() - 1;
  for (int second = 0; second < 200; ++second) {
    for (int rank = 0; rank < late; ++rank) {
      cluster.Submit(rank, AllreduceRequest(std::to_string(second % 3), 8));
    }
    cluster.Settle();
    if (second > 0) {
      cluster.Submit(late,
                     AllreduceRequest(std::to_string((second + 2) % 3), 8));
    }
    cluster.Settle();
    PassTime(cluster, 1);
  }
  EXPECT_EQ(Executed(cluster, 0).size(), 199u);
  EXPECT_TRUE(cluster.reports(0).empty());
}

// Else it would be said to wait, and with it a tensor could be failed for which
// nobody waits.
TEST_P(ControllerTopology, WhatWaitedOnceIsNotInLaterReports) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  // First an inner node has something to tell, then none has.
  for (const std::string name : {"x", "y"}) {
    const int late = name == "x" ? cluster.size() - 1 : 0;
    for (int rank = 0; rank < cluster.size(); ++rank) {
      if (rank != late) cluster.Submit(rank, AllreduceRequest(name, 8));
    }
    cluster.Settle();
    PassTime(cluster, 61);
    ASSERT_FALSE(cluster.reports(0).empty());
    cluster.Submit(late, AllreduceRequest(name, 8));
    cluster.Settle();
  }
  EXPECT_THAT(cluster.reports(0).back(),
              AllOf(HasSubstr("Stalled: 1 tensor"), HasSubstr("'y'")));
}

TEST(Controller, WhoDoesNotAnswerIsNamed) {
  ControllerCluster cluster({"a", "a", "a"}, ControllerOptions());
  cluster.Submit(0, AllreduceRequest("x", 8));
  cluster.Settle();
  cluster.clock().Advance(std::chrono::seconds(61));
  cluster.Timer(0);
  cluster.Deliver({0, 1});
  cluster.Deliver({1, 0});
  EXPECT_TRUE(cluster.reports(0).empty());
  cluster.clock().Advance(std::chrono::seconds(1));
  cluster.Timer(0);
  ASSERT_EQ(cluster.reports(0).size(), 1u);
  EXPECT_THAT(cluster.reports(0)[0],
              AllOf(HasSubstr("Rank 1 is in no collective"),
                    HasSubstr("Rank 2 does not answer")));
  // An answer that comes later is no harm.
  cluster.Settle();
  EXPECT_TRUE(cluster.error().ok());
  EXPECT_EQ(cluster.reports(0).size(), 1u);
}

// Which of the usual causes it is.
TEST(Controller, AReportTellsDifferentStepsFromDifferentSets) {
  for (bool knows : {true, false}) {
    ControllerOptions options;
    options.stalls.describe = [&](const std::vector<std::string>& names) {
      return RankActivity{
          "waits", {"z"}, std::vector<bool>(names.size(), knows)};
    };
    ControllerCluster cluster({"a", "a"}, options);
    cluster.Submit(0, AllreduceRequest("x", 8));
    cluster.Submit(1, AllreduceRequest("z", 8));
    cluster.Settle();
    PassTime(cluster, 61);
    ASSERT_EQ(cluster.reports(0).size(), 1u);
    const std::string text =
        knows ? "different numbers of steps" : "different sets of tensors";
    EXPECT_THAT(cluster.reports(0)[0], HasSubstr(text));
    ASSERT_EQ(cluster.commands(1).size(), 1u);
    EXPECT_THAT(AsFail(cluster.commands(1)[0]).status.message(),
                AllOf(HasSubstr("every rank waits"), HasSubstr(text)));
  }
}

// One that trains on with others' tensors and some of its own.
TEST(Controller, AReportTellsWhenSetsMayDifferToo) {
  ControllerOptions options;
  options.stalls.describe = [](const std::vector<std::string>& names) {
    RankActivity activity{"waits", {"?"}, {}};
    for (const std::string& name : names) activity.knows.push_back(name == "x");
    return activity;
  };
  ControllerCluster cluster({"a", "a"}, options);
  cluster.Submit(0, AllreduceRequest("x", 8));
  cluster.Submit(1, AllreduceRequest("own", 8));
  cluster.Settle();
  PassTime(cluster, 61);
  ASSERT_EQ(cluster.reports(0).size(), 1u);
  EXPECT_THAT(cluster.reports(0)[0],
              AllOf(HasSubstr("Rank 1 has asked for some of these before"),
                    HasSubstr("Rank 0 has not asked for others of these "
                              "lately, so the ranks may also use different "
                              "sets of tensors.")));
}

// In an evaluation alone, say, which needs nobody.
TEST(Controller, AReportTellsWhoHasLeftTheLoop) {
  for (bool knows : {true, false}) {
    ControllerOptions options;
    options.stalls.describe = [&](const std::vector<std::string>& names) {
      return RankActivity{"idles", {}, std::vector<bool>(names.size(), knows)};
    };
    ControllerCluster cluster({"a", "a", "a"}, options);
    cluster.Submit(0, AllreduceRequest("x", 8));
    cluster.Settle();
    PassTime(cluster, 61);
    ASSERT_EQ(cluster.reports(0).size(), 1u);
    const std::string text =
        knows ? "Ranks 1-2 have asked for some of these before, and are in no "
                "collective now: they may be in an evaluation"
              : "The usual causes";
    EXPECT_THAT(cluster.reports(0)[0], HasSubstr(text));
  }
}

// A failed name, a contribution to its last use still on the way, and the next
// use of the name: the late contribution must not count for it.
TEST_P(ControllerTopology, LateContributionToAFailedNameDoesNotCount) {
  // On its way, or still gathering in the sender when that learns of the
  // failure.
  for (bool held : {false, true}) {
    SCOPED_TRACE(held);
    ControllerOptions options;
    options.stalls.shutdown_time = std::chrono::seconds(10);
    ControllerCluster cluster(GetParam(), options, 2);
    const int late = cluster.size() - 1;
    for (int rank = 0; rank < late; ++rank) {
      cluster.Submit(rank, AllreduceRequest("x", 8));
    }
    cluster.Settle();
    cluster.clock().Advance(std::chrono::seconds(11));
    cluster.SetHeld(held);
    cluster.Submit(late, AllreduceRequest("x", 8));
    cluster.SetHeld(false);
    cluster.Timer(0);  // the name fails
    cluster.Settle();
    for (int rank = 0; rank < cluster.size(); ++rank) {
      ASSERT_EQ(cluster.commands(rank).size(), 1u) << "rank " << rank;
      EXPECT_EQ(AsFail(cluster.commands(rank)[0]).status.code(),
                StatusCode::kDeadlineExceeded);
    }
    // The next use: complete only when all have asked anew.
    for (int rank = 0; rank < late; ++rank) {
      cluster.Submit(rank, AllreduceRequest("x", 8));
    }
    cluster.Settle();
    EXPECT_TRUE(Executed(cluster, 0).empty());
    cluster.Submit(late, AllreduceRequest("x", 8));
    cluster.Settle();
    for (int rank = 0; rank < cluster.size(); ++rank) {
      EXPECT_THAT(Executed(cluster, rank), ElementsAre(ElementsAre("x")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Trees, ControllerTopology,
                         ::testing::Values(kFlat, kTwoHosts, kFiveHosts));

// The same, where it comes when the others have asked anew, all by one slot.
TEST(Controller, ALateSlotOfAFailedNameDoesNotCount) {
  ControllerOptions options;
  options.stalls.shutdown_time = std::chrono::seconds(10);
  ControllerCluster cluster(kFlat, options);
  const auto submit = [&cluster](std::initializer_list<int> ranks) {
    for (int rank : ranks) cluster.Submit(rank, AllreduceRequest("x", 8));
    cluster.Settle();
  };
  submit({0, 1, 2, 3});
  submit({0, 1, 2});
  cluster.clock().Advance(std::chrono::seconds(11));
  cluster.Timer(0);  // the name fails
  cluster.Settle();
  submit({0, 1, 2});
  ReadyMessage late;
  late.sequence = 1;  // before the failure
  late.slots = {0};
  ASSERT_TRUE(cluster.at(0).OnMessage(3, EncodeMessage(late)).ok());
  cluster.Timer(0);
  cluster.Settle();
  EXPECT_EQ(Executed(cluster, 0).size(), 1u);
  submit({3});
  EXPECT_EQ(Executed(cluster, 0).size(), 2u);
}

TEST(Controller, RanksThatWaitForDifferentNamesFailTogether) {
  ControllerCluster cluster(kFlat, ControllerOptions());
  for (int rank = 0; rank < 4; ++rank) {
    cluster.Submit(rank, AllreduceRequest(rank == 2 ? "y" : "x", 8));
  }
  cluster.Settle();
  cluster.clock().Advance(std::chrono::seconds(61));
  cluster.Timer(0);
  cluster.Settle();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(cluster.commands(rank).size(), 1u);
    const FailCommand& command = AsFail(cluster.commands(rank)[0]);
    EXPECT_THAT(command.names, ElementsAre("x", "y"));
    EXPECT_THAT(command.status.message(),
                AllOf(HasSubstr("ranks 0-1, 3 wait for allreduce 'x'"),
                      HasSubstr("rank 2 waits for allreduce 'y'")));
  }
}

TEST(Controller, TheEndAndTheStallsOfASetNameRanksOfTheJob) {
  ControllerOptions options;
  options.stalls.check_time = std::chrono::seconds(10);
  ControllerCluster cluster({"a", "a", "a"}, options, 8, RankSet(2, {1, 4, 7}));
  cluster.Submit(1, AllreduceRequest("w", 4));
  cluster.Settle();
  cluster.clock().Advance(std::chrono::seconds(11));
  cluster.Timer(1);
  cluster.Settle();
  cluster.Timer(0);
  cluster.Settle();
  ASSERT_FALSE(cluster.reports(0).empty());
  EXPECT_THAT(cluster.reports(0).front(),
              AllOf(HasSubstr("in process set 2 (ranks 1, 4, 7)"),
                    HasSubstr("asked for by rank 4, missing ranks 1, 7")));
  cluster.Leave(2, "");
  cluster.Settle();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(
        std::get<EndCommand>(cluster.commands(rank).back()).status.message(),
        HasSubstr("process set 2 (ranks 1, 4, 7) is over: rank 7"));
  }
}

// A join completes a name on an inner node, and the next decision that it hears
// of at the same time fails it: what the node said before belongs to the failed
// use.
TEST(Controller, WhatAJoinCompletesAndAFailureEndsDoesNotCountAgain) {
  ControllerOptions options;
  options.stalls.shutdown_time = std::chrono::seconds(10);
  ControllerCluster cluster(kTwoHosts, options, 2);
  cluster.Submit(0, AllreduceRequest("x", 8));
  cluster.Submit(2, AllreduceRequest("x", 8));
  cluster.Settle();
  cluster.clock().Advance(std::chrono::seconds(11));
  cluster.Submit(3, JoinRequest());
  cluster.Deliver({3, 2});
  cluster.Deliver({2, 0});
  cluster.Timer(0);
  cluster.SetHeld(true);
  cluster.Deliver({0, 2});
  cluster.Deliver({0, 2});
  ASSERT_TRUE(cluster.Release());
  cluster.Settle();
  ASSERT_EQ(cluster.commands(2).size(), 2u);
  EXPECT_THAT(cluster.commands(2),
              ElementsAre(VariantWith<JoinCommand>(testing::_),
                          VariantWith<FailCommand>(testing::_)));
  cluster.Submit(0, AllreduceRequest("x", 8));
  cluster.Submit(1, AllreduceRequest("x", 8));
  cluster.Settle();
  EXPECT_TRUE(Executed(cluster, 0).empty());
  cluster.Submit(2, AllreduceRequest("x", 8));
  cluster.Settle();
  EXPECT_THAT(Executed(cluster, 0), ElementsAre(ElementsAre("x")));
  EXPECT_TRUE(cluster.error().ok()) << cluster.error().ToString();
}

TEST(Controller, SteadyStateCostsBytes) {
  ControllerCluster cluster({"a", "a"}, ControllerOptions());
  auto step = [&] {
    for (int rank : {1, 0}) {
      for (int i = 0; i < 161; ++i) {
        cluster.Submit(rank, AllreduceRequest("t" + std::to_string(i), 100));
      }
    }
    cluster.Settle();
  };
  step();
  uint64_t before = cluster.bytes_sent();
  step();
  // The worst case: every readiness in a message of its own, as nothing was
  // batched here, and most decisions too.
  EXPECT_LE(cluster.bytes_sent() - before, 161 * 18u);
}

// What a step of so many names costs once it is learned, in bytes of control.
uint64_t BytesOfAStep(int names, const ControllerOptions& options) {
  ControllerCluster cluster({"a", "a"}, options);
  uint64_t before = 0;
  for (int step = 0; step < 8; ++step) {
    before = cluster.bytes_sent();
    for (int rank : {1, 0}) {
      // What a rank asks for at once goes up in one message.
      cluster.SetHeld(true);
      for (int i = 0; i < names; ++i) {
        cluster.Submit(rank, AllreduceRequest("t" + std::to_string(i), 100));
      }
      cluster.Release();
    }
    cluster.Settle();
  }
  EXPECT_TRUE(cluster.error().ok()) << cluster.error().ToString();
  return cluster.bytes_sent() - before;
}

TEST(Controller, AStepOfAnyNumberOfNamesCostsAsManyBytes) {
  const uint64_t small = BytesOfAStep(160, ControllerOptions());
  const uint64_t large = BytesOfAStep(3000, ControllerOptions());
  EXPECT_LE(large, small) << small << " bytes for 160 names";
}

// What there is no room for costs its description, and only that.
TEST(Controller, NamesBeyondTheCapacityDoNotMakeTheOthersUnknown) {
  ControllerOptions options;
  options.cache_capacity = 2990;
  EXPECT_LE(BytesOfAStep(3000, options),
            BytesOfAStep(2990, ControllerOptions()) + 10 * 100);
}

TEST(Controller, LingerHoldsBack) {
  ControllerOptions options;
  options.schedule.linger = std::chrono::milliseconds(5);
  ControllerCluster cluster({"a"}, options);
  cluster.Submit(0, AllreduceRequest("x", 8));
  cluster.Submit(0, AllreduceRequest("y", 8));
  EXPECT_TRUE(Executed(cluster, 0).empty());
  ASSERT_TRUE(cluster.at(0).NextTimer().has_value());
  cluster.clock().Advance(std::chrono::milliseconds(5));
  cluster.Timer(0);
  EXPECT_THAT(Executed(cluster, 0), ElementsAre(ElementsAre("x", "y")));
}

TEST(Controller, WhatIsReadyWhileBucketsAreOutIsFused) {
  ControllerCluster cluster({"a"}, ControllerOptions());
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    cluster.Submit(0, AllreduceRequest(name, 8));
  }
  cluster.Execute(0);
  EXPECT_THAT(Executed(cluster, 0),
              ElementsAre(ElementsAre("a"), ElementsAre("b"),
                          ElementsAre("c", "d", "e")));
}

TEST(Controller, ForeignBytesAreAnError) {
  ControllerCluster cluster(kFlat, ControllerOptions());
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (!bytes.empty()) bytes[0] = static_cast<char>(random() % 8);
    // Whatever it says, it must return.
    Status status = cluster.at(0).OnMessage(1, bytes);
    (void)status;
  }
}

// --- Who was last ---

// What was executed on `rank`, oldest first: which rank was the last to be
// ready, and after how many milliseconds.
std::vector<std::pair<int, int64_t>> LastReadyOf(
    const ControllerCluster& cluster, int rank) {
  std::vector<std::pair<int, int64_t>> all;
  for (const Command& command : cluster.commands(rank)) {
    const ExecuteCommand* execute = IfExecute(command);
    if (execute == nullptr) continue;
    const auto late = std::chrono::duration_cast<std::chrono::milliseconds>(
        execute->last.late);
    all.emplace_back(execute->last.rank, late.count());
  }
  return all;
}

TEST_P(ControllerTopology, AllKnowWhoWasLastAndByHowMuch) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  std::vector<std::pair<int, int64_t>> expected;
  std::mt19937 random(3);
  std::vector<int> order(cluster.size());
  std::iota(order.begin(), order.end(), 0);
  for (int step = 0; step < 50; ++step) {
    std::shuffle(order.begin(), order.end(), random);
    int64_t late = 0;
    for (int rank : order) {
      const int64_t pause = rank == order.front() ? 0 : 1 + random() % 5;
      cluster.clock().Advance(std::chrono::milliseconds(pause));
      late += pause;
      // The first time in full, then by slot.
      cluster.Submit(rank, AllreduceRequest("x", 8));
      cluster.Settle();
    }
    expected.emplace_back(order.back(), late);
  }
  ASSERT_TRUE(cluster.error().ok()) << cluster.error().ToString();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    EXPECT_EQ(LastReadyOf(cluster, rank), expected);
    uint64_t times = 0;
    int64_t late = 0;
    for (const auto& [last, by] : expected) {
      if (last != rank) continue;
      ++times;
      late += by;
    }
    EXPECT_EQ(cluster.counters(rank).last_buckets, times);
    EXPECT_EQ(cluster.counters(rank).late_ns, late * 1000000);
  }
}

TEST_P(ControllerTopology, OfABucketTheLatestCounts) {
  ControllerOptions options;
  options.schedule.linger = std::chrono::seconds(1);
  ControllerCluster cluster(GetParam(), options, 2);
  const int last = cluster.size() - 1;
  auto ask = [&](const std::string& name, int late_rank, int milliseconds) {
    for (int rank = 0; rank < cluster.size(); ++rank) {
      if (rank != late_rank) cluster.Submit(rank, AllreduceRequest(name, 8));
    }
    cluster.Settle();
    cluster.clock().Advance(std::chrono::milliseconds(milliseconds));
    cluster.Submit(late_rank, AllreduceRequest(name, 8));
    cluster.Settle();
  };
  ask("a", 1, 3);
  ask("b", last, 5);
  ask("c", 0, 4);
  cluster.clock().Advance(std::chrono::seconds(1));
  cluster.Timer(0);
  cluster.Settle();
  EXPECT_THAT(LastReadyOf(cluster, 1), ElementsAre(Pair(last, 5)));
}

TEST_P(ControllerTopology, OneWhoHasJoinedIsNotTheLast) {
  ControllerCluster cluster(GetParam(), ControllerOptions(), 2);
  const int gone = cluster.size() - 1;
  for (int rank = 0; rank < gone; ++rank) {
    cluster.clock().Advance(std::chrono::milliseconds(1));
    cluster.Submit(rank, AllreduceRequest("x", 8));
    cluster.Settle();
  }
  Request join;
  join.kind = RequestKind::kJoin;
  cluster.Submit(gone, join);
  cluster.Settle();
  EXPECT_THAT(LastReadyOf(cluster, gone),
              ElementsAre(Pair(gone - 1, gone - 1)));
}

TEST(Controller, WhoComesAtOnceLetsNobodyWait) {
  for (const std::vector<std::string>& hosts : {{"a"}, kFiveHosts}) {
    ControllerCluster cluster(hosts, ControllerOptions());
    for (int rank = 0; rank < cluster.size(); ++rank) {
      cluster.Submit(rank, AllreduceRequest("x", 8));
    }
    cluster.Settle();
    for (int rank = 0; rank < cluster.size(); ++rank) {
      EXPECT_THAT(LastReadyOf(cluster, rank),
                  ElementsAre(Pair(LastReady::kNone, 0)));
      EXPECT_EQ(cluster.counters(rank).last_buckets, 0u);
    }
  }
}

// --- A peer that does not keep the protocol ---

// What the coordinator says to readiness of rank 1 for `name`.
Status SayReady(ControllerCluster& cluster, const std::string& name,
                uint64_t sequence = 0, int last = LastReady::kNone) {
  ReadyMessage ready;
  ready.sequence = sequence;
  if (last != LastReady::kNone) {
    ready.last = LastReady::Of(last, std::chrono::milliseconds(1));
  }
  ready.uncached = {{VariantOf(AllreduceRequest(name, 4), {1})}};
  return cluster.at(0).OnMessage(1, EncodeMessage(ready));
}

// Else what it says could grow for ever in memory.
TEST(Controller, ReadinessTwiceIsAnError) {
  ControllerCluster cluster(kFlat, ControllerOptions());
  EXPECT_TRUE(SayReady(cluster, "a").ok());
  EXPECT_TRUE(SayReady(cluster, "b").ok());
  EXPECT_EQ(SayReady(cluster, "a"),
            InternalError("readiness a second time for 'a'"));
}

TEST(Controller, ALastRankOfAnotherSubtreeIsAnError) {
  ControllerCluster cluster(kFlat, ControllerOptions());
  EXPECT_EQ(SayReady(cluster, "a", 0, 2),
            InternalError("readiness with rank 2 as the last, which is not "
                          "below the sender"));
}

TEST(Controller, ReadinessFromAnotherTimeIsAnError) {
  ControllerCluster cluster(kFlat, ControllerOptions());
  EXPECT_THAT(SayReady(cluster, "a", 1).message(), HasSubstr("the future"));
  for (int rank = 0; rank < 4; ++rank) {
    cluster.Submit(rank, AllreduceRequest("x", 4));
  }
  cluster.Settle();
  EXPECT_TRUE(SayReady(cluster, "b", 1).ok());
  EXPECT_THAT(SayReady(cluster, "c", 0).message(), HasSubstr("the past"));
}

// Else the name would be in use here twice at the next use.
TEST(Controller, ADecisionBeforeAllAreReadyIsAnError) {
  ControllerCluster cluster(kTwoHosts, ControllerOptions());
  cluster.Submit(2, AllreduceRequest("a", 4));  // 3, below it, has not asked
  auto agreed = std::make_shared<Response>();
  agreed->request = AllreduceRequest("a", 4);
  const DecisionMessage message = {{ExecuteDecision{{}, {agreed}, {}}}};
  EXPECT_EQ(cluster.at(2).OnMessage(0, EncodeMessage(message)),
            InternalError("a decision to run allreduce 'a', which is not ready "
                          "below this rank"));
}

// The executor runs all of a bucket as it runs the first of it.
TEST(Controller, ABucketOfDifferentKindsIsAnError) {
  ControllerCluster cluster(kFlat, ControllerOptions());
  auto reduce = std::make_shared<Response>();
  reduce->request = AllreduceRequest("a", 4);
  auto barrier = std::make_shared<Response>();
  barrier->request.name = "b";
  barrier->request.kind = RequestKind::kBarrier;
  const DecisionMessage message = {
      {ExecuteDecision{{}, {reduce, barrier}, {}}}};
  EXPECT_EQ(cluster.at(1).OnMessage(0, EncodeMessage(message)),
            InternalError("a bucket of allreduce 'a' and barrier 'b'"));
}

}  // namespace
}  // namespace keras_ring
