#include "csrc/control/fusion_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace keras_ring {
namespace {

using ::testing::ElementsAre;

Request Of(RequestKind kind, DType dtype, int64_t count) {
  Request request;
  request.kind = kind;
  request.tensors = {TensorSpec{dtype, {count}}};
  return request;
}

std::vector<size_t> Bucket(const std::vector<Request>& requests,
                           int64_t threshold) {
  std::vector<const Request*> pointers;
  for (const Request& request : requests) pointers.push_back(&request);
  return NextBucket(pointers, threshold);
}

constexpr RequestKind kReduce = RequestKind::kAllreduce;

TEST(FusionPlan, LooksPastWhatDoesNotMatchOrFit) {
  EXPECT_THAT(Bucket({Of(kReduce, DType::kFloat32, 10),
                      Of(kReduce, DType::kFloat64, 10),
                      Of(kReduce, DType::kFloat32, 100),
                      Of(RequestKind::kBroadcast, DType::kFloat32, 1),
                      Of(kReduce, DType::kFloat32, 10)},
                     100),
              ElementsAre(0, 4));
}

TEST(FusionPlan, ALargeOneGoesAlone) {
  EXPECT_THAT(Bucket({Of(kReduce, DType::kFloat32, 1000),
                      Of(kReduce, DType::kFloat32, 1)},
                     100),
              ElementsAre(0));
  EXPECT_THAT(
      Bucket({Of(kReduce, DType::kFloat32, 0), Of(kReduce, DType::kFloat32, 0)},
             0),
      ElementsAre(0));
}

TEST(FusionPlan, OpsAndScalesKeepApart) {
  Request maximum = Of(kReduce, DType::kFloat32, 1);
  maximum.op = ReduceOp::kMax;
  Request scaled = Of(kReduce, DType::kFloat32, 1);
  scaled.prescale = 0.5;
  Request compressed = Of(kReduce, DType::kFloat32, 1);
  compressed.compression = Compression::kFloat16;
  EXPECT_THAT(
      Bucket({Of(kReduce, DType::kFloat32, 1), maximum, scaled, compressed},
             100),
      ElementsAre(0));
  EXPECT_THAT(Bucket({compressed, maximum, compressed}, 100),
              ElementsAre(0, 2));
}

TEST(FusionPlan, DevicesKeepApart) {
  for (const RequestKind kind : {kReduce, RequestKind::kBroadcast}) {
    Request elsewhere = Of(kind, DType::kFloat32, 1);
    elsewhere.device = DeviceKind::kCuda;
    EXPECT_THAT(
        Bucket({elsewhere, Of(kind, DType::kFloat32, 1), elsewhere}, 100),
        ElementsAre(0, 2));
  }
}

TEST(FusionPlan, BroadcastsOfOneRootShareWhateverTheirDType) {
  Request other_root = Of(RequestKind::kBroadcast, DType::kInt8, 1);
  other_root.root = 1;
  EXPECT_THAT(Bucket({Of(RequestKind::kBroadcast, DType::kInt8, 1), other_root,
                      Of(RequestKind::kBroadcast, DType::kBool, 1)},
                     100),
              ElementsAre(0, 2));
}

TEST(FusionPlan, GathersAndMixedGroupsRunAlone) {
  for (RequestKind kind : {RequestKind::kAllgather, RequestKind::kAlltoall,
                           RequestKind::kReducescatter}) {
    const Request request = Of(kind, DType::kFloat32, 1);
    EXPECT_THAT(Bucket({request, request}, 100), ElementsAre(0));
  }
  Request mixed = Of(kReduce, DType::kFloat32, 1);
  mixed.tensors.push_back(TensorSpec{DType::kInt32, {1}});
  EXPECT_THAT(Bucket({mixed, mixed}, 100), ElementsAre(0));
}

// Buckets taken one after the other hold every request once, and only a
// request alone is above the threshold.
TEST(FusionPlan, PartitionsAnything) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<Request> requests;
    for (int i = 0, n = 1 + random() % 30; i < n; ++i) {
      requests.push_back(
          Of(static_cast<RequestKind>(random() % kNumRequestKinds),
             random() % 2 ? DType::kFloat32 : DType::kInt8, random() % 60));
    }
    std::vector<const Request*> left;
    for (const Request& request : requests) left.push_back(&request);
    size_t taken = 0;
    while (!left.empty()) {
      std::vector<size_t> bucket = NextBucket(left, 100);
      ASSERT_FALSE(bucket.empty());
      ASSERT_EQ(bucket.front(), 0u);
      int64_t bytes = 0;
      for (size_t index : bucket) bytes += left[index]->num_bytes();
      ASSERT_TRUE(bucket.size() == 1 || bytes <= 100);
      taken += bucket.size();
      for (auto it = bucket.rbegin(); it != bucket.rend(); ++it) {
        left.erase(left.begin() + *it);
      }
    }
    ASSERT_EQ(taken, requests.size());
  }
}

}  // namespace
}  // namespace keras_ring
