#include "tf_ops/tf_adapters.h"

#include "csrc/base/dtype_table.h"
#include "tensorflow/core/framework/types.h"

namespace keras_ring {

namespace {

// Indexed by the number of the type.
#define KR_ROW(dtype, name, size, kind, tf, xla) tensorflow::DT_##tf,
constexpr tensorflow::DataType kTfTypes[] = {KR_FOR_EACH_DTYPE(KR_ROW)};
#undef KR_ROW

}  // namespace

absl::Status ToAbsl(const KrStatus* status) {
  if (status == nullptr) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(KrStatusCode(status)),
                      KrStatusMessage(status));
}

absl::Status TakeStatus(KrStatus* status) {
  if (status == nullptr) return absl::OkStatus();
  absl::Status taken = ToAbsl(status);
  KrStatusFree(status);
  return taken;
}

KrStatus* ToKr(const absl::Status& status) {
  return KrStatusCreate(static_cast<int32_t>(status.code()),
                        std::string(status.message()).c_str());
}

absl::StatusOr<int32_t> DTypeFromTf(tensorflow::DataType dtype) {
  int32_t number = 0;
  for (tensorflow::DataType each : kTfTypes) {
    if (each == dtype) return number;
    ++number;
  }
  return absl::InvalidArgumentError("no collective carries tensors of " +
                                    tensorflow::DataTypeString(dtype));
}

std::string TfTypes(bool reducible) {
  const KrDType* rows;
  KrDTypes(&rows);
  std::string list;
  for (tensorflow::DataType each : kTfTypes) {
    const bool listed = !reducible || rows->reducible;
    ++rows;
    if (!listed) continue;
    list += (list.empty() ? "{" : ", ") + tensorflow::DataTypeString(each);
  }
  return list + "}";
}

}  // namespace keras_ring
