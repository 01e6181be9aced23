// What is special to CpuCollective. What all collectives do is in the suite of
// collective_conformance.h.
#include "csrc/collective/net/cpu_collective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "csrc/base/float16.h"
#include "csrc/testing/faulty_transport.h"
#include "csrc/testing/local_transport.h"
#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace {

// Notes what is run.
class RecordingTransport final : public Transport {
 public:
  struct Record {
    uint64_t tag = 0;
    std::set<const void*> sent_from;
    size_t max_segment_bytes = 0;
    size_t bytes = 0;
  };

  explicit RecordingTransport(std::unique_ptr<Transport> inner)
      : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Status Run(SendReceivePlan& duplex) override {
    Record record;
    record.tag = duplex.tag;
    for (const Outgoing& outgoing : duplex.outgoing) {
      for (const ConstSegment& segment : outgoing.segments) {
        record.sent_from.insert(segment.data);
        record.bytes += segment.bytes;
        record.max_segment_bytes =
            std::max(record.max_segment_bytes, segment.bytes);
      }
    }
    records.push_back(record);
    return inner_->Run(duplex);
  }
  void Abort(const Status& cause) override { inner_->Abort(cause); }

  std::vector<Record> records;

 private:
  const std::unique_ptr<Transport> inner_;
};

std::vector<std::unique_ptr<RecordingTransport>> RecordingTransports(int size) {
  std::vector<std::unique_ptr<RecordingTransport>> transports;
  for (auto& transport : CreateLocalTransports(size)) {
    transports.push_back(
        std::make_unique<RecordingTransport>(std::move(transport)));
  }
  return transports;
}

// Of ranks that know their neighbours alone.
CpuCollectiveOptions RingOptions() {
  CpuCollectiveOptions options;
  options.max_exchange_ranks = 1;
  return options;
}

AllreduceArgs SumOf(std::vector<float>& values, uint64_t tag = 1) {
  AllreduceArgs args;
  args.tag = tag;
  args.tensors.push_back(
      {values.data(), values.data(), static_cast<int64_t>(values.size())});
  return args;
}

// To the last bit, since ring.h promises the order.
TEST(CpuCollectiveTest, FloatsAreSummedInTheStatedOrder) {
  constexpr int kSize = 5;
  constexpr int kPerChunk = 40;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<std::vector<float>> values(kSize);
  for (auto& of_rank : values) {
    for (int i = 0; i < kSize * kPerChunk; ++i) {
      of_rank.push_back(std::exp(4 * normal(random)) * normal(random));
    }
  }
  std::vector<float> expected;
  for (int i = 0; i < kSize * kPerChunk; ++i) {
    const int chunk = i / kPerChunk;
    float sum = values[chunk][i];
    for (int s = 1; s < kSize; ++s) sum += values[(chunk + s) % kSize][i];
    expected.push_back(sum);
  }
  CpuCollectiveOptions options = RingOptions();
  options.max_segment_bytes = 30;
  auto transports = CreateLocalTransports(kSize);
  RunRanks(kSize, [&](int rank) {
    CpuCollective collective(*transports[rank], options);
    EXPECT_TRUE(collective.Allreduce(SumOf(values[rank])).ok());
    EXPECT_EQ(values[rank], expected);
  });
}

TEST(CpuCollectiveTest, CompressedFloatsAreSummedInTheStatedOrder) {
  constexpr int kSize = 5;
  constexpr int kPerChunk = 40;
  std::mt19937_64 random(2);
  std::vector<std::vector<float>> values(kSize);
  for (auto& of_rank : values) {
    for (int i = 0; i < kSize * kPerChunk; ++i) {
      of_rank.push_back(std::ldexp(1.0f + (random() % 65536) / 65536.0f,
                                   static_cast<int>(random() % 40) - 20) *
                        (random() % 2 ? 1 : -1));
    }
  }
  auto rounded = [](float value) { return ToFloat(ToBfloat16(value)); };
  std::vector<float> expected;
  for (int i = 0; i < kSize * kPerChunk; ++i) {
    const int chunk = i / kPerChunk;
    float sum = rounded(values[chunk][i] * 0.3f);
    for (int s = 1; s < kSize; ++s) {
      sum += rounded(values[(chunk + s) % kSize][i] * 0.3f);
    }
    expected.push_back(rounded(sum * 0.7f));
  }
  CpuCollectiveOptions options = RingOptions();
  options.max_segment_bytes = 30;
  auto transports = CreateLocalTransports(kSize);
  RunRanks(kSize, [&](int rank) {
    CpuCollective collective(*transports[rank], options);
    AllreduceArgs args = SumOf(values[rank]);
    args.compression = Compression::kBfloat16;
    args.prescale = 0.3;
    args.postscale = 0.7;
    EXPECT_TRUE(collective.Allreduce(args).ok());
    EXPECT_EQ(values[rank], expected);
  });
}

TEST(CpuCollectiveTest, ABucketIsOneRunAndALargeTensorGoesFromWhereItLies) {
  CpuCollectiveOptions options = RingOptions();
  options.direct_bytes = 4000;
  auto transports = RecordingTransports(2);
  RunRanks(2, [&](int rank) {
    RecordingTransport& transport = *transports[rank];
    CpuCollective collective(transport, options);
    std::vector<std::vector<float>> tensors(20, std::vector<float>(7, 1.0f));
    tensors[3].assign(1000, 1.0f);
    AllreduceArgs args;
    args.tag = 5;
    for (auto& tensor : tensors) {
      args.tensors.push_back(
          {tensor.data(), tensor.data(), static_cast<int64_t>(tensor.size())});
    }
    ASSERT_TRUE(collective.Allreduce(args).ok());
    for (const auto& tensor : tensors) {
      EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 2.0f));
    }
    ASSERT_EQ(transport.records.size(), 2u);
    EXPECT_EQ(transport.records[0].tag, 5u);
    EXPECT_EQ(transport.records[0].sent_from.count(tensors[3].data() +
                                                   (rank == 0 ? 0 : 500)),
              1u);
    EXPECT_EQ(transport.records[1].bytes, 19 * 7 * sizeof(float));
  });
}

// Three hundred elements of 2 bytes, with 4 for each sum; at most 600 bytes at
// a time.
TEST(CpuCollectiveTest, ALargeBucketTakesRounds) {
  CpuCollectiveOptions options = RingOptions();
  options.fusion_buffer_bytes = 600;
  options.max_segment_bytes = 64;
  auto transports = RecordingTransports(2);
  RunRanks(2, [&](int rank) {
    CpuCollective collective(*transports[rank], options);
    std::vector<uint16_t> bfloat16_ones(300, 0x3f80);
    AllreduceArgs args;
    args.dtype = DType::kBfloat16;
    args.tensors.push_back({bfloat16_ones.data(), bfloat16_ones.data(), 300});
    ASSERT_TRUE(collective.Allreduce(args).ok());
    EXPECT_EQ(bfloat16_ones, std::vector<uint16_t>(300, 0x4000));
    ASSERT_EQ(transports[rank]->records.size(), 3u);
    for (const auto& record : transports[rank]->records) {
      EXPECT_EQ(record.bytes, 200u);  // of two ranks no sum travels
      EXPECT_LE(record.max_segment_bytes, 64u);
    }
  });
}

// What a rank sends of 1200 elements, by the number of ranks.
TEST(CpuCollectiveTest, CompressionSavesBytesInARing) {
  for (int size : {2, 3, 4}) {
    for (Compression compression :
         {Compression::kNone, Compression::kFloat16, Compression::kBfloat16}) {
      auto transports = RecordingTransports(size);
      RunRanks(size, [&](int rank) {
        CpuCollective collective(*transports[rank], RingOptions());
        std::vector<float> values(1200, 1.0f);
        AllreduceArgs args = SumOf(values);
        args.compression = compression;
        ASSERT_TRUE(collective.Allreduce(args).ok());
        EXPECT_EQ(values, std::vector<float>(1200, size));
        const size_t bytes = compression == Compression::kNone
                                 ? (2 * size - 2) * sizeof(float)
                                 : size * 2 + (size - 2) * sizeof(float);
        ASSERT_EQ(transports[rank]->records.size(), 1u);
        EXPECT_EQ(transports[rank]->records[0].bytes, 1200 / size * bytes);
      });
    }
  }
}

// Nor does any sum travel: 16 bits remain 16 bits.
TEST(CpuCollectiveTest, CompressionHalvesTheBytesOfAnExchange) {
  for (int size : {2, 3, 4}) {
    for (Compression compression :
         {Compression::kNone, Compression::kFloat16, Compression::kBfloat16}) {
      CpuCollectiveOptions options;
      options.algorithms.allreduce = Preference::kFewBytes;
      auto transports = RecordingTransports(size);
      const int count = size * 6400;
      RunRanks(size, [&](int rank) {
        CpuCollective collective(*transports[rank], options);
        std::vector<float> values(count, 1.0f);
        AllreduceArgs args = SumOf(values);
        args.compression = compression;
        ASSERT_TRUE(collective.Allreduce(args).ok());
        EXPECT_EQ(values, std::vector<float>(count, size));
        const size_t bytes = compression == Compression::kNone ? 4 : 2;
        ASSERT_EQ(transports[rank]->records.size(), 1u);
        EXPECT_EQ(transports[rank]->records[0].bytes,
                  2 * (size - 1) * 6400 * bytes);
      });
    }
  }
}

TEST(CpuCollectiveTest, AnExchangeSendsTensorsFromWhereTheyLie) {
  auto transports = RecordingTransports(2);
  RunRanks(2, [&](int rank) {
    CpuCollective collective(*transports[rank]);
    std::vector<std::vector<float>> tensors(5, std::vector<float>(700, 1.0f));
    AllreduceArgs args;
    for (auto& tensor : tensors) {
      args.tensors.push_back({tensor.data(), tensor.data(), 700});
    }
    ASSERT_TRUE(collective.Allreduce(args).ok());
    ASSERT_EQ(transports[rank]->records.size(), 1u);
    for (const auto& tensor : tensors) {
      EXPECT_EQ(tensor, std::vector<float>(700, 2.0f));
      EXPECT_EQ(transports[rank]->records[0].sent_from.count(tensor.data()),
                1u);
    }
  });
}

// A rank has links with all of them, or, of many, with its neighbours.
TEST(CpuCollectiveTest, PeersAreThoseThatItSpeaksTo) {
  CpuCollectiveOptions options;
  options.max_exchange_ranks = 4;
  using Peers = std::vector<int>;
  EXPECT_EQ(CpuCollectivePeers(0, 1, options), Peers());
  EXPECT_EQ(CpuCollectivePeers(1, 2, options), Peers({0}));
  EXPECT_EQ(CpuCollectivePeers(1, 4, options), Peers({0, 2, 3}));
  EXPECT_EQ(CpuCollectivePeers(1, 5, options), Peers({0, 2}));
  EXPECT_EQ(CpuCollectivePeers(0, 5, options), Peers({1, 4}));
}

TEST(CpuCollectiveTest, ABroadcastCopiesNothingOnItsWay) {
  auto transports = RecordingTransports(2);
  RunRanks(2, [&](int rank) {
    CpuCollective collective(*transports[rank]);
    std::vector<std::string> tensors(50, std::string(10, rank ? '?' : 'x'));
    BroadcastArgs args;
    for (std::string& tensor : tensors) {
      args.tensors.push_back({tensor.data(), tensor.data(), 10});
    }
    ASSERT_TRUE(collective.Broadcast(args).ok());
    EXPECT_EQ(tensors, std::vector<std::string>(50, std::string(10, 'x')));
    ASSERT_EQ(transports[rank]->records.size(), 1u);
    for (const std::string& tensor : tensors) {
      EXPECT_EQ(transports[rank]->records[0].sent_from.count(tensor.data()),
                rank == 0 ? 1u : 0u);
    }
  });
}

TEST(CpuCollectiveTest, NothingToMoveIsNotRun) {
  auto transports = RecordingTransports(2);
  RunRanks(2, [&](int rank) {
    CpuCollective collective(*transports[rank]);
    std::vector<float> none;
    EXPECT_TRUE(collective.Allreduce(SumOf(none)).ok());
    EXPECT_TRUE(collective.Allreduce(AllreduceArgs()).ok());
    AllgatherArgs gather;
    gather.bytes_per_rank = {0, 0};
    EXPECT_TRUE(collective.Allgather(gather).ok());
    EXPECT_TRUE(collective.Broadcast(BroadcastArgs()).ok());
    EXPECT_TRUE(transports[rank]->records.empty());
  });
}

TEST(CpuCollectiveTest, ArgumentsThatMeanNothingAreRefused) {
  std::vector<float> values(3, 1.0f);
  std::vector<std::pair<std::string, AllreduceArgs>> cases;
  AllreduceArgs args = SumOf(values);
  args.dtype = DType::kBool;
  cases.emplace_back("cannot reduce bool tensors", args);
  args.dtype = DType::kComplex64;
  cases.emplace_back("cannot reduce complex64 tensors", args);
  args.dtype = DType::kInt32;
  args.prescale = 0.5;
  cases.emplace_back("cannot scale int32 tensors", args);
  args = SumOf(values);
  args.divisor = 0;
  cases.emplace_back("the divisor must be at least 1, not 0", args);
  for (const auto& [text, refused] : cases) {
    auto transports = CreateLocalTransports(1);
    CpuCollective collective(*transports[0]);
    const Status status = collective.Allreduce(refused);
    EXPECT_EQ(status, InvalidArgumentError("allreduce: " + text));
  }
  auto transports = CreateLocalTransports(1);
  BroadcastArgs broadcast;
  broadcast.root = 1;
  EXPECT_EQ(CpuCollective(*transports[0]).Broadcast(broadcast).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(CpuCollective(*transports[0]).Allgather(AllgatherArgs()).code(),
            StatusCode::kInvalidArgument);
}

// Each rank with a fault in rank 1's transport, over three allreduces.
std::vector<std::vector<Status>> RunWithFault(int size, const Fault& fault) {
  CpuCollectiveOptions options;
  options.max_segment_bytes = 100;
  std::vector<std::unique_ptr<Transport>> transports =
      CreateLocalTransports(size);
  transports[1] =
      std::make_unique<FaultyTransport>(std::move(transports[1]), fault);
  std::vector<std::vector<Status>> statuses(size);
  RunRanks(size, [&](int rank) {
    CpuCollective collective(*transports[rank], options);
    for (int i = 0; i < 3; ++i) {
      std::vector<float> values(1000, 1.0f);
      statuses[rank].push_back(collective.Allreduce(SumOf(values, 10 + i)));
    }
  });
  return statuses;
}

// Fault: rank 1 dies in the middle of the second allreduce. Errors: both
// others, kUnavailable, naming rank 1. At once: the limit of a test is far
// below that of the transport.
TEST(CpuCollectiveTest, APeerLostMidwayIsNamed) {
  Fault fault;
  fault.kind = Fault::Kind::kVanish;
  fault.run = 1;
  fault.after_receives = 5;
  const auto statuses = RunWithFault(3, fault);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(statuses[rank][0].ok());
    EXPECT_FALSE(statuses[rank][1].ok());
    EXPECT_EQ(statuses[rank][2], statuses[rank][1]);
  }
  for (int rank : {0, 2}) {
    EXPECT_EQ(statuses[rank][1],
              UnavailableError("allreduce: rank 1 closed the connection"));
  }
}

// Fault: rank 1 announces another collective. Error: on its successor,
// kInternal, naming rank 1; what the others see depends on who aborts them.
TEST(CpuCollectiveTest, ATagThatDiffersIsNamed) {
  Fault fault;
  fault.kind = Fault::Kind::kFlipTag;
  fault.run = 1;
  const auto statuses = RunWithFault(2, fault);
  EXPECT_TRUE(statuses[0][0].ok());
  EXPECT_EQ(statuses[0][1].code(), StatusCode::kInternal);
  EXPECT_NE(statuses[0][1].message().find("rank 1"), std::string::npos);
  EXPECT_EQ(statuses[0][2], statuses[0][1]);
}

// Fault: rank 1 is late. No error.
TEST(CpuCollectiveTest, ASlowRankIsWaitedFor) {
  Fault fault;
  fault.kind = Fault::Kind::kDelay;
  fault.run = 1;
  fault.delay = std::chrono::milliseconds(100);
  for (const auto& of_rank : RunWithFault(3, fault)) {
    for (const Status& status : of_rank) EXPECT_TRUE(status.ok());
  }
}

// A broken collective does not touch tensors, nor the transport.
TEST(CpuCollectiveTest, NothingIsRunAfterAFailure) {
  auto transports = RecordingTransports(2);
  CpuCollective collective(*transports[0]);
  const Status cause = AbortedError("the job ends");
  collective.Abort(cause);
  const std::vector<float> input(10, 1.0f);
  std::vector<float> output(10, 7.0f);
  AllreduceArgs args;
  args.prescale = 2.0;
  args.tensors.push_back({input.data(), output.data(), 10});
  EXPECT_EQ(collective.Allreduce(args), cause);
  EXPECT_EQ(output, std::vector<float>(10, 7.0f));
  EXPECT_TRUE(transports[0]->records.empty());
}

TEST(CpuCollectiveTest, AbortUnblocksACallUnderWay) {
  auto transports = CreateLocalTransports(2);
  CpuCollective waiting(*transports[0]);
  const Status cause = AbortedError("the job ends");
  RunRanks(2, [&](int rank) {
    if (rank == 0) {
      std::vector<float> values(5000, 1.0f);
      EXPECT_EQ(waiting.Allreduce(SumOf(values)), cause);
      EXPECT_EQ(waiting.Allgather(AllgatherArgs()), cause);
    } else {
      // More than a pipe holds, so that the other is in the middle of it when
      // this Run ends; and less than it waits for.
      SendReceivePlan duplex;
      duplex.tag = 1;
      std::vector<float> part(1000);
      duplex.outgoing.push_back(
          {0, {{part.data(), part.size() * sizeof(float)}}, 1});
      EXPECT_TRUE(transports[1]->Run(duplex).ok());
      waiting.Abort(cause);
    }
  });
}

}  // namespace
}  // namespace keras_ring
