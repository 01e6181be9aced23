// The table of element types: whatever else is made from it, here and in the
// adapters. A new type is a row at the end. If it is to be reduced, it needs
// kernels as well (collective/kernels/kernels_inl.h); what is only moved does
// not.
#ifndef KERAS_RING_BASE_DTYPE_TABLE_H_
#define KERAS_RING_BASE_DTYPE_TABLE_H_

// ROW(DType, NumPy's name, bytes, kind, TensorFlow's DT_..., XLA's)
//
// The position is the number on the wire: append, never reorder.
#define KR_FOR_EACH_DTYPE(ROW)                                \
  ROW(kUint8, "uint8", 1, kInteger, UINT8, U8)                \
  ROW(kInt8, "int8", 1, kInteger, INT8, S8)                   \
  ROW(kUint16, "uint16", 2, kInteger, UINT16, U16)            \
  ROW(kInt16, "int16", 2, kInteger, INT16, S16)               \
  ROW(kInt32, "int32", 4, kInteger, INT32, S32)               \
  ROW(kInt64, "int64", 8, kInteger, INT64, S64)               \
  ROW(kFloat16, "float16", 2, kFloating, HALF, F16)           \
  ROW(kBfloat16, "bfloat16", 2, kFloating, BFLOAT16, BF16)    \
  ROW(kFloat32, "float32", 4, kFloating, FLOAT, F32)          \
  ROW(kFloat64, "float64", 8, kFloating, DOUBLE, F64)         \
  ROW(kBool, "bool", 1, kMovedOnly, BOOL, PRED)               \
  ROW(kComplex64, "complex64", 8, kMovedOnly, COMPLEX64, C64) \
  ROW(kComplex128, "complex128", 16, kMovedOnly, COMPLEX128, C128)

#endif  // KERAS_RING_BASE_DTYPE_TABLE_H_
