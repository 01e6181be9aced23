// The calls of a compiled program, for TensorFlow's XLA and for JAX: their
// handlers are compiled against XLA's interface for calls (xla/ffi/api) of
// either, and registered by its adapter.
#ifndef KERAS_RING_XLA_OPS_CALLS_H_
#define KERAS_RING_XLA_OPS_CALLS_H_

#include "xla/ffi/api/c_api.h"
#include "xla_ops/ticket.h"

namespace keras_ring {

// Arguments: the tensors. Result: the number of a ticket, i32. Attributes: the
// number of a process set, and those of a KrRequestSpec.
inline constexpr char kXlaStart[] = "keras_ring_start";
inline constexpr char kNameAttr[] = "name";
inline constexpr char kSetAttr[] = "process_set";      // i64
inline constexpr char kKindAttr[] = "kind";            // i32
inline constexpr char kReduceOpAttr[] = "reduce_op";   // i32
inline constexpr char kRootAttr[] = "root";            // i32
inline constexpr char kPrescaleAttr[] = "prescale";    // i64, a double's bits
inline constexpr char kPostscaleAttr[] = "postscale";  // i64, a double's bits
inline constexpr char kCompressionAttr[] = "compression";  // i32

// Arguments: `own` numbers of tickets to wait for, then those of everything
// that must have been started before. Results: the tickets' tensors.
inline constexpr char kXlaDone[] = "keras_ring_done";
inline constexpr char kOwnAttr[] = "own";  // i64

// Where tickets have their tensors. Defined by each adapter.
const TicketMemory& MemoryOfTickets();

}  // namespace keras_ring

// The handlers of these calls. JAX takes them from the library.
extern "C" {
__attribute__((visibility("default"))) XLA_FFI_Error* KerasRingXlaStart(
    XLA_FFI_CallFrame* frame);
__attribute__((visibility("default"))) XLA_FFI_Error* KerasRingXlaDone(
    XLA_FFI_CallFrame* frame);
}

#endif  // KERAS_RING_XLA_OPS_CALLS_H_
