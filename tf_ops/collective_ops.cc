// The kernels of the collectives: the part of each beyond CollectiveKernel.
#include <cstring>

#include "tf_ops/collective_kernel.h"
#include "tf_ops/kernel_registration.h"
#include "tf_ops/tf_adapters.h"

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
  ReductionKernel(OpKernelConstruction* context, KrKind kind)
      : CollectiveKernel(context), kind_(kind) {
    OP_REQUIRES_OK(context, context->GetAttr("reduce_op", &op_));
    OP_REQUIRES_OK(context, context->GetAttr("compression", &compression_));
    OP_REQUIRES_OK(context,
                   TakeStatus(KrCheckReduction(kind_, op_, compression_)));
    OP_REQUIRES_OK(context, GetDouble(context, "prescale_bits", &prescale_));
    OP_REQUIRES_OK(context, GetDouble(context, "postscale_bits", &postscale_));
  }

 protected:
  void Describe(KrRequestSpec& spec) const override {
    spec.kind = kind_;
    spec.reduce_op = op_;
    spec.prescale = prescale_;
    spec.postscale = postscale_;
    spec.compression = compression_;
  }

 private:
  const KrKind kind_;
  int32_t op_ = KR_SUM;
  double prescale_ = 1.0;
  double postscale_ = 1.0;
  int32_t compression_ = KR_COMPRESSION_NONE;
};

class AllreduceKernel final : public ReductionKernel {
 public:
  explicit AllreduceKernel(OpKernelConstruction* context)
      : ReductionKernel(context, KR_ALLREDUCE) {}

 protected:
  absl::Status PrepareResults(OpKernelContext* context,
                              Call& call) const override {
    return ForwardOrAllocateOutputs(context, call);
  }
};

class ReducescatterKernel final : public ReductionKernel {
 public:
  explicit ReducescatterKernel(OpKernelConstruction* context)
      : ReductionKernel(context, KR_REDUCESCATTER) {}

 protected:
  absl::Status PrepareResults(OpKernelContext* context,
                              Call& call) const override {
    AddResultsByRows(context, call);
    return absl::OkStatus();
  }
};

// --- Broadcast ---

class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("root_rank", &root_));
  }

 protected:
  void Describe(KrRequestSpec& spec) const override {
    spec.kind = KR_BROADCAST;
    spec.root = root_;
  }

  absl::Status PrepareResults(OpKernelContext* context,
                              Call& call) const override {
    return ForwardOrAllocateOutputs(context, call);
  }

 private:
  int root_ = 0;
};

// --- Allgather ---

class AllgatherKernel final : public CollectiveKernel {
 public:
  explicit AllgatherKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(KrRequestSpec& spec) const override {
    spec.kind = KR_ALLGATHER;
  }

  absl::Status PrepareResults(OpKernelContext* context,
                              Call& call) const override {
    AddResultsByRows(context, call);
    return absl::OkStatus();
  }
};

// --- Alltoall ---

class AlltoallKernel final : public CollectiveKernel {
 public:
  explicit AlltoallKernel(OpKernelConstruction* context)
      : CollectiveKernel(context, /*num_settings=*/1) {}

 protected:
  void Describe(KrRequestSpec& spec) const override { spec.kind = KR_ALLTOALL; }

  void DescribeRun(OpKernelContext* context,
                   RequestBuilder& builder) const override {
    const auto splits = context->input(1).flat<int64_t>();
    builder.SetSplits({splits.data(), static_cast<size_t>(splits.size())});
  }

  absl::Status PrepareResults(OpKernelContext* context,
                              Call& call) const override {
    const Tensor& input = context->input(0);
    call.AddResultByRows(context, input.shape(), input.dtype());
    call.AddResultByRows(context, TensorShape({0}), tensorflow::DT_INT64);
    return absl::OkStatus();
  }
};

// --- Barrier ---

class BarrierKernel final : public CollectiveKernel {
 public:
  explicit BarrierKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(KrRequestSpec& spec) const override { spec.kind = KR_BARRIER; }

  absl::Status PrepareResults(OpKernelContext*, Call&) const override {
    return absl::OkStatus();
  }
};

// --- Join ---

class JoinKernel final : public CollectiveKernel {
 public:
  explicit JoinKernel(OpKernelConstruction* context)
      : CollectiveKernel(context) {}

 protected:
  void Describe(KrRequestSpec& spec) const override { spec.kind = KR_JOIN; }

  absl::Status PrepareResults(OpKernelContext* context,
                              Call& call) const override {
    Tensor* last_rank = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, {}, &last_rank));
    call.AddOutput(*last_rank);
    return absl::OkStatus();
  }
};

}  // namespace

void RegisterCollectiveKernels(const char* device) {
  RegisterKernel<AllreduceKernel>("KerasRingAllreduce", device);
  RegisterKernel<ReducescatterKernel>("KerasRingReducescatter", device);
  RegisterKernel<BroadcastKernel>("KerasRingBroadcast", device);
  RegisterKernel<AllgatherKernel>("KerasRingAllgather", device);
  RegisterKernel<AlltoallKernel>("KerasRingAlltoall", device,
                                 {"splits", "received_splits"});
  RegisterKernel<BarrierKernel>("KerasRingBarrier", device);
  RegisterKernel<JoinKernel>("KerasRingJoin", device, {"last_rank"});
}

}  // namespace keras_ring
