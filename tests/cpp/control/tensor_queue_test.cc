#include "csrc/control/tensor_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace keras_ring {
namespace {

using ::testing::HasSubstr;

TensorEntry Entry(const std::string& name, std::atomic<int>* fired = nullptr) {
  TensorEntry entry;
  auto request = std::make_shared<Request>();
  request->name = name;
  request->kind = RequestKind::kBarrier;
  entry.request = request;
  entry.completion = Completion([fired](const Status&) {
    if (fired != nullptr) ++*fired;
  });
  return entry;
}

std::vector<RequestPtr> Pop(TensorQueue& queue) {
  std::vector<RequestPtr> requests;
  queue.PopRequests(requests);
  return requests;
}

std::vector<std::shared_ptr<const Response>> AgreedOn(const std::string& name) {
  auto agreed = std::make_shared<Response>();
  agreed->request.name = name;
  agreed->request.kind = RequestKind::kBarrier;
  return {agreed};
}

void Finish(std::vector<TensorEntry> entries) {
  for (TensorEntry& entry : entries) entry.completion.Fire(OkStatus());
}

// Whoever decides is another process.
TEST(TensorQueue, ADecisionThatDoesNotFitIsAnError) {
  int wakes = 0;
  std::atomic<int> fired{0};
  TensorQueue queue([&wakes] { ++wakes; });
  std::vector<TensorEntry> entries;
  auto take = [&](auto agreed) {
    return queue.Take(agreed, 0, entries).ToString();
  };
  EXPECT_THAT(take(AgreedOn("a")), HasSubstr("has not asked for"));
  ASSERT_TRUE(queue.Add(Entry("a", &fired)).ok());
  ASSERT_TRUE(queue.Add(Entry("b", &fired)).ok());
  EXPECT_THAT(take(AgreedOn("a")), HasSubstr("has not asked for")) << "fresh";
  Pop(queue);

  auto other = std::make_shared<Response>(*AgreedOn("a").front());
  other->request.kind = RequestKind::kBroadcast;
  other->request.tensors.resize(1);
  EXPECT_THAT(
      take(std::vector<std::shared_ptr<const Response>>{other}),
      HasSubstr("broadcast 'a' otherwise than this rank has asked for it"));
  EXPECT_TRUE(entries.empty());

  // Twice the same.
  auto twice = AgreedOn("a");
  twice.push_back(twice.front());
  EXPECT_THAT(take(twice), HasSubstr("has not asked for"));
  EXPECT_EQ(entries.size(), 1u);
  Finish(std::move(entries));
  Finish(queue.Close(CancelledError("end")));
  EXPECT_EQ(fired, 2);
}

TEST(TensorQueue, WakesOnceForWhatIsFoundAtOnceAndKeepsTheOrder) {
  int wakes = 0;
  TensorQueue queue([&wakes] { ++wakes; });
  ASSERT_TRUE(queue.Add(Entry("b")).ok());
  ASSERT_TRUE(queue.Add(Entry("a")).ok());
  EXPECT_EQ(wakes, 1);
  std::vector<RequestPtr> requests = Pop(queue);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0]->name, "b");
  EXPECT_TRUE(Pop(queue).empty());
  ASSERT_TRUE(queue.Add(Entry("c")).ok());
  EXPECT_EQ(wakes, 2);
  Finish(queue.Close(CancelledError("end")));
}

TEST(TensorQueue, APlannedBucketWakesForItsTimerAndWhenItIsComplete) {
  int wakes = 0;
  TensorQueue queue([&wakes] { ++wakes; });
  queue.SetPlan({{"a", "b", "c"}});
  EXPECT_EQ(wakes, 0);
  ASSERT_TRUE(queue.Add(Entry("b")).ok());
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(queue.NextRelease());
  ASSERT_TRUE(queue.Add(Entry("a")).ok());
  EXPECT_EQ(wakes, 1);
  ASSERT_TRUE(queue.Add(Entry("c")).ok());
  EXPECT_EQ(wakes, 2);
  EXPECT_FALSE(queue.NextRelease());
  EXPECT_EQ(Pop(queue).size(), 3u);
  Finish(queue.Close(CancelledError("end")));
}

TEST(TensorQueue, WhatIsHeldIsFreshUntilItsTimeHasCome) {
  TensorQueue queue([] {});
  queue.SetPlan({{"a", "b"}});
  ASSERT_TRUE(queue.Add(Entry("a")).ok());
  EXPECT_TRUE(queue.TakeIfNegotiating("a").empty());
  EXPECT_TRUE(queue.NextRelease());
  std::this_thread::sleep_until(*queue.NextRelease());
  EXPECT_EQ(Pop(queue).size(), 1u);
  Finish(queue.TakeIfNegotiating("a"));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(TensorQueue, NoPlanLetsGoWhatThePlanHeld) {
  int wakes = 0;
  TensorQueue queue([&wakes] { ++wakes; });
  queue.SetPlan({{"a", "b"}});
  ASSERT_TRUE(queue.Add(Entry("a")).ok());
  queue.SetPlan({});
  EXPECT_EQ(wakes, 2);
  EXPECT_EQ(Pop(queue).size(), 1u);
  Finish(queue.Close(CancelledError("end")));
}

TEST(TensorQueue, NameInFlightIsRefusedAndNothingFires) {
  std::atomic<int> fired{0};
  TensorQueue queue([] {});
  ASSERT_TRUE(queue.Add(Entry("a", &fired)).ok());
  std::atomic<int> second{0};
  Status status = queue.Add(Entry("a", &second));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("barrier 'a'"));
  EXPECT_EQ(second, 0);
  Pop(queue);
  std::vector<TensorEntry> entries;
  ASSERT_TRUE(queue.Take(AgreedOn("a"), 0, entries).ok());
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_TRUE(queue.Add(Entry("a", &second)).ok()) << "free again";
  Finish(std::move(entries));
  Finish(queue.Close(CancelledError("end")));
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(second, 1);
}

TEST(TensorQueue, FreshEntriesAreNotInNegotiation) {
  TensorQueue queue([] {});
  ASSERT_TRUE(queue.Add(Entry("a")).ok());
  EXPECT_TRUE(queue.TakeIfNegotiating("a").empty());
  Pop(queue);
  Finish(queue.TakeIfNegotiating("a"));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(TensorQueue, CloseReturnsAllAndRefusesMore) {
  std::atomic<int> fired{0};
  TensorQueue queue([] {});
  ASSERT_TRUE(queue.Add(Entry("a", &fired)).ok());
  ASSERT_TRUE(queue.Add(Entry("b", &fired)).ok());
  Pop(queue);
  ASSERT_TRUE(queue.Add(Entry("c", &fired)).ok());
  Finish(queue.Close(UnavailableError("lost rank 2")));
  EXPECT_EQ(fired, 3);
  EXPECT_TRUE(queue.Close(UnavailableError("other")).empty());
  EXPECT_EQ(queue.Add(Entry("d")).message(), "lost rank 2");
  EXPECT_TRUE(Pop(queue).empty());
}

// Every accepted entry fires once, whoever wins.
TEST(TensorQueue, AddAgainstTakeAndClose) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> fired{0}, accepted{0};
    TensorQueue queue([] {});
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 50; ++i) {
          std::string name = std::to_string(t) + "/" + std::to_string(i);
          if (queue.Add(Entry(name, &fired)).ok()) ++accepted;
        }
      });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        for (const RequestPtr& request : Pop(queue)) {
          Finish(queue.TakeIfNegotiating(request->name));
        }
      }
      Finish(queue.Close(CancelledError("end")));
    });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(fired, accepted);
  }
}

TensorEntry JoinEntry(std::atomic<int>* fired = nullptr) {
  TensorEntry entry = Entry("join", fired);
  auto request = std::make_shared<Request>(*entry.request);
  request->kind = RequestKind::kJoin;
  entry.request = request;
  return entry;
}

TEST(TensorQueue, AJoinWaitsForWhatWasAskedForBefore) {
  int wakes = 0;
  TensorQueue queue([&wakes] { ++wakes; });
  ASSERT_TRUE(queue.Add(Entry("a")).ok());
  // Another one may have its name.
  ASSERT_TRUE(queue.Add(Entry("join")).ok());
  ASSERT_TRUE(queue.Add(JoinEntry()).ok());
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(Pop(queue).size(), 2u);
  std::vector<TensorEntry> taken;
  ASSERT_TRUE(queue.Take(AgreedOn("a"), 0, taken).ok());
  Finish(std::move(taken));
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(Pop(queue).empty());
  Finish(queue.TakeIfNegotiating("join"));
  EXPECT_EQ(wakes, 2);
  std::vector<RequestPtr> requests = Pop(queue);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0]->kind, RequestKind::kJoin);
  // Only the end of the joins ends it.
  EXPECT_TRUE(queue.TakeIfNegotiating("join").empty());
  std::vector<TensorEntry> joins = queue.TakeJoin();
  EXPECT_EQ(joins.size(), 1u);
  Finish(std::move(joins));
  EXPECT_TRUE(queue.TakeJoin().empty());
  // And again, with nothing before it.
  ASSERT_TRUE(queue.Add(JoinEntry()).ok());
  EXPECT_EQ(wakes, 3);
  EXPECT_EQ(Pop(queue).size(), 1u);
  std::atomic<int> fired{0};
  Finish(queue.TakeJoin());
  ASSERT_TRUE(queue.Add(JoinEntry(&fired)).ok());
  std::vector<TensorEntry> rest = queue.Close(UnavailableError("over"));
  ASSERT_EQ(rest.size(), 1u);
  Finish(std::move(rest));
  EXPECT_EQ(fired, 1);
}

TEST(TensorQueue, AfterAJoinNothingIsTaken) {
  TensorQueue queue([] {});
  ASSERT_TRUE(queue.Add(JoinEntry()).ok());
  for (bool joins : {false, true}) {
    const Status status = queue.Add(joins ? JoinEntry() : Entry("a"));
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("this rank has called join()"));
  }
  Finish(queue.TakeJoin());
  EXPECT_TRUE(queue.Add(Entry("a")).ok());
  Finish(queue.Close(CancelledError("end")));
}

}  // namespace
}  // namespace keras_ring
