// Request: what a rank says of a tensor it is ready to communicate.
#ifndef KERAS_RING_CONTROL_REQUEST_H_
#define KERAS_RING_CONTROL_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/compression.h"
#include "csrc/base/device.h"
#include "csrc/base/dtype.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/reduce_op.h"
#include "csrc/base/status.h"
#include "csrc/base/wire.h"
#include "csrc/control/joined_ranks.h"

namespace keras_ring {

// The values travel on the wire: append, never renumber.
enum class RequestKind : uint8_t {
  kAllreduce = 0,
  kAllgather,
  kBroadcast,
  kBarrier,
  kReducescatter,
  kAlltoall,
  // Has no name that others would match, and travels as a message of its own.
  kJoin,
};
inline constexpr int kNumRequestKinds = 7;
// "allreduce", ...
const char* RequestKindName(RequestKind kind);
// Whether the operation sums, or takes extrema or products.
inline bool IsReduction(RequestKind kind) {
  return kind == RequestKind::kAllreduce || kind == RequestKind::kReducescatter;
}
// Whether each rank may bring a first dimension of its own.
inline bool TakesAnyRows(RequestKind kind) {
  return kind == RequestKind::kAllgather || kind == RequestKind::kAlltoall;
}

struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * DTypeSize(dtype); }
};
inline bool operator==(const TensorSpec& a, const TensorSpec& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

// Ranks match by name. Everything else must agree, except the first dimension
// of an allgather and of an alltoall, and the splits of the latter.
//
// A grouped operation is one request with several tensors: its members are
// agreed on, executed and finished together because there is nothing smaller
// to agree on.
struct Request {
  std::string name;
  RequestKind kind = RequestKind::kAllreduce;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  Compression compression = Compression::kNone;
  int32_t root = 0;  // in the job, also where the others are of a set
  DeviceKind device = DeviceKind::kHost;  // where the tensors are
  // Alltoall: how many rows go to each rank. Empty: as many to each. Anything
  // may be in here until the ranks have agreed; a rank that found fault with it
  // by itself would leave the others waiting.
  std::vector<int64_t> splits;
  std::vector<TensorSpec> tensors;

  int64_t num_bytes() const;
  // "allreduce 'dense/kernel'", as messages call it.
  std::string Label() const;

  void Encode(WireWriter& writer) const;
  // Fails the reader on malformed input.
  static Request Decode(WireReader& reader);
};
bool operator==(const Request& a, const Request& b);

// An operation that runs in every step has one request, made once.
using RequestPtr = std::shared_ptr<const Request>;

// Limits that readers of the wire enforce.
inline constexpr size_t kMaxNameBytes = 4096;
inline constexpr size_t kMaxTensorRank = 254;
// Elements of one request: its bytes can be counted in 64 bits.
inline constexpr int64_t kMaxElements = INT64_MAX / 16;

// kInvalidArgument if no collective can have this name.
Status CheckName(const std::string& name);

// A request as some of the ranks made it. What may differ from rank to rank is
// kept apart, so ranks that differ in nothing else are one variant: they are
// compared, and travel, as one however many they are.
struct RequestVariant {
  // First dimensions of an allgather and an alltoall are 0, splits are empty.
  Request request;
  std::vector<int32_t> ranks;  // ascending, not empty
  // These dimensions: rank after rank of `ranks`, and of one tensor by tensor.
  std::vector<int64_t> rows;
  // Alltoall: of each of `ranks`.
  std::vector<std::vector<int64_t>> splits;
};

// `request` as all these ranks made it.
RequestVariant VariantOf(Request request, std::vector<int32_t> ranks);
// Adds what other ranks made to the variants of one name.
void AddVariant(std::vector<RequestVariant>& variants, RequestVariant variant);
// Whether the parts of one that was read fit together.
bool IsWhole(const RequestVariant& variant);

// The request that all ranks agreed on, without what may differ from
// rank to rank (first dimensions are set to 0, splits are empty), and that.
struct Response {
  Request request;
  // Allgather, alltoall: the rows that each rank brings, tensor by tensor, and
  // within one by rank.
  std::vector<int64_t> rows;
  // Alltoall: by rank, as in its request.
  std::vector<std::vector<int64_t>> splits;

  // The request as `rank` made it.
  Request RequestOf(int rank) const;
  // As these ranks did.
  RequestVariant VariantOf(const std::vector<int32_t>& ranks) const;
  // Whether that is `own`.
  bool IsOf(const Request& own, int rank) const;
  // The rows of tensor number `tensor`, by rank.
  std::vector<int64_t> RowsOf(size_t tensor) const;
  // Alltoall: the rows that go from one rank to another.
  int64_t RowsBetween(int from, int to) const {
    return splits[from].empty()
               ? rows[from] / static_cast<int64_t>(splits.size())
               : splits[from][to];
  }

  // Whether one of these ranks brings something of its own.
  bool DependsOn(const JoinedRanks& ranks) const;
  // As if these ranks brought nothing.
  Response Without(const JoinedRanks& ranks) const;
};

// Decides over the variants of one name, which together come from all ranks
// that have not joined; the others bring nothing.
// Where they cannot be executed, the error is kFailedPrecondition (the ranks
// disagree) or kInvalidArgument (they agree on something impossible), and
// names the tensor, the ranks and the values. `ranks`: those of `size`.
Result<Response> Agree(const std::vector<RequestVariant>& variants, int size,
                       const RankSet& ranks = {});

// The error of what cannot be executed because these ranks have joined: it
// needs what they would bring, or they would get what nobody takes.
// `ranks`: those of `joined`.
Status CheckJoined(const Response& agreed, const JoinedRanks& joined,
                   const RankSet& ranks = {});

// Whether all ranks together bring at most kMaxElements.
bool FitsTogether(const Response& agreed);

// Reducescatter: the rows of the result on `rank`. Those that cannot be divided
// go to the first ranks.
inline int64_t ScatteredRows(int64_t rows, int rank, int size) {
  return rows / size + (rank < rows % size ? 1 : 0);
}

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_REQUEST_H_
