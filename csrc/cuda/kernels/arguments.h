// The arguments of the kernels, for the device and for the host.
//
// No include, for NVRTC compiles it as well and has no header of its own.
#ifndef KERAS_RING_CUDA_KERNELS_ARGUMENTS_H_
#define KERAS_RING_CUDA_KERNELS_ARGUMENTS_H_

namespace keras_ring::cuda {

// The most ranks that one kernel reads from.
constexpr int kMaxPeers = 16;

// A block of threads does one tile at a time.
constexpr int kThreads = 256;
constexpr int kVectorBytes = 16;    // that a thread loads at once
constexpr int kVectorsPerTile = 4;  // of each thread
constexpr long long kTileBytes =
    static_cast<long long>(kThreads) * kVectorsPerTile * kVectorBytes;

// The operations, as in ReduceOp; an average is a sum with a divisor.
constexpr int kFoldSum = 1;
constexpr int kFoldMin = 2;
constexpr int kFoldMax = 3;
constexpr int kFoldProduct = 4;

// One array that the ranks reduce.
struct FoldRow {
  const void* inputs[kMaxPeers];
  void* outputs[kMaxPeers];  // which all get the result
  long long count;           // elements
  // The number of tiles of the rows before it; a tile has kTileBytes of
  // elements, the last of a row perhaps fewer.
  long long first_tile;
  int aligned;  // whether all of them are aligned to kVectorBytes
};

// outputs[...][i] = inputs[0][i] op inputs[1][i] op ..., in this order. Scaled
// and rounded as csrc/collective/kernels/pack.h says, so with the same bits.
struct FoldArguments {
  const FoldRow* rows;  // null: `only` is the only one
  FoldRow only;
  int num_rows;
  int num_inputs;
  int num_outputs;
  int op;
  long long num_tiles;  // of all rows
  double prescale;
  double postscale;
  long long divisor;
};

struct CopyRow {
  const void* from;
  void* to;
  long long bytes;
  long long first_tile;
  int aligned;
};

struct CopyArguments {
  const CopyRow* rows;  // null: `only` is the only one
  CopyRow only;
  int num_rows;
  long long num_tiles;
};

}  // namespace keras_ring::cuda

#endif  // KERAS_RING_CUDA_KERNELS_ARGUMENTS_H_
