// Request: a tensor that a rank is ready to communicate, and how.
#ifndef KERAS_RING_CONTROL_REQUEST_H_
#define KERAS_RING_CONTROL_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/compression.h"
#include "csrc/base/dtype.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/reduce_op.h"
#include "csrc/base/status.h"
#include "csrc/base/wire.h"
#include "csrc/control/joined_ranks.h"
#include "csrc/device/device.h"

namespace keras_ring {

// The values travel on the wire: append, never renumber.
enum class RequestKind : uint8_t {
  kAllreduce = 0,
  kAllgather,
  kBroadcast,
  kBarrier,
  kReducescatter,
  kAlltoall,
  // A join has no name that others would match, and is sent as a separate
  // message.
  kJoin,
};
inline constexpr int kNumRequestKinds = 7;
// "allreduce", ...
const char* RequestKindName(RequestKind kind);
// Returns whether the operation computes sums, extrema or products.
inline bool IsReduction(RequestKind kind) {
  return kind == RequestKind::kAllreduce || kind == RequestKind::kReducescatter;
}
// Returns whether the first dimension may differ between ranks.
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
  // a rank of the job, also where the others are of a set
  int32_t root = 0;
  DeviceKind device = DeviceKind::kHost;  // where the tensors are
  // Alltoall: the number of rows for each rank. Empty: equal shares. The values
  // are not validated until the ranks have agreed: a rank that rejected them by
  // itself would leave the others waiting.
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

// An operation that runs in every step has one request, created once.
using RequestPtr = std::shared_ptr<const Request>;

// Limits that readers of the wire enforce.
inline constexpr size_t kMaxNameBytes = 4096;
inline constexpr size_t kMaxTensorRank = 254;
// Elements of one request: its bytes can be counted in 64 bits.
inline constexpr int64_t kMaxElements = INT64_MAX / 16;

// Returns kInvalidArgument if no collective can have this name.
Status CheckName(const std::string& name);

// A request as some of the ranks made it. Properties that may differ from rank
// to rank are stored apart. So ranks that differ in nothing else share one
// variant: they are compared, and sent, as one however many they are.
struct RequestVariant {
  // With first dimensions of an allgather and an alltoall set to 0, and no
  // splits.
  Request request;
  std::vector<int32_t> ranks;  // ascending, not empty
  // These dimensions: one rank of `ranks` after the other, and for each rank
  // tensor by tensor.
  std::vector<int64_t> rows;
  // Alltoall: the splits of each of `ranks`.
  std::vector<std::vector<int64_t>> splits;
};

// Returns `request` as the variant of all these ranks.
RequestVariant VariantOf(Request request, std::vector<int32_t> ranks);
// Adds a variant of other ranks to the variants of one name.
void AddVariant(std::vector<RequestVariant>& variants, RequestVariant variant);
// Returns whether the parts of a variant that was received are consistent.
bool IsWhole(const RequestVariant& variant);

// The request that all ranks agreed on, without the properties that may differ
// from rank to rank (first dimensions are set to 0, splits are empty), and
// these properties.
struct Response {
  Request request;
  // Allgather, alltoall: the rows of each rank, tensor by tensor, and for each
  // tensor by rank.
  std::vector<int64_t> rows;
  // Alltoall: the splits of each rank, as in its request.
  std::vector<std::vector<int64_t>> splits;

  // Returns the request as `rank` made it.
  Request RequestOf(int rank) const;
  // Returns the variant of these ranks.
  RequestVariant VariantOf(const std::vector<int32_t>& ranks) const;
  // Returns whether `own` is the request that `rank` made.
  bool IsOf(const Request& own, int rank) const;
  // Returns the rows of tensor number `tensor`, by rank.
  std::vector<int64_t> RowsOf(size_t tensor) const;
  // Alltoall: returns the rows that go from one rank to another.
  int64_t RowsBetween(int from, int to) const {
    return splits[from].empty()
               ? rows[from] / static_cast<int64_t>(splits.size())
               : splits[from][to];
  }

  // Returns whether one of these ranks contributes data that the result needs.
  bool DependsOn(const JoinedRanks& ranks) const;
  // Returns the response as if these ranks contributed nothing.
  Response Without(const JoinedRanks& ranks) const;
};

// Decides on the variants of one name, which together cover all ranks that have
// not joined; the others contribute nothing. If they cannot be executed, the
// error is kFailedPrecondition (the ranks disagree) or kInvalidArgument (they
// agree on something impossible), and names the tensor, the ranks and the
// values. `ranks`: the set that the `size` ranks are counted in.
Result<Response> Agree(const std::vector<RequestVariant>& variants, int size,
                       const RankSet& ranks = {});

// Returns an error if `agreed` cannot be executed because these ranks have
// joined: it needs their data, or it would send them data that they do not
// take. `ranks`: the set that `joined` is counted in.
Status CheckJoined(const Response& agreed, const JoinedRanks& joined,
                   const RankSet& ranks = {});

// Returns whether all ranks together contribute at most kMaxElements.
bool FitsTogether(const Response& agreed);

// Reducescatter: returns the rows of the result on `rank`. The remainder of the
// division goes to the first ranks.
inline int64_t ScatteredRows(int64_t rows, int rank, int size) {
  return rows / size + (rank < rows % size ? 1 : 0);
}

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_REQUEST_H_
