// The kernels of KerasRingAllreduce and KerasRingReducescatter.
#include <cstring>

#include "tf_ops/collective_kernel.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

absl::Status GetDouble(OpKernelConstruction* context, const char* attribute,
                       double* value) {
  int64_t bits;
  TF_RETURN_IF_ERROR(context->GetAttr(attribute, &bits));
  std::memcpy(value, &bits, sizeof(bits));
  return absl::OkStatus();
}

class ReductionKernel : public CollectiveKernel {
 public:
  ReductionKernel(OpKernelConstruction* context, RequestKind kind)
      : CollectiveKernel(context), kind_(kind) {
    int reduce_op;
    OP_REQUIRES_OK(context, context->GetAttr("reduce_op", &reduce_op));
    OP_REQUIRES(context, reduce_op >= 0 && reduce_op < kNumReduceOps,
                absl::InvalidArgumentError(
                    absl::StrCat("no reduce op has number ", reduce_op)));
    op_ = static_cast<ReduceOp>(reduce_op);
    int compression;
    OP_REQUIRES_OK(context, context->GetAttr("compression", &compression));
    OP_REQUIRES(context, compression >= 0 && compression < kNumCompressions,
                absl::InvalidArgumentError(
                    absl::StrCat("no compression has number ", compression)));
    compression_ = static_cast<Compression>(compression);
    OP_REQUIRES_OK(context, GetDouble(context, "prescale_bits", &prescale_));
    OP_REQUIRES_OK(context, GetDouble(context, "postscale_bits", &postscale_));
  }

 protected:
  void Describe(Request& request) const override {
    request.kind = kind_;
    request.op = op_;
    request.prescale = prescale_;
    request.postscale = postscale_;
    request.compression = compression_;
  }

 private:
  const RequestKind kind_;
  ReduceOp op_ = ReduceOp::kSum;
  double prescale_ = 1.0;
  double postscale_ = 1.0;
  Compression compression_ = Compression::kNone;
};

class AllreduceKernel final : public ReductionKernel {
 public:
  explicit AllreduceKernel(OpKernelConstruction* context)
      : ReductionKernel(context, RequestKind::kAllreduce) {}

 protected:
  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    return ForwardOrAllocateOutputs(context, call, entry);
  }
};

class ReducescatterKernel final : public ReductionKernel {
 public:
  explicit ReducescatterKernel(OpKernelConstruction* context)
      : ReductionKernel(context, RequestKind::kReducescatter) {}

 protected:
  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    AllocateOutputsByRows(context, call, entry);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingReducescatter").Device(tensorflow::DEVICE_CPU),
    ReducescatterKernel);
REGISTER_KERNEL_BUILDER(
    Name("KerasRingAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);

}  // namespace
}  // namespace keras_ring
