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
    OP_REQUIRES_OK(context, context->GetAttr("process_set_id", &process_set_));
  }

  void Compute(OpKernelContext* context) override {
    Result<int> value = Value();
    OP_REQUIRES_OK(context, StatusToTf(value.status()));
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->scalar<int32_t>()() = *value;
  }

 private:
  Result<int> Value() const {
    KR_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> job,
                        ProcessRuntimeFor(0, what_));
    const Topology& of_job = job->topology();
    if (what_ == "local_rank") return of_job.local_rank;
    if (what_ == "local_size") return of_job.local_size;
    // Also for ranks that are not members.
    if (what_ == "size" || what_ == "included") {
      const std::shared_ptr<ProcessSets> sets = CurrentProcessSets();
      if (sets == nullptr) return UnavailableError("this rank has shut down");
      KR_ASSIGN_OR_RETURN(RankSet set, sets->Find(process_set_));
      if (what_ == "size") return static_cast<int>(set.members().size());
      return process_set_ == 0 || set.Local(of_job.rank) >= 0 ? 1 : 0;
    }
    KR_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> runtime,
                        ProcessRuntimeFor(process_set_, what_));
    return runtime->topology().rank;
  }

  std::string what_;
  int64_t process_set_ = 0;
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingTopology").Device(tensorflow::DEVICE_CPU), TopologyKernel);

}  // namespace
}  // namespace keras_ring
