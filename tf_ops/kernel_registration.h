// The registration of kernels, for each kind of device that has them.
#ifndef KERAS_RING_TF_OPS_KERNEL_REGISTRATION_H_
#define KERAS_RING_TF_OPS_KERNEL_REGISTRATION_H_

#include <initializer_list>

#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace keras_ring {

// Registers the kernel of an op for a type of device, such as DEVICE_GPU.
// `in_host_memory`: the inputs and outputs that are not in the device's.
template <typename Kernel>
void RegisterKernel(const char* op, const char* device,
                    std::initializer_list<const char*> in_host_memory = {}) {
  tensorflow::KernelDefBuilder builder(op);
  builder.Device(device);
  for (const char* argument : in_host_memory) builder.HostMemory(argument);
  const tensorflow::kernel_factory::OpKernelRegistrar registrar(
      builder.Build(), op,
      [](tensorflow::OpKernelConstruction* context) -> tensorflow::OpKernel* {
        return new Kernel(context);
      });
}

void RegisterCollectiveKernels(const char* device);
void RegisterCommitKernel(const char* device);
void RegisterTopologyKernel(const char* device);

}  // namespace keras_ring

// Registers all kernels that work on devices for one more type of device: for
// those of plug-ins, whose types TensorFlow does not know.
extern "C" __attribute__((visibility("default"))) void KerasRingRegisterKernels(
    const char* device);

#endif  // KERAS_RING_TF_OPS_KERNEL_REGISTRATION_H_
