// Nccl: the functions of NVIDIA's NCCL that are used, found at run time.
//
// As with the driver, nothing is needed to build and nothing is linked. A
// process has one NCCL: one that the program has loaded, as PyTorch does, is
// taken, and a second one is never loaded beside it.
#ifndef KERAS_RING_CUDA_NCCL_H_
#define KERAS_RING_CUDA_NCCL_H_

#include <cstddef>
#include <string>

#include "csrc/base/status.h"
#include "csrc/cuda/driver.h"

namespace keras_ring::cuda {

using NcclCode = int;  // ncclResult_t
using NcclComm = struct ncclComm*;

inline constexpr NcclCode kNcclSuccess = 0;
inline constexpr NcclCode kNcclInvalidUsage = 5;
inline constexpr NcclCode kNcclRemoteError = 6;
inline constexpr NcclCode kNcclInProgress = 7;

// ncclDataType_t and ncclRedOp_t.
inline constexpr int kNcclInt8 = 0;
inline constexpr int kNcclUint8 = 1;
inline constexpr int kNcclInt32 = 2;
inline constexpr int kNcclInt64 = 4;
inline constexpr int kNcclFloat16 = 6;
inline constexpr int kNcclFloat32 = 7;
inline constexpr int kNcclFloat64 = 8;
inline constexpr int kNcclBfloat16 = 9;
inline constexpr int kNcclSum = 0;
inline constexpr int kNcclProduct = 1;
inline constexpr int kNcclMax = 2;
inline constexpr int kNcclMin = 3;

struct NcclUniqueId {
  char bytes[128];
};

// ncclConfig_t as it was in NCCL 2.14: later ones take their defaults for what
// was added.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

// clang-format off
// X(name, parameters) of what returns a code.
#define KR_NCCL_FUNCTIONS(X)                                                   \
  X(ncclGetVersion, (int* version))                                            \
  X(ncclGetUniqueId, (NcclUniqueId* id))                                       \
  X(ncclCommInitRankConfig,                                                    \
    (NcclComm* comm, int size, NcclUniqueId id, int rank, NcclConfig* config)) \
  X(ncclCommFinalize, (NcclComm comm))                                         \
  X(ncclCommDestroy, (NcclComm comm))                                          \
  X(ncclCommAbort, (NcclComm comm))                                            \
  X(ncclCommGetAsyncError, (NcclComm comm, NcclCode* error))                   \
  X(ncclGroupStart, ())                                                        \
  X(ncclGroupEnd, ())                                                          \
  X(ncclAllReduce, (const void* input, void* output, size_t count, int dtype,  \
                    int op, NcclComm comm, Stream stream))                     \
  X(ncclReduce, (const void* input, void* output, size_t count, int dtype,     \
                 int op, int root, NcclComm comm, Stream stream))              \
  X(ncclBroadcast, (const void* input, void* output, size_t count, int dtype,  \
                    int root, NcclComm comm, Stream stream))                   \
  X(ncclSend, (const void* input, size_t count, int dtype, int peer,           \
               NcclComm comm, Stream stream))                                  \
  X(ncclRecv, (void* output, size_t count, int dtype, int peer,                \
               NcclComm comm, Stream stream))
// clang-format on

struct Nccl {
#define KR_NCCL_MEMBER(name, parameters) NcclCode(*name) parameters;
  KR_NCCL_FUNCTIONS(KR_NCCL_MEMBER)
#undef KR_NCCL_MEMBER
  const char* (*ncclGetErrorString)(NcclCode code);
  const char* (*ncclGetLastError)(NcclComm comm);
};

inline constexpr char kNcclLibrary[] = "libnccl.so.2";

// The result lives as long as the process. kFailedPrecondition: there is no
// NCCL, or it is too old.
Result<const Nccl*> LoadNccl(const std::string& library = kNcclLibrary);

// Returns an error for every code but that of success: what NCCL says of it.
// `comm`: null if there is none.
Status StatusOf(const Nccl& nccl, NcclCode code, NcclComm comm,
                const char* function);

// "2.28.9".
std::string NcclVersionText(int version);

}  // namespace keras_ring::cuda

#endif  // KERAS_RING_CUDA_NCCL_H_
