#include "tf_ops/collective_kernel.h"

#include <atomic>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/cancellation.h"
#include "tf_ops/tf_adapters.h"

namespace keras_ring {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

namespace {

bool LooksAlike(const TensorSpec& spec, const Tensor& tensor) {
  if (static_cast<int>(spec.shape.size()) != tensor.dims()) return false;
  for (int i = 0; i < tensor.dims(); ++i) {
    if (spec.shape[i] != tensor.dim_size(i)) return false;
  }
  const Result<DType> dtype = DTypeFromTf(tensor.dtype());
  return dtype.ok() && *dtype == spec.dtype;
}

bool LooksAlike(const Request& request, OpKernelContext* context, int count) {
  if (static_cast<int>(request.tensors.size()) != count) return false;
  for (int i = 0; i < count; ++i) {
    if (!LooksAlike(request.tensors[i], context->input(i))) return false;
  }
  return true;
}

}  // namespace

CollectiveKernel::CollectiveKernel(OpKernelConstruction* context,
                                   int num_settings)
    : AsyncOpKernel(context), num_settings_(num_settings) {
  OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &tensor_name_));
  OP_REQUIRES_OK(context, StatusToTf(CheckName(tensor_name_)));
  int64_t process_set;
  OP_REQUIRES_OK(context, context->GetAttr("process_set_id", &process_set));
  runtime_ = std::make_unique<RuntimeLookup>(process_set);
}

void CollectiveKernel::ComputeAsync(OpKernelContext* context,
                                    DoneCallback done) {
  Result<std::shared_ptr<Runtime>> runtime = runtime_->For(tensor_name_);
  OP_REQUIRES_OK_ASYNC(context, StatusToTf(runtime.status()), done);

  Result<RequestPtr> request = RequestFor(context);
  OP_REQUIRES_OK_ASYNC(context, StatusToTf(request.status()), done);

  TensorEntry entry;
  entry.request = *request;
  const int tensors = NumTensors(context);
  entry.inputs.reserve(tensors);
  for (int i = 0; i < tensors; ++i) {
    entry.inputs.push_back(context->input(i).data());
  }
  std::shared_ptr<Call> call = NewCall(context, std::move(done));
  absl::Status prepared = PrepareOutputs(context, call, entry);
  if (!prepared.ok()) return call->Finish(prepared);
  // After the outputs: a second reference to an input would keep its buffer
  // from becoming an output.
  for (int i = 0; i < tensors; ++i) {
    call->Hold(context->input(i));
  }
  entry.completion = Completion(call);
  if (!call->RegisterCancellation(call)) {
    entry.completion.Disarm();
    return call->Finish(absl::CancelledError(absl::StrCat(
        entry.request->Label(), ": the step was cancelled before it began")));
  }
  Status enqueued = (*runtime)->Enqueue(std::move(entry));
  if (!enqueued.ok()) call->Finish(StatusToTf(enqueued));
}

Result<RequestPtr> CollectiveKernel::RequestFor(OpKernelContext* context) {
  const int tensors = NumTensors(context);
  if (num_settings_ == 0) {
    tensorflow::mutex_lock lock(mutex_);
    if (request_ != nullptr && LooksAlike(*request_, context, tensors)) {
      return request_;
    }
  }
  auto request = std::make_shared<Request>();
  request->name = tensor_name_;
  Describe(*request);
  DescribeRun(context, *request);
  for (int i = 0; i < tensors; ++i) {
    KR_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(context->input(i)));
    request->tensors.push_back(std::move(spec));
  }
  tensorflow::mutex_lock lock(mutex_);
  if (request_ == nullptr || !(*request_ == *request)) request_ = request;
  return request_;
}

std::shared_ptr<CollectiveKernel::Call> CollectiveKernel::NewCall(
    OpKernelContext* context, DoneCallback done) {
  std::shared_ptr<Call> call;
  {
    tensorflow::mutex_lock lock(mutex_);
    if (call_.use_count() != 1) call_ = std::make_shared<Call>();
    // With what the last owner did before it let go.
    std::atomic_thread_fence(std::memory_order_acquire);
    call = call_;
  }
  call->Begin(context, std::move(done));
  return call;
}

void CollectiveKernel::Call::Begin(OpKernelContext* context,
                                   DoneCallback done) {
  tensorflow::mutex_lock lock(mutex_);
  context_ = context;
  done_ = std::move(done);
  cancellation_ = context->cancellation_manager();
  token_ = kNoToken;
  held_.clear();
}

void CollectiveKernel::Call::Complete(const Status& status) {
  Finish(StatusToTf(status));
}

void CollectiveKernel::Call::RunDone(OpKernelContext* context,
                                     DoneCallback done,
                                     const absl::Status& status) {
  if (!status.ok()) context->SetStatus(status);
  done();
}

bool CollectiveKernel::Call::Claim(OpKernelContext** context,
                                   DoneCallback* done) {
  tensorflow::mutex_lock lock(mutex_);
  if (done_ == nullptr) return false;
  *context = std::exchange(context_, nullptr);
  *done = std::exchange(done_, nullptr);
  return true;
}

bool CollectiveKernel::Call::RegisterCancellation(std::shared_ptr<Call> self) {
  if (cancellation_ == nullptr) return true;
  token_ = cancellation_->get_cancellation_token();
  return cancellation_->RegisterCallback(token_, [self] {
    OpKernelContext* context;
    DoneCallback done;
    if (!self->Claim(&context, &done)) return;
    RunDone(context, std::move(done),
            absl::CancelledError("the step was cancelled while a collective "
                                 "was waiting for other ranks"));
  });
}

void CollectiveKernel::Call::Finish(const absl::Status& status) {
  OpKernelContext* context;
  DoneCallback done;
  if (!Claim(&context, &done)) {
    held_.clear();
    return;
  }
  // Waits for a cancellation that is just running; it finds nothing to do.
  // Not under our lock, which that one takes.
  if (cancellation_ != nullptr && token_ != kNoToken) {
    cancellation_->DeregisterCallback(token_);
  }
  // Before `done`: the next op may reuse the buffer if nobody else holds it.
  held_.clear();
  RunDone(context, std::move(done), status);
}

Result<void*> CollectiveKernel::Call::AllocateOutput(
    int index, const tensorflow::TensorShape& shape,
    tensorflow::DataType dtype) {
  tensorflow::mutex_lock lock(mutex_);
  if (context_ == nullptr) {
    held_.emplace_back(dtype, shape);
    return held_.back().data();
  }
  Tensor* output = nullptr;
  absl::Status status = context_->allocate_output(index, shape, &output);
  if (!status.ok()) {
    return ResourceExhaustedError("no memory for a result of shape " +
                                  shape.DebugString() + ": " +
                                  std::string(status.message()));
  }
  held_.push_back(*output);
  return output->data();
}

absl::Status ForwardOrAllocateOutputs(
    OpKernelContext* context,
    const std::shared_ptr<CollectiveKernel::Call>& call, TensorEntry& entry) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    const Tensor& input = context->input(i);
    Tensor* output = nullptr;
    // Asked here first, because TensorFlow looks through all outputs before it
    // comes to this.
    TF_RETURN_IF_ERROR(
        input.RefCountIsOne()
            ? context->forward_input_or_allocate_output({i}, i, input.shape(),
                                                        &output)
            : context->allocate_output(i, input.shape(), &output));
    entry.outputs.push_back(output->data());
    call->Hold(*output);
  }
  return absl::OkStatus();
}

void AllocateOutputsByRows(OpKernelContext* context,
                           const std::shared_ptr<CollectiveKernel::Call>& call,
                           TensorEntry& entry) {
  std::vector<std::pair<tensorflow::TensorShape, tensorflow::DataType>> inputs;
  for (int i = 0; i < context->num_inputs(); ++i) {
    inputs.emplace_back(context->input(i).shape(), context->input(i).dtype());
  }
  entry.allocate = [call, inputs = std::move(inputs)](
                       int result, int64_t rows) -> Result<void*> {
    auto [shape, dtype] = inputs[result];
    shape.set_dim(0, rows);
    return call->AllocateOutput(result, shape, dtype);
  };
}

}  // namespace keras_ring
