// The calls of a compiled program, and the attributes that the lowering must
// set.
#ifndef KERAS_RING_TF_OPS_XLA_CALLS_H_
#define KERAS_RING_TF_OPS_XLA_CALLS_H_

namespace keras_ring {

// Arguments: the tensors. Result: the number of a ticket. Attributes: the
// number of a process set, and those of a Request.
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

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_XLA_CALLS_H_
