// The kernels of the collectives: what each adds to CollectiveKernel.
#include <cstring>
#include <memory>

#include "tf_ops/collective_kernel.h"

namespace keras_ring {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// --- Reductions ---

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

// --- Broadcast ---

class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("root_rank", &root_));
  }

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kBroadcast;
    request.root = root_;
  }

  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    return ForwardOrAllocateOutputs(context, call, entry);
  }

 private:
  int root_ = 0;
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);

// --- Allgather ---

class AllgatherKernel final : public CollectiveKernel {
 public:
  explicit AllgatherKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kAllgather;
  }

  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    AllocateOutputsByRows(context, call, entry);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);

// --- Alltoall ---

class AlltoallKernel final : public CollectiveKernel {
 public:
  explicit AlltoallKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, /*num_settings=*/1) {}

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kAlltoall;
  }

  void DescribeRun(OpKernelContext* context, Request& request) const override {
    const auto splits = context->input(1).flat<int64_t>();
    request.splits.assign(splits.data(), splits.data() + splits.size());
  }

  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    entry.allocate = [call, shape = context->input(0).shape(),
                      dtype = context->input(0).dtype()](
                         int result, int64_t rows) -> Result<void*> {
      if (result == 1) {
        return call->AllocateOutput(result, TensorShape({rows}),
                                    tensorflow::DT_INT64);
      }
      TensorShape received = shape;
      received.set_dim(0, rows);
      return call->AllocateOutput(result, received, dtype);
    };
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(
    Name("KerasRingAlltoall").Device(tensorflow::DEVICE_CPU), AlltoallKernel);

// --- Barrier ---

class BarrierKernel final : public CollectiveKernel {
 public:
  explicit BarrierKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kBarrier;
  }

  absl::Status PrepareOutputs(OpKernelContext*, const std::shared_ptr<Call>&,
                              TensorEntry&) const override {
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("KerasRingBarrier").Device(tensorflow::DEVICE_CPU),
                        BarrierKernel);

// --- Join ---

class JoinKernel final : public CollectiveKernel {
 public:
  explicit JoinKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(Request& request) const override {
    request.kind = RequestKind::kJoin;
  }

  absl::Status PrepareOutputs(OpKernelContext* context,
                              const std::shared_ptr<Call>& call,
                              TensorEntry& entry) const override {
    Tensor* last_rank = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, {}, &last_rank));
    entry.outputs.push_back(last_rank->data());
    call->Hold(*last_rank);
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("KerasRingJoin").Device(tensorflow::DEVICE_CPU),
                        JoinKernel);

}  // namespace
}  // namespace keras_ring
