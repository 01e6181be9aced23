#include "csrc/base/dtype.h"

namespace keras_ring {
namespace {

enum class Kind { kFloating, kInteger, kOther };

struct DTypeTraits {
  const char* name;
  size_t size;
  Kind kind;
};

// In the order of DType.
constexpr DTypeTraits kTraits[] = {
    {"uint8", 1, Kind::kInteger},     {"int8", 1, Kind::kInteger},
    {"uint16", 2, Kind::kInteger},    {"int16", 2, Kind::kInteger},
    {"int32", 4, Kind::kInteger},     {"int64", 8, Kind::kInteger},
    {"float16", 2, Kind::kFloating},  {"bfloat16", 2, Kind::kFloating},
    {"float32", 4, Kind::kFloating},  {"float64", 8, Kind::kFloating},
    {"bool", 1, Kind::kOther},        {"complex64", 8, Kind::kOther},
    {"complex128", 16, Kind::kOther},
};
static_assert(sizeof(kTraits) / sizeof(kTraits[0]) == kNumDTypes,
              "every DType has one row");

const DTypeTraits& Traits(DType dtype) {
  return kTraits[static_cast<int>(dtype)];
}

}  // namespace

size_t DTypeSize(DType dtype) { return Traits(dtype).size; }
const char* DTypeName(DType dtype) { return Traits(dtype).name; }
bool IsFloating(DType dtype) { return Traits(dtype).kind == Kind::kFloating; }
bool IsInteger(DType dtype) { return Traits(dtype).kind == Kind::kInteger; }

}  // namespace keras_ring
