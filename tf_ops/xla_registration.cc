// Tells TensorFlow's XLA of the calls of xla_ops, and those of TensorFlow's
// memory.
#include "tensorflow/core/framework/allocator.h"
#include "xla/ffi/api/ffi.h"
#include "xla_ops/calls.h"

namespace xla::ffi {
// Declared in xla/ffi/ffi_api.h, which cannot be included with api/ffi.h.
const XLA_FFI_Api* GetXlaFfiApi();
}  // namespace xla::ffi

namespace keras_ring {

const TicketMemory& MemoryOfTickets() {
  static constexpr TicketMemory kMemory = {
      [](size_t bytes) {
        return tensorflow::cpu_allocator()->AllocateRaw(
            tensorflow::Allocator::kAllocatorAlignment, bytes);
      },
      [](void* memory) { tensorflow::cpu_allocator()->DeallocateRaw(memory); }};
  return kMemory;
}

namespace {

XLA_FFI_REGISTER_HANDLER(xla::ffi::GetXlaFfiApi(), kXlaStart, "Host",
                         KerasRingXlaStart);
XLA_FFI_REGISTER_HANDLER(xla::ffi::GetXlaFfiApi(), kXlaDone, "Host",
                         KerasRingXlaDone);

}  // namespace
}  // namespace keras_ring
