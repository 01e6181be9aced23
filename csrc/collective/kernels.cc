#include "csrc/collective/kernels.h"

#include <algorithm>
#include <cstring>

#include "csrc/collective/reduce.h"
namespace keras_ring {
namespace {
template <int D, int O>
void Fold(const FoldArgs& a) {
  constexpr auto dtype = static_cast<DType>(D);
  constexpr auto op = static_cast<ReduceOp>(O);
  const WireFormat& f = *FindWireFormat(dtype, op);
  const auto reduce = FindReduceKernel(f.dtype, op);
  const size_t e = DTypeSize(dtype);
  alignas(64) char acc[8 * 512], val[8 * 512];
  for (int64_t i = 0; i < a.count; i += 512) {
    const int64_t n = std::min<int64_t>(512, a.count - i);
    f.pack(acc, (const char*)a.sources[0] + i * e, n, a.prescale);
    for (int s = 1; s < a.num_sources; ++s) {
      f.pack(val, (const char*)a.sources[s] + i * e, n, a.prescale);
      reduce(acc, val, n);
    }
    f.finish(acc, n, a.finish);
    f.unpack((char*)a.output + i * e, acc, n);
    if (a.copy)
      std::memcpy((char*)a.copy + i * e, (char*)a.output + i * e, n * e);
  }
}
template <int D>
FoldKernel Of(ReduceOp op) {
  switch ((int)op) {
    case 0:
      return Fold<D, 0>;
    case 1:
      return Fold<D, 1>;
    case 2:
      return Fold<D, 2>;
    case 3:
      return Fold<D, 3>;
    default:
      return Fold<D, 4>;
  }
}
}  // namespace
FoldKernel FindFoldKernel(DType dtype, ReduceOp op) {
  switch ((int)dtype) {
    case 0:
      return Of<0>(op);
    case 1:
      return Of<1>(op);
    case 2:
      return Of<2>(op);
    case 3:
      return Of<3>(op);
    case 4:
      return Of<4>(op);
    case 5:
      return Of<5>(op);
    case 6:
      return Of<6>(op);
    case 7:
      return Of<7>(op);
    case 8:
      return Of<8>(op);
    case 9:
      return Of<9>(op);
  }
  return nullptr;
}
}  // namespace keras_ring
