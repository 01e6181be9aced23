// Compares the declarations of csrc/cuda/driver.h with those of NVIDIA's
// cuda.h. `make check-ptx` compiles it; there is nothing to run.
#include "csrc/cuda/driver.h"
// The last, as its macros rename what is declared after it.
#include <cuda.h>

#include <string_view>
#include <type_traits>

namespace keras_ring::cuda {
namespace {

// Whether two types are passed alike: numbers of one size, or pointers.
template <typename A, typename B>
constexpr bool kAlike =
    sizeof(A) == sizeof(B) &&
    (std::is_pointer_v<A> || std::is_class_v<A>) ==
        (std::is_pointer_v<B> ||
         std::is_class_v<B>)&&std::is_class_v<A> == std::is_class_v<B>;

template <typename A, typename B>
constexpr bool kSameCall = false;
template <typename A, typename... As, typename B, typename... Bs>
constexpr bool kSameCall<A (*)(As...), B (*)(Bs...)> = [] {
  if constexpr (sizeof...(As) == sizeof...(Bs)) {
    return kAlike<A, B> && (kAlike<As, Bs> && ...);
  } else {
    return false;
  }
}();

// NVIDIA's names are macros that add a version to some.
#define KR_TEXT(x) #x
#define KR_EXPANDED(x) KR_TEXT(x)
#define KR_COMPARE(name, symbol, parameters)                           \
  static_assert(kSameCall<decltype(&::name), ErrorCode(*) parameters>, \
                #name ": other parameters");                           \
  static_assert(std::string_view(KR_EXPANDED(name)) == #symbol,        \
                #name ": another symbol");
KR_CUDA_FUNCTIONS(KR_COMPARE)

static_assert(kSuccess == CUDA_SUCCESS);
static_assert(kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kPeerAccessAlreadyEnabled ==
              CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kEventInterprocess == CU_EVENT_INTERPROCESS);
static_assert(kIpcLazyEnablePeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kComputeCapabilityMajor ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kComputeCapabilityMinor ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kPointerContext == CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kPointerBufferId == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kPointerIpcCapable ==
              CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
static_assert(kMemoryOfDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kJitErrorLog == CU_JIT_ERROR_LOG_BUFFER);
static_assert(kJitErrorLogBytes == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
static_assert(sizeof(IpcMemoryHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(IpcEventHandle) == sizeof(CUipcEventHandle));
static_assert(sizeof(Uuid) == sizeof(CUuuid));

}  // namespace
}  // namespace keras_ring::cuda
