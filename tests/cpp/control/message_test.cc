#include "csrc/control/message.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace keras_ring {
namespace {

Request SomeRequest() {
  Request request;
  request.name = "dense/kernel";
  request.tensors = {TensorSpec{DType::kFloat32, {3, 4}}};
  return request;
}

std::vector<Message> SomeMessages() {
  ReadyMessage ready;
  ready.sequence = 300;
  ready.last = {3, std::chrono::microseconds(4100)};
  ready.slots = {0, 1, 2, 9, 10, 5000};
  ready.uncached = {
      {VariantOf(SomeRequest(), {0, 2}), VariantOf(SomeRequest(), {1})}};
  for (RequestKind kind : {RequestKind::kAllgather, RequestKind::kAlltoall}) {
    Request request = SomeRequest();
    request.kind = kind;
    if (kind == RequestKind::kAlltoall) request.splits = {1, -2, 0, 4};
    ready.uncached.push_back({VariantOf(request, {0, 2, 3})});
  }
  WaitingMessage waiting;
  waiting.sequence = 299;
  waiting.waiting = {{"allreduce 'w'",
                      "w",
                      {0, 3},
                      std::chrono::seconds(70),
                      std::chrono::milliseconds(3)}};
  auto agreed = std::make_shared<Response>();
  agreed->request = SomeRequest();
  agreed->request.kind = RequestKind::kAllgather;
  agreed->rows = {1, 0, 7, 2};
  auto alltoall = std::make_shared<Response>();
  alltoall->request = SomeRequest();
  alltoall->request.kind = RequestKind::kAlltoall;
  alltoall->rows = {4, 0, 8, 3};
  alltoall->splits = {{}, {0, 0, 0, 0}, {}, {0, 2, 1, 0}};
  const DecisionMessage decisions = {
      {ExecuteDecision{{4, 5},
                       {agreed, alltoall},
                       LastReady{2, std::chrono::microseconds(1)}},
       FailDecision{{"a", "b"}, FailedPreconditionError("they differ")},
       EndDecision{UnavailableError("over")}, PlanDecision{{{3, 4, 9}, {7}}},
       JoinDecision{{0, 3}}, TuneDecision{Tunable::kLinger, 1 << 20},
       ReconfigureDecision{300}}};
  return {ready,
          waiting,
          LeaveMessage{3, "ValueError: no"},
          decisions,
          AbortMessage{UnavailableError("lost rank 2")},
          PingMessage{},
          ClockQuery{123456789},
          ClockReply{-5, 100000000000000000, true, -7, 9},
          ClockReply{},
          JoinMessage{{1, 2}},
          ByeMessage{},
          StallQuery{300, {0, 2}, {"a", "b"}},
          ActivityReply{300, 2, {"waits", {"c"}, {true, false}}}};
}

TEST(MessageWire, EachKindIsAmongThese) {
  std::set<size_t> kinds;
  for (const Message& message : SomeMessages()) kinds.insert(message.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<Message>);
}

TEST(MessageWire, RoundTripsToTheSameBytes) {
  for (const Message& message : SomeMessages()) {
    const std::string bytes = EncodeMessage(message);
    Result<Message> decoded = DecodeMessage(bytes, 4);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(decoded->index(), message.index());
    EXPECT_EQ(EncodeMessage(*decoded), bytes);
  }
}

TEST(MessageWire, ReadyKeepsItsParts) {
  Result<Message> decoded =
      DecodeMessage(EncodeMessage(SomeMessages().front()), 4);
  const auto& ready = std::get<ReadyMessage>(*decoded);
  EXPECT_EQ(ready.sequence, 300u);
  EXPECT_EQ(ready.last.rank, 3);
  EXPECT_EQ(ready.last.late, std::chrono::microseconds(4100));
  EXPECT_EQ(ready.slots, (std::vector<uint64_t>{0, 1, 2, 9, 10, 5000}));
  ASSERT_EQ(ready.uncached.size(), 3u);
  EXPECT_EQ(ready.uncached[0][0].ranks, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(ready.uncached[1][0].rows, (std::vector<int64_t>{3, 3, 3}));
  EXPECT_EQ(ready.uncached[2][0].splits[1],
            (std::vector<int64_t>{1, -2, 0, 4}));
}

// What a rank would take for the sizes of its memory.
TEST(MessageWire, SplitsThatDoNotAddUpAreAnError) {
  for (const std::vector<int64_t>& splits :
       {std::vector<int64_t>{1, 2}, {3}, {3, 0, 0}, {4, -1}, {}}) {
    auto agreed = std::make_shared<Response>();
    agreed->request = SomeRequest();
    agreed->request.kind = RequestKind::kAlltoall;
    agreed->rows = {2, 3};
    agreed->splits = {{}, splits};
    const DecisionMessage message = {{ExecuteDecision{{}, {agreed}, {}}}};
    EXPECT_EQ(DecodeMessage(EncodeMessage(message), 2).ok(),
              splits == (std::vector<int64_t>{1, 2}));
  }
}

TEST(MessageWire, TruncatedAnywhereIsAnError) {
  for (const Message& message : SomeMessages()) {
    const std::string bytes = EncodeMessage(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(DecodeMessage(bytes.substr(0, size), 4).ok());
    }
    EXPECT_FALSE(DecodeMessage(bytes + "x", 4).ok());
  }
}

TEST(MessageWire, RanksOutsideTheJobAreAnError) {
  for (const Message& message : SomeMessages()) {
    const bool has_ranks = message.index() < 3 || message.index() == 6 ||
                           message.index() == 8 || message.index() == 9;
    EXPECT_EQ(DecodeMessage(EncodeMessage(message), 2).ok(),
              !has_ranks && message.index() != 3)
        << message.index();
  }
}

TEST(MessageWire, DamagedBytesNeverCrashOrAllocateWithoutBound) {
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::vector<Message> messages = SomeMessages();
    std::string bytes = EncodeMessage(messages[random() % messages.size()]);
    for (int i = 0, n = 1 + random() % 4; i < n; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    Result<Message> decoded = DecodeMessage(bytes, 4);
    if (decoded.ok()) EncodeMessage(*decoded);
  }
}

// Each decision claims what one message may: a few bytes each.
TEST(MessageWire, ManyLongRunsAreRefused) {
  ExecuteDecision long_one;
  for (uint64_t slot = 0; slot < 1 << 22; ++slot) {
    long_one.slots.push_back(slot);
  }
  EXPECT_TRUE(
      DecodeMessage(EncodeMessage(DecisionMessage{{long_one}}), 4).ok());
  DecisionMessage two = {{long_one, ExecuteDecision{{0}, {}, {}}}};
  EXPECT_FALSE(DecodeMessage(EncodeMessage(two), 4).ok());
  two.decisions[1] = PlanDecision{{{0}}};
  EXPECT_FALSE(DecodeMessage(EncodeMessage(two), 4).ok());
}

// As the disagreement of many ranks over a large group.
TEST(MessageWire, LongTextsAreCutToWhatIsRead) {
  const std::string text(3 << 20, 'x');
  for (const Message& message : {Message(AbortMessage{InternalError(text)}),
                                 Message(LeaveMessage{3, text})}) {
    EXPECT_TRUE(DecodeMessage(EncodeMessage(message), 4).ok());
  }
}

// Bytes are reckoned in 64 bits by whoever executes it.
TEST(MessageWire, RowsThatTogetherOverflowAreAnError) {
  for (int64_t rows : {int64_t{1}, int64_t{1} << 56, INT64_MAX}) {
    for (int64_t columns : {int64_t{0}, int64_t{1}, int64_t{1} << 40}) {
      auto agreed = std::make_shared<Response>();
      agreed->request = SomeRequest();
      agreed->request.kind = RequestKind::kAllgather;
      agreed->request.tensors[0].shape = {0, columns};
      agreed->rows = {rows, rows, rows, rows};
      const DecisionMessage message = {{ExecuteDecision{{}, {agreed}, {}}}};
      EXPECT_EQ(DecodeMessage(EncodeMessage(message), 4).ok(),
                rows == 1 || (rows < INT64_MAX && columns < 2))
          << rows << " x " << columns;
    }
  }
}

TEST(MessageWire, WhatCannotBeTunedIsRefused) {
  for (const int64_t value : {int64_t{0}, kMaxTunedValue, kMaxTunedValue + 1}) {
    for (const int tunable : {0, kNumTunables - 1, kNumTunables}) {
      const DecisionMessage message = {
          {TuneDecision{static_cast<Tunable>(tunable), value}}};
      EXPECT_EQ(DecodeMessage(EncodeMessage(message), 4).ok(),
                tunable < kNumTunables && value <= kMaxTunedValue)
          << tunable << " = " << value;
    }
  }
}

TEST(MessageWire, ARunOfBillionsIsRefused) {
  // Ready, sequence 0, a count of 2^40 slots in one run.
  WireWriter writer;
  writer.Byte(0);
  writer.Varint(0);
  writer.Varint(uint64_t{1} << 40);
  writer.Varint(0);
  writer.Varint(uint64_t{1} << 40);
  writer.Varint(0);
  EXPECT_FALSE(DecodeMessage(writer.bytes(), 4).ok());
}

}  // namespace
}  // namespace keras_ring
