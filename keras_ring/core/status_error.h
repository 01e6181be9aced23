// A KrStatus as an exception, which Python sees as _core.StatusError.
#ifndef KERAS_RING_CORE_STATUS_ERROR_H_
#define KERAS_RING_CORE_STATUS_ERROR_H_

#include <string>

#include "csrc/capi/keras_ring.h"

namespace keras_ring {

// Becomes _core.StatusError(code, message) in Python.
struct StatusError {
  std::string code;
  std::string message;
};

// Takes `status`.
inline void ThrowIfError(KrStatus* status) {
  if (status == nullptr) return;
  StatusError error{KrStatusCodeName(status), KrStatusMessage(status)};
  KrStatusFree(status);
  throw error;
}

}  // namespace keras_ring

#endif  // KERAS_RING_CORE_STATUS_ERROR_H_
