// Request: what a rank says of a tensor it is ready to communicate.
#ifndef KERAS_RING_CONTROL_REQUEST_H_
#define KERAS_RING_CONTROL_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/base/status.h"
#include "csrc/base/wire.h"

namespace keras_ring {

// The values travel on the wire: append, never renumber.
enum class RequestKind : uint8_t {
  kAllreduce = 0,
  kAllgather,
  kBroadcast,
  kBarrier,
};
inline constexpr int kNumRequestKinds = 4;
// "allreduce", ...
const char* RequestKindName(RequestKind kind);

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
// of an allgather.
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
  int32_t root = 0;
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

// kInvalidArgument if no collective can have this name.
Status CheckName(const std::string& name);

// A request as some of the ranks made it.
struct Variant {
  Request request;
  std::vector<int32_t> ranks;  // ascending, not empty
};

// What all ranks agreed on: the request (of an allgather: with the first
// dimension set to 0) and, for an allgather, the rows that each rank brings.
struct Agreed {
  Request request;
  std::vector<int64_t> rows;

  // The request as `rank` made it.
  Request RequestOf(int rank) const;
};

// Decides over the variants of one name, which together come from all ranks.
// Where they cannot be executed, the error is kFailedPrecondition (the ranks
// disagree) or kInvalidArgument (they agree on something impossible), and
// names the tensor, the ranks and the values.
Result<Agreed> Agree(const std::vector<Variant>& variants, int size);

// {0, 1, 2, 5} as "0-2, 5".
std::string RankList(const std::vector<int32_t>& ranks);
// "rank 5", "ranks 0-2, 5".
std::string RanksText(const std::vector<int32_t>& ranks);

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_REQUEST_H_
