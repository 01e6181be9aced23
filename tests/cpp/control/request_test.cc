#include "csrc/control/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

// Of a shape for each rank.
std::vector<RequestVariant> Allgathers(
    const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<RequestVariant> variants;
  for (const std::vector<int64_t>& shape : shapes) {
    const int32_t rank = static_cast<int32_t>(variants.size());
    Request request = Allreduce(shape);
    request.kind = RequestKind::kAllgather;
    variants.push_back(VariantOf(std::move(request), {rank}));
  }
  return variants;
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
      {"compression",
       [](Request& r) { r.compression = Compression::kBfloat16; }, "bf16"},
      {"root rank", [](Request& r) { r.root = 1; }, "1"},
      {"device", [](Request& r) { r.device = DeviceKind::kCuda; }, "gpu"},
  };
  for (const Case& c : cases) {
    Request odd = Allreduce({2, 3});
    c.change(odd);
    Result<Response> agreed = Agree(
        {VariantOf(Allreduce({2, 3}), {0, 1, 3}), VariantOf(odd, {2})}, 4);
    ASSERT_FALSE(agreed.ok()) << c.feature;
    EXPECT_EQ(agreed.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(
        agreed.status().message(),
        AllOf(HasSubstr("'w'"), HasSubstr(std::string("on the ") + c.feature),
              HasSubstr("ranks 0-1, 3 have "),
              HasSubstr(std::string("rank 2 has ") + c.value)));
  }
}

TEST(Agree, NamesTheRanksOfTheJobInASet) {
  const RankSet set(3, {1, 4, 6});
  Request other = Allreduce({2});
  other.op = ReduceOp::kMax;
  EXPECT_THAT(
      Agree({VariantOf(Allreduce({2}), {0, 2}), VariantOf(other, {1})}, 3, set)
          .status()
          .message(),
      AllOf(HasSubstr("ranks 1, 6 have"), HasSubstr("rank 4 has Max")));

  Request broadcast = Allreduce({2});
  broadcast.kind = RequestKind::kBroadcast;
  broadcast.root = 6;
  EXPECT_TRUE(Agree({VariantOf(broadcast, {0, 1, 2})}, 3, set).ok());
  broadcast.root = 2;
  EXPECT_THAT(
      Agree({VariantOf(broadcast, {0, 1, 2})}, 3, set).status().message(),
      HasSubstr("root rank 2 is not a member of process set 3 (ranks "
                "1, 4, 6)"));

  Request alltoall = Allreduce({3});
  alltoall.kind = RequestKind::kAlltoall;
  Request uneven = alltoall;
  uneven.splits = {1, 1, 2};
  EXPECT_THAT(
      Agree({VariantOf(alltoall, {0, 1}), VariantOf(uneven, {2})}, 3, set)
          .status()
          .message(),
      HasSubstr("rank 6 has splits"));
}

TEST(Agree, RefusesWhatCannotRun) {
  Request broadcast = Allreduce({2});
  broadcast.kind = RequestKind::kBroadcast;
  broadcast.root = 4;
  EXPECT_THAT(Agree({VariantOf(broadcast, {0, 1, 2, 3})}, 4).status().message(),
              HasSubstr("root rank 4 is not a rank of this job of size 4"));

  for (RequestKind kind : {RequestKind::kAllgather, RequestKind::kAlltoall,
                           RequestKind::kReducescatter}) {
    Request scalar = Allreduce({});
    scalar.kind = kind;
    if (kind != RequestKind::kAlltoall) {  // also as a member of a group
      scalar.tensors.insert(scalar.tensors.begin(),
                            TensorSpec{DType::kFloat32, {2}});
    }
    const Status status = Agree({VariantOf(scalar, {0})}, 1).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(RequestKindName(kind)),
                                        HasSubstr("reshape it to [1]")));
  }

  for (RequestKind kind :
       {RequestKind::kAllreduce, RequestKind::kReducescatter}) {
    Request flags = Allreduce({2});
    flags.kind = kind;
    flags.tensors[0].dtype = DType::kBool;
    EXPECT_THAT(Agree({VariantOf(flags, {0})}, 1).status().message(),
                HasSubstr("bool has no Sum"));

    Request scaled = Allreduce({2});
    scaled.kind = kind;
    scaled.tensors[0].dtype = DType::kInt32;
    scaled.postscale = 0.5;
    EXPECT_THAT(Agree({VariantOf(scaled, {0})}, 1).status().message(),
                HasSubstr("needs a floating dtype"));
  }
}

TEST(Agree, ReducescattersMustBeAlikeInRows) {
  Request two = Allreduce({2, 3}), four = Allreduce({4, 3});
  two.kind = four.kind = RequestKind::kReducescatter;
  const Result<Response> agreed = Agree({VariantOf(two, {0, 1})}, 2);
  ASSERT_TRUE(agreed.ok());
  EXPECT_EQ(agreed->RequestOf(1), two);
  EXPECT_TRUE(agreed->rows.empty());
  EXPECT_THAT(
      Agree({VariantOf(two, {0}), VariantOf(four, {1})}, 2).status().message(),
      AllOf(HasSubstr("on the shape"), HasSubstr("rank 1 has [4, 3]")));
}

TEST(ScatteredRows, TheFirstRanksGetOneMore) {
  for (int size : {1, 2, 3, 4, 7}) {
    for (int64_t rows = 0; rows < 30; ++rows) {
      int64_t sum = 0;
      for (int rank = 0; rank < size; ++rank) {
        const int64_t own = ScatteredRows(rows, rank, size);
        EXPECT_EQ(own, (rows + size - 1 - rank) / size);
        sum += own;
      }
      EXPECT_EQ(sum, rows);
    }
  }
}

TEST(Agree, AllgatherRowsMayDiffer) {
  Request two = Allreduce({2, 3}), none = Allreduce({0, 3});
  two.kind = none.kind = RequestKind::kAllgather;
  Result<Response> agreed =
      Agree({VariantOf(two, {0, 2}), VariantOf(none, {1})}, 3);
  ASSERT_TRUE(agreed.ok()) << agreed.status().ToString();
  EXPECT_EQ(agreed->rows, (std::vector<int64_t>{2, 0, 2}));
  EXPECT_EQ(agreed->RequestOf(0), two);
  EXPECT_EQ(agreed->RequestOf(1), none);

  Request wide = two;
  wide.tensors[0].shape = {2, 4};
  EXPECT_THAT(Agree({VariantOf(two, {0, 2}), VariantOf(wide, {1})}, 3)
                  .status()
                  .message(),
              AllOf(HasSubstr("[*, 3]"), HasSubstr("[*, 4]")));
}

TEST(Agree, RowsOfAGroupGoTensorByTensor) {
  Request first = Allreduce({2, 3}), second = Allreduce({0, 3});
  first.kind = second.kind = RequestKind::kAllgather;
  first.tensors.push_back(TensorSpec{DType::kInt8, {5}});
  second.tensors.push_back(TensorSpec{DType::kInt8, {7}});
  const Result<Response> agreed =
      Agree({VariantOf(first, {0}), VariantOf(second, {1})}, 2);
  ASSERT_TRUE(agreed.ok()) << agreed.status().ToString();
  EXPECT_EQ(agreed->RowsOf(0), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(agreed->RowsOf(1), (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(agreed->RequestOf(0), first);
  EXPECT_EQ(agreed->RequestOf(1), second);
}

Request Alltoall(int64_t rows, std::vector<int64_t> splits) {
  Request request = Allreduce({rows, 2});
  request.kind = RequestKind::kAlltoall;
  request.splits = std::move(splits);
  return request;
}

TEST(Agree, EveryRankLearnsAllSplits) {
  const Request even = Alltoall(6, {});
  const Request odd = Alltoall(4, {0, 4, 0});
  const Result<Response> agreed =
      Agree({VariantOf(odd, {1}), VariantOf(even, {0, 2})}, 3);
  ASSERT_TRUE(agreed.ok()) << agreed.status().ToString();
  EXPECT_EQ(agreed->rows, (std::vector<int64_t>{6, 4, 6}));
  std::vector<int64_t> rows;
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to)
      rows.push_back(agreed->RowsBetween(from, to));
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{2, 2, 2, 0, 4, 0, 2, 2, 2}));
  EXPECT_EQ(agreed->RequestOf(0), even);
  EXPECT_EQ(agreed->RequestOf(1), odd);
}

TEST(Agree, RefusesSplitsThatCannotBe) {
  struct Case {
    Request request;
    const char* text;
  };
  const Case cases[] = {
      {Alltoall(4, {-1, 5}), "rank 1 has splits [-1, 5], which must not be"},
      {Alltoall(4, {1, 2}), "rank 1 has splits [1, 2], which must add up to "},
      {Alltoall(4, {4}), "rank 1 has splits [4], but there must be one for "},
      {Alltoall(4, {INT64_MAX, INT64_MAX}), "must add up to its 4 rows"},
      {Alltoall(5, {}), "rank 1 brings 5 rows, which cannot be divided evenly"},
  };
  for (const Case& c : cases) {
    const Status status =
        Agree({VariantOf(Alltoall(2, {1, 1}), {0}), VariantOf(c.request, {1})},
              2)
            .status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("alltoall 'w'"), HasSubstr(c.text)));
  }
}

TEST(RequestWire, SplitsRoundTrip) {
  for (const Request& request :
       {Alltoall(4, {}), Alltoall(4, {-1, 5, int64_t{1} << 50})}) {
    WireWriter writer;
    request.Encode(writer);
    WireReader reader(writer.bytes());
    EXPECT_EQ(Request::Decode(reader), request);
    EXPECT_TRUE(reader.Finished());
  }
}

TEST(RequestWire, AnAlltoallHasOneTensor) {
  Request request = Alltoall(4, {});
  request.tensors.push_back(request.tensors[0]);
  WireWriter writer;
  request.Encode(writer);
  WireReader reader(writer.bytes());
  Request::Decode(reader);
  EXPECT_FALSE(reader.ok());
}

TEST(RequestWire, RoundTrip) {
  Request request = Allreduce({3, 0, int64_t{1} << 40});
  request.kind = RequestKind::kBroadcast;
  request.op = ReduceOp::kProduct;
  request.prescale = 0.1;
  request.postscale = -3;
  request.compression = Compression::kBfloat16;
  request.root = -1;
  request.device = DeviceKind::kCuda;
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

// The requests differ in one byte, which may have so many values and no others.
template <typename ValueOf>
void ExpectAByteOf(int num_values, const Request& a, const Request& b,
                   ValueOf value_of) {
  EXPECT_FALSE(a == b);
  WireWriter one, other;
  a.Encode(one);
  b.Encode(other);
  std::string bytes(other.bytes());
  size_t at = 0;
  while (one.bytes()[at] == bytes[at]) ++at;
  for (int value = 0; value < 256; ++value) {
    bytes[at] = static_cast<char>(value);
    WireReader reader(bytes);
    const Request decoded = Request::Decode(reader);
    EXPECT_EQ(reader.Finished(), value < num_values) << value;
    if (reader.ok()) {
      EXPECT_EQ(static_cast<int>(value_of(decoded)), value);
    }
  }
}

TEST(RequestWire, CompressionCounts) {
  Request compressed = Allreduce({3});
  compressed.compression = Compression::kFloat16;
  ExpectAByteOf(kNumCompressions, Allreduce({3}), compressed,
                [](const Request& request) { return request.compression; });
}

TEST(RequestWire, TheDeviceCounts) {
  Request elsewhere = Allreduce({3});
  elsewhere.device = DeviceKind::kCuda;
  ExpectAByteOf(kNumDeviceKinds, Allreduce({3}), elsewhere,
                [](const Request& request) { return request.device; });
}

TEST(Agree, CompressionIsNamedAsPythonSpellsIt) {
  Request compressed = Allreduce({2});
  compressed.compression = Compression::kFloat16;
  EXPECT_EQ(
      Agree({VariantOf(compressed, {0, 1}), VariantOf(Allreduce({2}), {2})}, 3)
          .status()
          .message(),
      "allreduce 'w': the ranks disagree on the compression: ranks 0-1 "
      "have fp16; rank 2 has none. Every rank must pass the same under "
      "one name.");
}

TEST(RequestWire, RefusesAProductThatOverflows) {
  WireWriter writer;
  Allreduce({int64_t{1} << 40, int64_t{1} << 40}).Encode(writer);
  WireReader reader(writer.bytes());
  Request::Decode(reader);
  EXPECT_FALSE(reader.ok());
}

TEST(RequestWire, RefusesTensorsThatTogetherOverflow) {
  for (int count : {1, 2}) {
    Request request;
    request.name = "g";
    for (int i = 0; i < count; ++i) {
      request.tensors.push_back({DType::kFloat32, {kMaxElements}});
    }
    WireWriter writer;
    request.Encode(writer);
    WireReader reader(writer.bytes());
    (void)Request::Decode(reader);
    EXPECT_EQ(reader.ok(), count == 1);
  }
}

// No rows here: but others may bring some, of that many columns.
TEST(RequestWire, RefusesRowsThatOverflow) {
  for (RequestKind kind :
       {RequestKind::kAllgather, RequestKind::kReducescatter}) {
    Request request;
    request.name = "g";
    request.kind = kind;
    request.tensors = {{DType::kFloat32, {0, int64_t{1} << 40, 1 << 30}}};
    WireWriter writer;
    request.Encode(writer);
    WireReader reader(writer.bytes());
    (void)Request::Decode(reader);
    EXPECT_FALSE(reader.ok());
  }
}

TEST(Agree, RefusesRowsThatTogetherOverflow) {
  Result<Response> agreed =
      Agree(Allgathers({{kMaxElements}, {kMaxElements - 1}}), 2);
  EXPECT_EQ(agreed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(agreed.status().message().find("than can be counted"),
            std::string::npos);
}

// Rows are counted, however many there are, while the 0 behind them makes them
// nothing.
TEST(Agree, ManyRowsOfNothing) {
  constexpr int64_t kMany = kMaxElements / 2;
  std::vector<RequestVariant> variants =
      Allgathers({{kMany, 119, 0}, {kMany - 1, 119, 0}});
  Result<Response> agreed = Agree(variants, 2);
  ASSERT_TRUE(agreed.ok()) << agreed.status().ToString();
  EXPECT_EQ(agreed->RequestOf(1).num_bytes(), 0);
  variants[0].rows[0] = kMaxElements;
  EXPECT_EQ(Agree(variants, 2).status().code(), StatusCode::kInvalidArgument);
}

TEST(Response, KnowsWhatARankHasAskedFor) {
  Request request;
  request.name = "t";
  request.kind = RequestKind::kAlltoall;
  request.prescale = std::nan("");
  std::vector<RequestVariant> variants;
  std::vector<Request> requests;
  for (int rank = 0; rank < 2; ++rank) {
    request.tensors = {{DType::kFloat32, {rank + 1, 5}}};
    request.splits = {rank, 1};
    requests.push_back(request);
    AddVariant(variants, VariantOf(request, {rank}));
  }
  // They differ only in what may differ.
  EXPECT_EQ(variants.size(), 1u);
  Result<Response> agreed = Agree(variants, 2);
  ASSERT_TRUE(agreed.ok()) << agreed.status().ToString();
  for (int rank = 0; rank < 2; ++rank) {
    const Request own = requests[rank];
    EXPECT_TRUE(agreed->IsOf(own, rank));
    EXPECT_FALSE(agreed->IsOf(own, 1 - rank));
    EXPECT_TRUE(agreed->RequestOf(rank) == own);
    for (int change = 0; change < 6; ++change) {
      Request other = own;
      if (change == 0) other.name = "u";
      if (change == 1) other.kind = RequestKind::kAllgather;
      if (change == 2) other.tensors[0].shape[1] = 6;
      if (change == 3) other.tensors[0].shape.pop_back();
      if (change == 4) other.tensors.push_back(other.tensors[0]);
      if (change == 5) other.splits[0] += 1;
      EXPECT_FALSE(agreed->IsOf(other, rank)) << change;
    }
  }
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
