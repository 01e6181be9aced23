#include "csrc/testing/fake_collective.h"

#include <gtest/gtest.h>

#include <limits>

#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace {

AllreduceArgs CopyOf(const std::vector<float>& input,
                     std::vector<float>& output) {
  output.assign(input.size(), 0.0f);
  AllreduceArgs args;
  args.tag = 3;
  args.tensors.push_back(
      {input.data(), output.data(), static_cast<int64_t>(input.size())});
  return args;
}

TEST(FakeCollectiveTest, RecordsAndCopies) {
  FakeCollective collective(/*rank=*/1);
  std::vector<float> output;
  EXPECT_TRUE(collective.Allreduce(CopyOf({1.0f, 2.0f}, output)).ok());
  EXPECT_EQ(output, (std::vector<float>{1.0f, 2.0f}));
  AllgatherArgs gather;
  std::string gathered(5, '?');
  gather.input = "abc";
  gather.output = gathered.data();
  gather.bytes_per_rank = {2, 3};
  EXPECT_TRUE(collective.Allgather(gather).ok());
  EXPECT_EQ(gathered, std::string("\0\0abc", 5));
  EXPECT_TRUE(collective.Broadcast(BroadcastArgs()).ok());
  const auto calls = collective.calls();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].kind, FakeCollective::Kind::kAllreduce);
  EXPECT_EQ(calls[0].allreduce.tag, 3u);
  EXPECT_EQ(calls[1].kind, FakeCollective::Kind::kAllgather);
  EXPECT_EQ(calls[2].kind, FakeCollective::Kind::kBroadcast);
}

TEST(FakeCollectiveTest, CompressionRounds) {
  FakeCollective collective;
  std::vector<float> output;
  const std::vector<float> input = {1.0f, 1.0f + 1.0f / 4096, 1e6f};
  AllreduceArgs args = CopyOf(input, output);
  args.compression = Compression::kFloat16;
  EXPECT_TRUE(collective.Allreduce(args).ok());
  EXPECT_EQ(output, (std::vector<float>{
                        1.0f, 1.0f, std::numeric_limits<float>::infinity()}));
}

TEST(FakeCollectiveTest, FailsFromNowOnWithTheFirstCause) {
  FakeCollective collective;
  collective.Fail(UnavailableError("first"));
  collective.Abort(AbortedError("second"));
  EXPECT_EQ(collective.Broadcast(BroadcastArgs()), UnavailableError("first"));
  EXPECT_TRUE(collective.calls().empty());
}

TEST(FakeCollectiveTest, BlocksUntilReleasedOrAborted) {
  FakeCollective collective;
  collective.Block();
  RunRanks(2, [&](int rank) {
    if (rank == 0) {
      EXPECT_TRUE(collective.Broadcast(BroadcastArgs()).ok());
      collective.Block();
      EXPECT_EQ(collective.Broadcast(BroadcastArgs()), AbortedError("end"));
    } else {
      EXPECT_TRUE(collective.AwaitCalls(1));
      collective.Release();
      EXPECT_TRUE(collective.AwaitCalls(2));
      collective.Abort(AbortedError("end"));
    }
  });
}

TEST(FakeCollectiveTest, DoesDutiesWhileItWaits) {
  FakeCollective collective(/*rank=*/0, /*inline_bytes=*/100);
  EXPECT_EQ(collective.InlineBytes(), 100);
  EXPECT_LT(FakeCollective().InlineBytes(), 0);
  int done = 0;
  const std::function<void()> duty = [&] {
    if (++done == 3) collective.Release();
  };
  collective.SetProgressCallback(&duty);
  std::vector<float> output;
  const std::vector<float> input = {1.0f};
  EXPECT_TRUE(collective.Allreduce(CopyOf(input, output)).ok());
  EXPECT_EQ(done, 0);
  collective.Block();
  EXPECT_TRUE(collective.Allreduce(CopyOf(input, output)).ok());
  EXPECT_EQ(done, 3);
  EXPECT_EQ(collective.calls()[1].thread, std::this_thread::get_id());
}

}  // namespace
}  // namespace keras_ring
