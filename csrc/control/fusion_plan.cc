#include "csrc/control/fusion_plan.h"

namespace keras_ring {
namespace {

// A group of mixed dtypes runs on its own: it takes one collective per dtype.
bool SameDType(const Request& a, const Request& b) {
  DType dtype = a.tensors.front().dtype;
  for (const Request* request : {&a, &b}) {
    for (const TensorSpec& spec : request->tensors) {
      if (spec.dtype != dtype) return false;
    }
  }
  return true;
}

}  // namespace

bool MayShare(const Request& a, const Request& b) {
  if (a.kind != b.kind || a.device != b.device) return false;
  switch (a.kind) {
    case RequestKind::kAllreduce:
      return a.op == b.op && a.prescale == b.prescale &&
             a.postscale == b.postscale && a.compression == b.compression &&
             SameDType(a, b);
    case RequestKind::kBroadcast:
      return a.root == b.root;  // bytes are bytes
    case RequestKind::kAllgather:
    case RequestKind::kBarrier:
    case RequestKind::kReducescatter:
    case RequestKind::kAlltoall:
    case RequestKind::kJoin:
      return false;
  }
  return false;
}

std::vector<size_t> NextBucket(const std::vector<const Request*>& requests,
                               int64_t threshold) {
  std::vector<size_t> bucket = {0};
  int64_t bytes = requests.front()->num_bytes();
  for (size_t i = 1; i < requests.size() && bytes < threshold; ++i) {
    if (!MayShare(*requests.front(), *requests[i])) continue;
    int64_t more = requests[i]->num_bytes();
    if (more > threshold - bytes) continue;
    bytes += more;
    bucket.push_back(i);
  }
  return bucket;
}

}  // namespace keras_ring
