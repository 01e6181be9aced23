// CollectiveKernel: what all our kernels share.
#ifndef KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_
#define KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_

#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "csrc/base/completion.h"
#include "csrc/control/request.h"
#include "csrc/control/tensor_entry.h"
#include "csrc/runtime/process_runtime.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace keras_ring {

// Builds the entry, enqueues it, and returns; the data thread finishes the op.
//
// A cancelled step ends its ops at once, but what has been asked for cannot be
// taken back: the other ranks may be about to run it. So the entry lives on
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
  virtual void Describe(Request& request) const = 0;
  // Fills in what those inputs say that are settings.
  virtual void DescribeRun(tensorflow::OpKernelContext*, Request&) const {}
  // Sets the entry's outputs.
  virtual absl::Status PrepareOutputs(tensorflow::OpKernelContext* context,
                                      const std::shared_ptr<Call>& call,
                                      TensorEntry& entry) const = 0;

 private:
  // The request for these inputs: the same object as long as they look alike.
  Result<RequestPtr> RequestFor(tensorflow::OpKernelContext* context);
  std::shared_ptr<Call> NewCall(tensorflow::OpKernelContext* context,
                                DoneCallback done);

  int NumTensors(tensorflow::OpKernelContext* context) const {
    return context->num_inputs() - num_settings_;
  }

  const int num_settings_;
  std::string tensor_name_;
  std::unique_ptr<RuntimeLookup> runtime_;  // of the op's process set
  // Of the last time, for the next: an op mostly runs once in a step, and one
  // step is like the other.
  tensorflow::mutex mutex_;
  RequestPtr request_ TF_GUARDED_BY(mutex_);
  std::shared_ptr<Call> call_ TF_GUARDED_BY(mutex_);
};

// Shared by the entry (which fires the completion), the cancellation and the
// kernel. Whoever finishes first calls `done`; the others find it gone.
class CollectiveKernel::Call final : public Completion::Target {
 public:
  // An op begins. The last one of this object has ended, and nobody else knows
  // the object any more.
  void Begin(tensorflow::OpKernelContext* context, DoneCallback done);

  // Ends the op when its step is cancelled. False if it is already.
  bool RegisterCancellation(std::shared_ptr<Call> self);

  // Ends the op, unless it has ended, and lets go of the tensors.
  void Finish(const absl::Status& status);
  void Complete(const Status& status) override;

  // Keeps the memory of `tensor` for as long as the entry needs it. Not after
  // the entry is enqueued.
  void Hold(const tensorflow::Tensor& tensor) { held_.push_back(tensor); }

  // Output `index` with this shape; memory of our own if the op has ended.
  Result<void*> AllocateOutput(int index, const tensorflow::TensorShape& shape,
                               tensorflow::DataType dtype);

 private:
  static constexpr tensorflow::CancellationToken kNoToken = -1;

  // Takes the right to end the op; false if it was taken.
  bool Claim(tensorflow::OpKernelContext** context, DoneCallback* done);
  static void RunDone(tensorflow::OpKernelContext* context, DoneCallback done,
                      const absl::Status& status);

  // Held while the context is used, so that the op cannot end meanwhile.
  tensorflow::mutex mutex_;
  tensorflow::OpKernelContext* context_ TF_GUARDED_BY(mutex_) = nullptr;
  DoneCallback done_ TF_GUARDED_BY(mutex_);

  tensorflow::CancellationManager* cancellation_ = nullptr;
  tensorflow::CancellationToken token_ = kNoToken;
  // Touched by whoever has the entry: the kernel, then the data thread.
  absl::InlinedVector<tensorflow::Tensor, 2> held_;
};

// Outputs shaped as the inputs, in the inputs' own memory where nobody else
// needs it.
absl::Status ForwardOrAllocateOutputs(
    tensorflow::OpKernelContext* context,
    const std::shared_ptr<CollectiveKernel::Call>& call, TensorEntry& entry);

// Outputs shaped as the inputs but for the number of rows, which is known once
// the ranks have agreed.
void AllocateOutputsByRows(tensorflow::OpKernelContext* context,
                           const std::shared_ptr<CollectiveKernel::Call>& call,
                           TensorEntry& entry);

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_
