#include <vector>

#include "csrc/base/options.h"
#include "csrc/capi/handles.h"
#include "csrc/cuda/driver.h"
#include "csrc/cuda/gpu_list.h"
#include "csrc/cuda/nccl.h"

namespace keras_ring {
namespace {

Status VisitGpus(void (*visit)(void*, const KrGpu*), void* context) {
  KR_ASSIGN_OR_RETURN(const Options options, Options::FromEnvironment());
  KR_ASSIGN_OR_RETURN(const cuda::Driver* const driver,
                      cuda::LoadDriver(options.cuda_driver));
  KR_ASSIGN_OR_RETURN(const std::vector<cuda::GpuFacts> all,
                      cuda::ListGpus(*driver));
  for (const cuda::GpuFacts& facts : all) {
    const KrGpu gpu = {facts.ordinal,      facts.name.c_str(),
                       facts.uuid.c_str(), facts.bus.c_str(),
                       facts.bytes,        facts.major,
                       facts.minor};
    visit(context, &gpu);
  }
  return OkStatus();
}

Status ReadVersions(int32_t* driver_version, int32_t* nccl_version) {
  KR_ASSIGN_OR_RETURN(const Options options, Options::FromEnvironment());
  KR_ASSIGN_OR_RETURN(const cuda::Driver* const driver,
                      cuda::LoadDriver(options.cuda_driver));
  KR_RETURN_IF_ERROR(KR_CUDA(*driver, cuDriverGetVersion, driver_version));
  *nccl_version = 0;
  const Result<const cuda::Nccl*> nccl = cuda::LoadNccl(options.nccl);
  if (!nccl.ok()) return OkStatus();
  return cuda::StatusOf(**nccl, (*nccl)->ncclGetVersion(nccl_version), nullptr,
                        "ncclGetVersion");
}

}  // namespace
}  // namespace keras_ring

KrStatus* KrGpus(void (*visit)(void* context, const KrGpu* gpu),
                 void* context) {
  return keras_ring::ToC(keras_ring::VisitGpus(visit, context));
}

KrStatus* KrGpuVersions(int32_t* driver, int32_t* nccl) {
  return keras_ring::ToC(keras_ring::ReadVersions(driver, nccl));
}
