#include "csrc/cuda/gpu_list.h"

#include <cstdio>
#include <utility>

namespace keras_ring::cuda {
namespace {

Result<GpuFacts> FactsOf(const Driver& driver, int ordinal) {
  GpuFacts facts;
  facts.ordinal = ordinal;
  DeviceNumber number = 0;
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuDeviceGet, &number, ordinal));
  char text[256] = "";
  KR_RETURN_IF_ERROR(
      KR_CUDA(driver, cuDeviceGetName, text, sizeof(text), number));
  facts.name = text;
  KR_RETURN_IF_ERROR(
      KR_CUDA(driver, cuDeviceGetPCIBusId, text, sizeof(text), number));
  facts.bus = text;
  Uuid uuid;
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuDeviceGetUuid_v2, &uuid, number));
  facts.uuid = UuidText(uuid);
  size_t bytes = 0;
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuDeviceTotalMem, &bytes, number));
  facts.bytes = bytes;
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuDeviceGetAttribute, &facts.major,
                             kComputeCapabilityMajor, number));
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuDeviceGetAttribute, &facts.minor,
                             kComputeCapabilityMinor, number));
  return facts;
}

}  // namespace

Result<std::vector<GpuFacts>> ListGpus(const Driver& driver) {
  int count = 0;
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuDeviceGetCount, &count));
  std::vector<GpuFacts> all;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    KR_ASSIGN_OR_RETURN(GpuFacts facts, FactsOf(driver, ordinal));
    all.push_back(std::move(facts));
  }
  return all;
}

std::string UuidText(const Uuid& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(
        digits, sizeof(digits), "%02x",
        static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += digits;
  }
  return text;
}

}  // namespace keras_ring::cuda
