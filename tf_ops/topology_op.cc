// The kernel of KerasRingTopology.
#include <memory>
#include <string>

#include "csrc/runtime/process_runtime.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/tf_adapters.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class TopologyKernel final : public tensorflow::OpKernel {
 public:
  explicit TopologyKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("what", &what_));
  }

  void Compute(OpKernelContext* context) override {
    Result<std::shared_ptr<Runtime>> runtime = ProcessRuntimeFor(what_);
    OP_REQUIRES_OK(context, StatusToTf(runtime.status()));
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<int32_t>()() = Value((*runtime)->topology());
  }

 private:
  int Value(const Topology& topology) const {
    if (what_ == "rank") return topology.rank;
    if (what_ == "size") return topology.size;
    if (what_ == "local_rank") return topology.local_rank;
    return topology.local_size;
  }

  std::string what_;
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingTopology").Device(tensorflow::DEVICE_CPU), TopologyKernel);

}  // namespace
}  // namespace keras_ring
