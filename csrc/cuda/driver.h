// Driver: the functions of NVIDIA's driver that are used, found at run time.
//
// Nothing of NVIDIA's is needed to build: the declarations here are our own,
// and `make check-ptx` compares them with NVIDIA's. Nothing is linked either.
// The library of the driver is opened by its name, and functions are looked up
// in it alone: TensorFlow's libraries export stubs of the same names, which
// only fail.
#ifndef KERAS_RING_CUDA_DRIVER_H_
#define KERAS_RING_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "csrc/base/status.h"

namespace keras_ring::cuda {

// CUresult, CUdevice, CUdeviceptr.
using ErrorCode = int;
using DeviceNumber = int;
using DevicePointer = unsigned long long;
// CUcontext, CUstream, ...
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using EventHandle = struct CUevent_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;

struct IpcMemoryHandle {
  char bytes[64];
};
struct IpcEventHandle {
  char bytes[64];
};
struct Uuid {
  char bytes[16];
};

inline constexpr ErrorCode kSuccess = 0;
inline constexpr ErrorCode kInvalidValue = 1;
inline constexpr ErrorCode kOutOfMemory = 2;
inline constexpr ErrorCode kNotInitialized = 3;
inline constexpr ErrorCode kNoDevice = 100;
inline constexpr ErrorCode kInvalidContext = 201;
inline constexpr ErrorCode kInvalidHandle = 400;
inline constexpr ErrorCode kNotFound = 500;
inline constexpr ErrorCode kNotReady = 600;
inline constexpr ErrorCode kIllegalAddress = 700;
inline constexpr ErrorCode kPeerAccessAlreadyEnabled = 704;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventInterprocess = 4;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr unsigned kHostAllocPortable = 1;

// CUdevice_attribute.
inline constexpr int kMultiprocessorCount = 16;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
// CUpointer_attribute.
inline constexpr int kPointerContext = 1;
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerBufferId = 7;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerIpcCapable = 10;  // legacy IPC
// CUmemorytype.
inline constexpr unsigned kMemoryOfDevice = 2;
// CUjit_option.
inline constexpr int kJitErrorLog = 5;
inline constexpr int kJitErrorLogBytes = 6;

// clang-format off
// X(name in cuda.h, exported symbol, parameters)
#define KR_CUDA_FUNCTIONS(X)                                                   \
  X(cuInit, cuInit, (unsigned flags))                                          \
  X(cuDriverGetVersion, cuDriverGetVersion, (int* version))                    \
  X(cuDeviceGetCount, cuDeviceGetCount, (int* count))                          \
  X(cuDeviceGet, cuDeviceGet, (DeviceNumber* device, int ordinal))             \
  X(cuDeviceGetName, cuDeviceGetName,                                          \
    (char* name, int bytes, DeviceNumber device))                              \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute,                                \
    (int* value, int attribute, DeviceNumber device))                          \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId,                                  \
    (char* id, int bytes, DeviceNumber device))                                \
  X(cuDeviceGetUuid_v2, cuDeviceGetUuid_v2, (Uuid* uuid, DeviceNumber device))       \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2,                                     \
    (size_t* bytes, DeviceNumber device))                                      \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer,                              \
    (int* can, DeviceNumber device, DeviceNumber peer))                        \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain,                        \
    (Context* context, DeviceNumber device))                                   \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2,                   \
    (DeviceNumber device))                                                     \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (Context context))                  \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (Context* context))                   \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange,                  \
    (int* least, int* greatest))                                               \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority,                    \
    (Stream* stream, unsigned flags, int priority))                            \
  X(cuStreamDestroy, cuStreamDestroy_v2, (Stream stream))                      \
  X(cuStreamWaitEvent, cuStreamWaitEvent,                                      \
    (Stream stream, EventHandle event, unsigned flags))                        \
  X(cuStreamSynchronize, cuStreamSynchronize, (Stream stream))                 \
  X(cuStreamGetCtx, cuStreamGetCtx, (Stream stream, Context* context))         \
  X(cuEventCreate, cuEventCreate, (EventHandle* event, unsigned flags))        \
  X(cuEventDestroy, cuEventDestroy_v2, (EventHandle event))                    \
  X(cuEventRecord, cuEventRecord, (EventHandle event, Stream stream))          \
  X(cuEventQuery, cuEventQuery, (EventHandle event))                           \
  X(cuEventSynchronize, cuEventSynchronize, (EventHandle event))               \
  X(cuMemAlloc, cuMemAlloc_v2, (DevicePointer* memory, size_t bytes))          \
  X(cuMemFree, cuMemFree_v2, (DevicePointer memory))                           \
  X(cuMemHostAlloc, cuMemHostAlloc,                                            \
    (void** memory, size_t bytes, unsigned flags))                             \
  X(cuMemFreeHost, cuMemFreeHost, (void* memory))                              \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                   \
    (void* to, DevicePointer from, size_t bytes, Stream stream))               \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                   \
    (DevicePointer to, const void* from, size_t bytes, Stream stream))         \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                   \
    (DevicePointer to, DevicePointer from, size_t bytes, Stream stream))       \
  X(cuMemsetD8Async, cuMemsetD8Async,                                          \
    (DevicePointer to, unsigned char value, size_t bytes, Stream stream))      \
  X(cuPointerGetAttribute, cuPointerGetAttribute,                              \
    (void* value, int attribute, DevicePointer memory))                        \
  X(cuMemGetAddressRange, cuMemGetAddressRange_v2,                             \
    (DevicePointer* base, size_t* bytes, DevicePointer memory))                \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle,                                      \
    (IpcMemoryHandle* handle, DevicePointer memory))                           \
  X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2,                                 \
    (DevicePointer* memory, IpcMemoryHandle handle, unsigned flags))           \
  X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (DevicePointer memory))          \
  X(cuIpcGetEventHandle, cuIpcGetEventHandle,                                  \
    (IpcEventHandle* handle, EventHandle event))                               \
  X(cuIpcOpenEventHandle, cuIpcOpenEventHandle,                                \
    (EventHandle* event, IpcEventHandle handle))                               \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx,                                    \
    (Module* module, const void* image, unsigned num_options, int* options,    \
     void** values))                                                           \
  X(cuModuleUnload, cuModuleUnload, (Module module))                           \
  X(cuModuleGetFunction, cuModuleGetFunction,                                  \
    (Function* function, Module module, const char* name))                     \
  X(cuLaunchKernel, cuLaunchKernel,                                            \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,     \
     unsigned block_x, unsigned block_y, unsigned block_z,                     \
     unsigned shared_bytes, Stream stream, void** parameters, void** extra))   \
  X(cuGetErrorName, cuGetErrorName, (ErrorCode code, const char** name))       \
  X(cuGetErrorString, cuGetErrorString, (ErrorCode code, const char** text))
// clang-format on

// cuEventRecord and so on: thread-safe, as the driver's are.
struct Driver {
#define KR_CUDA_MEMBER(name, symbol, parameters) ErrorCode(*name) parameters;
  KR_CUDA_FUNCTIONS(KR_CUDA_MEMBER)
#undef KR_CUDA_MEMBER
};

inline constexpr char kDriverLibrary[] = "libcuda.so.1";

// Opens `library`, and initializes the driver. The result lives as long as the
// process. kFailedPrecondition: there is no driver, it is too old, or it has no
// device.
Result<const Driver*> LoadDriver(const std::string& library = kDriverLibrary);

// Returns an error for every code but that of success: "cuEventRecord:
// CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was encountered".
Status StatusOf(const Driver& driver, ErrorCode code, const char* function);

// Calls a function of the driver: KR_CUDA(driver, cuEventRecord, event, stream)
// is a Status.
#define KR_CUDA(driver, function, ...)                                   \
  ::keras_ring::cuda::StatusOf((driver), (driver).function(__VA_ARGS__), \
                               #function)

}  // namespace keras_ring::cuda

#endif  // KERAS_RING_CUDA_DRIVER_H_
