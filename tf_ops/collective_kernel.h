// CollectiveKernel: what all our kernels share.
#ifndef KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_
#define KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/request.h"

namespace keras_ring {

// Builds the operation, enqueues it, and returns; the data thread finishes the
// op.
//
// A cancelled step ends its ops at once, but what has been asked for cannot be
// taken back: the other ranks may be about to run it. So the operation lives on
// with references to its tensors, takes part when its turn comes, and its
// result goes nowhere. Only the op is told that it was cancelled.
class CollectiveKernel : public tensorflow::AsyncOpKernel {
 public:
  // The last `num_settings` inputs are no tensors to communicate; they say how.
  explicit CollectiveKernel(tensorflow::OpKernelConstruction* context,
                            int num_settings = 0);

  void ComputeAsync(tensorflow::OpKernelContext* context,
                    DoneCallback done) final;

  // The op as it runs.
  class Call;

 protected:
  // Fills in the kind and what the attributes say.
  virtual void Describe(KrRequestSpec& spec) const = 0;
  // Fills in what those inputs say that are settings.
  virtual void DescribeRun(tensorflow::OpKernelContext*,
                           RequestBuilder&) const {}
  // Gives the call its results: memory, or how they will look.
  virtual absl::Status PrepareResults(tensorflow::OpKernelContext* context,
                                      Call& call) const = 0;

 private:
  // What the inputs must be like for the same request.
  struct TensorLook {
    tensorflow::DataType dtype;
    tensorflow::TensorShape shape;
  };

  // The request for these inputs: the same object as long as they look alike.
  absl::StatusOr<RequestPtr> RequestFor(tensorflow::OpKernelContext* context);
  bool LooksAsBefore(tensorflow::OpKernelContext* context) const
      TF_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Call> NewCall(tensorflow::OpKernelContext* context,
                                DoneCallback done);

  int NumTensors(tensorflow::OpKernelContext* context) const {
    return context->num_inputs() - num_settings_;
  }

  const int num_settings_;
  std::string tensor_name_;
  // Of the op's process set.
  std::shared_ptr<KrRuntimeLookup> runtime_;
  // Of the last time, for the next: an op mostly runs once in a step, and one
  // step is like the other.
  tensorflow::mutex mutex_;
  RequestPtr request_ TF_GUARDED_BY(mutex_);
  absl::InlinedVector<TensorLook, 1> looks_ TF_GUARDED_BY(mutex_);
  std::shared_ptr<Call> call_ TF_GUARDED_BY(mutex_);
};

// Shared by the operation (which ends it), the cancellation and the kernel.
// Whoever finishes first calls `done`; the others find it gone.
class CollectiveKernel::Call final {
 public:
  // An op begins. The last one of this object has ended, and nobody else knows
  // the object any more.
  void Begin(tensorflow::OpKernelContext* context, DoneCallback done);

  // Memory for the result of the next tensor: it is kept for as long as it is
  // needed.
  void AddOutput(const tensorflow::Tensor& output);
  // The next result will look so, but for its rows, which are known once the
  // ranks have agreed.
  void AddResultByRows(const tensorflow::TensorShape& shape,
                       tensorflow::DataType dtype);

  // Hands the operation over to the runtime, which ends it, and with it the op.
  // `self` is this; the tensors are the first inputs of the context.
  void Enqueue(const std::shared_ptr<Call>& self,
               tensorflow::OpKernelContext* context, KrRuntimeLookup* runtime,
               const KrRequest& request, int num_tensors);

  // Ends the op, unless it has ended, and lets go of the tensors.
  void Finish(const absl::Status& status);

 private:
  static constexpr tensorflow::CancellationToken kNoToken = -1;

  // Ends the op when its step is cancelled. False if it is already.
  bool RegisterCancellation(const std::shared_ptr<Call>& self);
  // Takes the right to end the op; false if it was taken.
  bool Claim(tensorflow::OpKernelContext** context, DoneCallback* done);
  static void RunDone(tensorflow::OpKernelContext* context, DoneCallback done,
                      const absl::Status& status);
  // Result number `result`; memory of our own if the op has ended.
  absl::StatusOr<void*> AllocateResult(int result, int64_t rows);

  // Held while the context is used, so that the op cannot end meanwhile.
  tensorflow::mutex mutex_;
  tensorflow::OpKernelContext* context_ TF_GUARDED_BY(mutex_) = nullptr;
  DoneCallback done_ TF_GUARDED_BY(mutex_);

  tensorflow::CancellationManager* cancellation_ = nullptr;
  tensorflow::CancellationToken token_ = kNoToken;
  // Touched by whoever has the operation: the kernel, then the data thread.
  std::shared_ptr<Call> in_flight_;  // this, while the runtime has it
  absl::InlinedVector<tensorflow::Tensor, 2> held_;
  absl::InlinedVector<void*, 1> outputs_;
  absl::InlinedVector<std::pair<tensorflow::TensorShape, tensorflow::DataType>,
                      1>
      by_rows_;
};

// Results shaped as the inputs, in the inputs' own memory where nobody else
// needs it.
absl::Status ForwardOrAllocateOutputs(tensorflow::OpKernelContext* context,
                                      CollectiveKernel::Call& call);

// Results shaped as the inputs but for the number of rows.
void AddResultsByRows(tensorflow::OpKernelContext* context,
                      CollectiveKernel::Call& call);

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_
