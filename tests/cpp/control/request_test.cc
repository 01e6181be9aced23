#include "csrc/control/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Request Allreduce(std::vector<int64_t> shape) {
  Request request;
  request.name = "w";
  request.tensors = {TensorSpec{DType::kFloat32, std::move(shape)}};
  return request;
}

TEST(RankList, JoinsRuns) {
  EXPECT_EQ(RankList({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  EXPECT_EQ(RanksText({3}), "rank 3");
  EXPECT_EQ(RanksText({3, 4}), "ranks 3-4");
}

TEST(Agree, NamesTheFirstDifferenceRanksAndValues) {
  struct Case {
    const char* feature;
    void (*change)(Request&);
    const char* value;
  };
  const Case cases[] = {
      {"operation", [](Request& r) { r.kind = RequestKind::kBroadcast; },
       "broadcast"},
      {"number of tensors",
       [](Request& r) { r.tensors.push_back(r.tensors[0]); }, "2"},
      {"dtype", [](Request& r) { r.tensors[0].dtype = DType::kInt64; },
       "int64"},
      {"shape",
       [](Request& r) {
         r.tensors[0].shape = {2, 4};
       },
       "[2, 4]"},
      {"reduce op", [](Request& r) { r.op = ReduceOp::kMax; }, "Max"},
      {"prescale factor", [](Request& r) { r.prescale = 0.5; }, "0.5"},
      {"postscale factor", [](Request& r) { r.postscale = 0.25; }, "0.25"},
      {"root rank", [](Request& r) { r.root = 1; }, "1"},
  };
  for (const Case& c : cases) {
    Request odd = Allreduce({2, 3});
    c.change(odd);
    Result<Agreed> agreed =
        Agree({{Allreduce({2, 3}), {0, 1, 3}}, {odd, {2}}}, 4);
    ASSERT_FALSE(agreed.ok()) << c.feature;
    EXPECT_EQ(agreed.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        agreed.status().message(),
        AllOf(HasSubstr("'w'"), HasSubstr(std::string("on the ") + c.feature),
              HasSubstr("ranks 0-1, 3 have "),
              HasSubstr(std::string("rank 2 has ") + c.value)));
  }
}

TEST(Agree, RefusesWhatCannotRun) {
  Request broadcast = Allreduce({2});
  broadcast.kind = RequestKind::kBroadcast;
  broadcast.root = 4;
  EXPECT_THAT(Agree({{broadcast, {0, 1, 2, 3}}}, 4).status().message(),
              HasSubstr("root rank 4 is not a rank of this job of size 4"));

  Request gather = Allreduce({});
  gather.kind = RequestKind::kAllgather;
  EXPECT_EQ(Agree({{gather, {0}}}, 1).status().code(),
            StatusCode::kInvalidArgument);

  Request flags = Allreduce({2});
  flags.tensors[0].dtype = DType::kBool;
  EXPECT_THAT(Agree({{flags, {0}}}, 1).status().message(),
              HasSubstr("bool has no Sum"));

  Request scaled = Allreduce({2});
  scaled.tensors[0].dtype = DType::kInt32;
  scaled.postscale = 0.5;
  EXPECT_THAT(Agree({{scaled, {0}}}, 1).status().message(),
              HasSubstr("needs a floating dtype"));
}

TEST(Agree, AllgatherRowsMayDiffer) {
  Request two = Allreduce({2, 3}), none = Allreduce({0, 3});
  two.kind = none.kind = RequestKind::kAllgather;
  Result<Agreed> agreed = Agree({{two, {0, 2}}, {none, {1}}}, 3);
  ASSERT_TRUE(agreed.ok()) << agreed.status().ToString();
  EXPECT_EQ(agreed->rows, (std::vector<int64_t>{2, 0, 2}));
  EXPECT_EQ(agreed->RequestOf(0), two);
  EXPECT_EQ(agreed->RequestOf(1), none);

  Request wide = two;
  wide.tensors[0].shape = {2, 4};
  EXPECT_THAT(Agree({{two, {0, 2}}, {wide, {1}}}, 3).status().message(),
              AllOf(HasSubstr("[*, 3]"), HasSubstr("[*, 4]")));
}

TEST(RequestWire, RoundTrip) {
  Request request = Allreduce({3, 0, int64_t{1} << 40});
  request.kind = RequestKind::kBroadcast;
  request.op = ReduceOp::kProduct;
  request.prescale = 0.1;
  request.postscale = -3;
  request.root = -1;
  request.tensors.push_back(TensorSpec{DType::kComplex128, {}});
  WireWriter writer;
  request.Encode(writer);
  WireReader reader(writer.bytes());
  EXPECT_EQ(Request::Decode(reader), request);
  EXPECT_TRUE(reader.Finished());
}

TEST(RequestWire, TruncatedAnywhereFails) {
  WireWriter writer;
  Allreduce({3, 4}).Encode(writer);
  for (size_t size = 0; size < writer.bytes().size(); ++size) {
    WireReader reader(std::string_view(writer.bytes()).substr(0, size));
    Request::Decode(reader);
    EXPECT_FALSE(reader.Finished()) << size;
  }
}

TEST(RequestWire, RefusesAProductThatOverflows) {
  WireWriter writer;
  Allreduce({int64_t{1} << 40, int64_t{1} << 40}).Encode(writer);
  WireReader reader(writer.bytes());
  Request::Decode(reader);
  EXPECT_FALSE(reader.ok());
}

TEST(CheckName, RefusesNoneAndTooLong) {
  EXPECT_TRUE(CheckName("x").ok());
  EXPECT_TRUE(CheckName(std::string(kMaxNameBytes, 'x')).ok());
  EXPECT_EQ(CheckName("").code(), StatusCode::kInvalidArgument);
  const Status status = CheckName(std::string(kMaxNameBytes + 1, 'x'));
  EXPECT_EQ(status.message(),
            "the name of a collective must have 1 to 4096 bytes; received "
            "4097");
}

}  // namespace
}  // namespace keras_ring
