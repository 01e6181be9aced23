#include "tf_ops/kernel_registration.h"

#include "tensorflow/core/framework/types.h"

void KerasRingRegisterKernels(const char* device) {
  keras_ring::RegisterCollectiveKernels(device);
  keras_ring::RegisterCommitKernel(device);
  keras_ring::RegisterTopologyKernel(device);
}

namespace {

const bool registered = [] {
  KerasRingRegisterKernels(tensorflow::DEVICE_CPU);
  KerasRingRegisterKernels(tensorflow::DEVICE_GPU);
  return true;
}();

}  // namespace
