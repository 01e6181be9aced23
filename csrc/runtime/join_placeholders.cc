#include "csrc/runtime/join_placeholders.h"

#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>

#include "csrc/base/float16.h"

namespace keras_ring {
namespace {

// For the operations whose result zeros would change. The factors of these are
// applied by others, before and after.
template <typename T>
T NeutralOf(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  if (op == ReduceOp::kProduct) return T{1};
  if constexpr (std::is_floating_point_v<T>) {
    return op == ReduceOp::kMin ? Limits::infinity() : -Limits::infinity();
  } else {
    return op == ReduceOp::kMin ? Limits::max() : Limits::lowest();
  }
}

template <typename T>
void FillWith(T value, void* to, int64_t count) {
  T* values = static_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) values[i] = value;
}

void FillNeutral(ReduceOp op, DType dtype, void* to, int64_t count) {
  if (count == 0) return;
  if (op != ReduceOp::kMin && op != ReduceOp::kMax &&
      op != ReduceOp::kProduct) {
    std::memset(to, 0, count * DTypeSize(dtype));
    return;
  }
  switch (dtype) {
    case DType::kUint8:
      return FillWith(NeutralOf<uint8_t>(op), to, count);
    case DType::kInt8:
      return FillWith(NeutralOf<int8_t>(op), to, count);
    case DType::kUint16:
      return FillWith(NeutralOf<uint16_t>(op), to, count);
    case DType::kInt16:
      return FillWith(NeutralOf<int16_t>(op), to, count);
    case DType::kInt32:
      return FillWith(NeutralOf<int32_t>(op), to, count);
    case DType::kInt64:
      return FillWith(NeutralOf<int64_t>(op), to, count);
    case DType::kFloat16:
      return FillWith(ToFloat16(NeutralOf<float>(op)), to, count);
    case DType::kBfloat16:
      return FillWith(ToBfloat16(NeutralOf<float>(op)), to, count);
    case DType::kFloat32:
      return FillWith(NeutralOf<float>(op), to, count);
    case DType::kFloat64:
      return FillWith(NeutralOf<double>(op), to, count);
    case DType::kBool:
    case DType::kComplex64:
    case DType::kComplex128:
      return;  // are not reduced
  }
}

}  // namespace

JoinPlaceholders::~JoinPlaceholders() {
  for (void* memory : of_device_) device_->Free(memory);
}

Result<void*> JoinPlaceholders::ReserveHost(size_t bytes) {
  return memory_.emplace_back().Reserve(bytes);
}

Result<void*> JoinPlaceholders::Reserve(size_t bytes) {
  if (device_ == nullptr) return ReserveHost(bytes);
  KR_ASSIGN_OR_RETURN(void* const memory, device_->Allocate(bytes));
  of_device_.push_back(memory);
  return memory;
}

Result<void*> JoinPlaceholders::Neutral(const Request& request,
                                        const TensorSpec& spec) {
  KR_ASSIGN_OR_RETURN(void* const memory, Reserve(spec.num_bytes()));
  if (!IsReduction(request.kind)) return memory;
  void* values = memory;
  if (device_ != nullptr) {
    KR_ASSIGN_OR_RETURN(values, ReserveHost(spec.num_bytes()));
  }
  FillNeutral(request.op, spec.dtype, values, spec.num_elements());
  if (device_ != nullptr) {
    KR_RETURN_IF_ERROR(device_->Write(memory, values, spec.num_bytes()));
  }
  return memory;
}

Status JoinPlaceholders::Make(const ExecuteCommand& command, TimePoint decided,
                              DeviceAccess* devices,
                              std::vector<TensorEntry>& entries) {
  const int ordinal = devices == nullptr ? 0 : devices->UsualOrdinal();
  if (devices != nullptr) {
    KR_ASSIGN_OR_RETURN(device_, devices->MemoryOf(ordinal));
  }
  for (const std::shared_ptr<const Response>& item : command.items) {
    const Request& request = item->request;
    TensorEntry entry;
    entry.request = RequestPtr(item, &request);
    entry.device_ordinal = ordinal;
    entry.submitted = decided;
    entry.completion = Completion([](const Status&) {});
    // Where ranks bring rows of their own, this one brings none, and results
    // are allocated as they come.
    const bool in_place = !TakesAnyRows(request.kind);
    for (const TensorSpec& spec : request.tensors) {
      void* memory = nullptr;
      if (in_place) {
        KR_ASSIGN_OR_RETURN(memory, Neutral(request, spec));
        entry.outputs.push_back(memory);
      }
      entry.inputs.push_back(memory);
    }
    entry.allocate = [this, item](int result, int64_t rows) {
      const auto& tensors = item->request.tensors;
      if (result == static_cast<int>(tensors.size())) {
        return ReserveHost(rows * sizeof(int64_t));
      }
      TensorSpec spec = tensors[result];
      spec.shape.front() = rows;
      return Reserve(spec.num_bytes());
    };
    entries.push_back(std::move(entry));
  }
  return OkStatus();
}

}  // namespace keras_ring
