#include "csrc/capi/handles.h"

using ::keras_ring::Status;
using ::keras_ring::StatusCode;

int32_t KrStatusCode(const KrStatus* status) {
  return status == nullptr ? 0 : static_cast<int32_t>(status->status.code());
}

const char* KrStatusCodeName(const KrStatus* status) {
  return StatusCodeName(status == nullptr ? StatusCode::kOk
                                          : status->status.code());
}

const char* KrStatusMessage(const KrStatus* status) {
  return status == nullptr ? "" : status->status.message().c_str();
}

KrStatus* KrStatusCreate(int32_t code, const char* message) {
  const bool is_number = code > 0 && code <= UINT8_MAX;
  return new KrStatus{
      Status(is_number ? keras_ring::StatusCodeOf(static_cast<uint8_t>(code))
                       : StatusCode::kInternal,
             message)};
}

void KrStatusFree(KrStatus* status) { delete status; }
