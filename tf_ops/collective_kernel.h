// CollectiveKernel: the base of all our kernels.
#ifndef KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_
#define KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_

#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/request.h"

namespace keras_ring {

// Builds the operation, enqueues it, and returns; the data thread finishes the
// op.
//
// A cancelled step ends its ops at once, but a request cannot be withdrawn: the
// other ranks may be about to run it. So the operation lives on with references
// to its tensors, takes part when its turn comes, and its result is discarded.
// Only the op is told that it was cancelled.
class CollectiveKernel : public tensorflow::AsyncOpKernel {
 public:
  // The last `num_settings` inputs are not communicated; they are settings.
  explicit CollectiveKernel(tensorflow::OpKernelConstruction* context,
                            int num_settings = 0);

  void ComputeAsync(tensorflow::OpKernelContext* context,
                    DoneCallback done) final;

  // One run of the op.
  class Call;

 protected:
  // Fills in the kind and the values of the attributes.
  virtual void Describe(KrRequestSpec& spec) const = 0;
  // Fills in the values of the inputs that are settings.
  virtual void DescribeRun(tensorflow::OpKernelContext*,
                           RequestBuilder&) const {}
  // Gives the call its results: memory, or their shape.
  virtual absl::Status PrepareResults(tensorflow::OpKernelContext* context,
                                      Call& call) const = 0;

 private:
  // The properties of an input that must be equal to use the same request.
  struct TensorLook {
    tensorflow::DataType dtype;
    tensorflow::TensorShape shape;
  };

  // Returns the request for these inputs: the same object as long as they look
  // alike.
  absl::StatusOr<RequestPtr> RequestFor(tensorflow::OpKernelContext* context);
  bool LooksAsBefore(tensorflow::OpKernelContext* context) const
      TF_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Call> NewCall(tensorflow::OpKernelContext* context,
                                DoneCallback done);

  int NumTensors(tensorflow::OpKernelContext* context) const {
    return context->num_inputs() - num_settings_;
  }

  // An op without tensors has nothing that could be there.
  bool InDeviceMemory(tensorflow::OpKernelContext* context) const {
    return device_ != KR_DEVICE_HOST && NumTensors(context) > 0;
  }

  const KrDeviceKind device_;
  const int num_settings_;
  std::string tensor_name_;
  std::string commit_group_;
  // For the op's process set.
  std::shared_ptr<KrRuntimeLookup> runtime_;
  // The state of the last run, reused by the next: an op mostly runs once in a
  // step, and steps are alike.
  tensorflow::mutex mutex_;
  RequestPtr request_ TF_GUARDED_BY(mutex_);
  absl::InlinedVector<TensorLook, 1> looks_ TF_GUARDED_BY(mutex_);
  std::shared_ptr<Call> call_ TF_GUARDED_BY(mutex_);
};

// Shared by the operation (which ends it), the cancellation and the kernel. The
// first of them to finish calls `done`; the others find it gone.
class CollectiveKernel::Call final {
 public:
  // Begins a run of the op. The last run of this object must have ended, and no
  // other thread may refer to the object.
  void Begin(tensorflow::OpKernelContext* context, DoneCallback done);

  // Adds memory for the result of the next tensor: it is kept for as long as it
  // is needed.
  void AddOutput(const tensorflow::Tensor& output);
  // The next result has this shape, except for its rows, which are known once
  // the ranks have agreed.
  void AddResultByRows(tensorflow::OpKernelContext* context,
                       const tensorflow::TensorShape& shape,
                       tensorflow::DataType dtype);

  // The tensors are on the device of the context.
  absl::Status UseDevice(tensorflow::OpKernelContext* context);

  // Hands the operation over to the runtime, which ends it, and with it the op.
  // `self` is this object; the tensors are the first inputs of the context.
  void Enqueue(const std::shared_ptr<Call>& self,
               tensorflow::OpKernelContext* context, KrRuntimeLookup* runtime,
               const KrRequest& request, int num_tensors);

  // Ends the op, unless it has ended, and releases the tensors.
  void Finish(const absl::Status& status);

 private:
  static constexpr tensorflow::CancellationToken kNoToken = -1;

  struct ResultByRows {
    tensorflow::TensorShape shape;
    tensorflow::DataType dtype;
    // TensorFlow keeps its allocators until the process ends.
    tensorflow::Allocator* allocator;
  };

  // Makes the cancellation of its step end the op. Returns false if the step is
  // cancelled already.
  bool RegisterCancellation(const std::shared_ptr<Call>& self);
  // Takes the right to end the op; returns false if it was taken.
  bool Claim(tensorflow::OpKernelContext** context, DoneCallback* done);
  static void RunDone(tensorflow::OpKernelContext* context, DoneCallback done,
                      const absl::Status& status);
  // Allocates result number `result`; as memory of our own if the op has ended.
  absl::StatusOr<void*> AllocateResult(int result, int64_t rows);

  // Held while the context is used, so that the op cannot end meanwhile.
  tensorflow::mutex mutex_;
  tensorflow::OpKernelContext* context_ TF_GUARDED_BY(mutex_) = nullptr;
  DoneCallback done_ TF_GUARDED_BY(mutex_);

  // Of a device: its ordinal, and the stream of the op.
  int ordinal_ = 0;
  void* stream_ = nullptr;
  tensorflow::CancellationManager* cancellation_ = nullptr;
  tensorflow::CancellationToken token_ = kNoToken;
  // Used by the current owner of the operation: the kernel, then the data
  // thread.
  std::shared_ptr<Call> in_flight_;  // this, while the runtime has it
  absl::InlinedVector<tensorflow::Tensor, 2> held_;
  absl::InlinedVector<void*, 1> outputs_;
  absl::InlinedVector<ResultByRows, 1> by_rows_;
};

// Adds results with the shapes of the inputs, in the inputs' own memory if it
// has no other user.
absl::Status ForwardOrAllocateOutputs(tensorflow::OpKernelContext* context,
                                      CollectiveKernel::Call& call);

// Adds results with the shapes of the inputs, except for the number of rows.
void AddResultsByRows(tensorflow::OpKernelContext* context,
                      CollectiveKernel::Call& call);

}  // namespace keras_ring

#endif  // KERAS_RING_TF_OPS_COLLECTIVE_KERNEL_H_
