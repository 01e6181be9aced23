#include "csrc/base/dtype.h"

namespace keras_ring {
namespace {

enum class Kind { kFloating, kInteger, kMovedOnly };

struct DTypeTraits {
  const char* name;
  size_t size;
  Kind kind;
};

#define KR_ROW(dtype, name, size, kind, tf, xla) {name, size, Kind::kind},
constexpr DTypeTraits kTraits[] = {KR_FOR_EACH_DTYPE(KR_ROW)};
#undef KR_ROW

const DTypeTraits& Traits(DType dtype) {
  return kTraits[static_cast<int>(dtype)];
}

}  // namespace

size_t DTypeSize(DType dtype) { return Traits(dtype).size; }
const char* DTypeName(DType dtype) { return Traits(dtype).name; }
bool IsFloating(DType dtype) { return Traits(dtype).kind == Kind::kFloating; }
bool IsInteger(DType dtype) { return Traits(dtype).kind == Kind::kInteger; }

}  // namespace keras_ring
