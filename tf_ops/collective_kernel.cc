#include "tf_ops/collective_kernel.h"

#include <atomic>
#include <utility>

#include "tensorflow/core/framework/cancellation.h"
#include "tf_ops/op_device.h"
#include "tf_ops/tf_adapters.h"

namespace keras_ring {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

CollectiveKernel::CollectiveKernel(OpKernelConstruction* context,
                                   int num_settings)
    : AsyncOpKernel(context),
      device_(KindOf(*context)),
      num_settings_(num_settings) {
  OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &tensor_name_));
  OP_REQUIRES_OK(context, TakeStatus(KrCheckName(tensor_name_.data(),
                                                 tensor_name_.size())));
  int64_t process_set;
  OP_REQUIRES_OK(context, context->GetAttr("process_set_id", &process_set));
  if (context->HasAttr("commit_group")) {
    OP_REQUIRES_OK(context, context->GetAttr("commit_group", &commit_group_));
  }
  runtime_ = std::shared_ptr<KrRuntimeLookup>(
      KrRuntimeLookupCreate(process_set), KrRuntimeLookupFree);
}

void CollectiveKernel::ComputeAsync(OpKernelContext* context,
                                    DoneCallback done) {
  absl::StatusOr<RequestPtr> request = RequestFor(context);
  OP_REQUIRES_OK_ASYNC(context, request.status(), done);

  std::shared_ptr<Call> call = NewCall(context, std::move(done));
  absl::Status prepared = PrepareResults(context, *call);
  if (prepared.ok() && InDeviceMemory(context)) {
    prepared = call->UseDevice(context);
  }
  if (!prepared.ok()) return call->Finish(prepared);
  // Once it can be cancelled, the kernel may go.
  const std::shared_ptr<KrRuntimeLookup> runtime = runtime_;
  call->Enqueue(call, context, runtime.get(), **request, NumTensors(context));
}

absl::StatusOr<RequestPtr> CollectiveKernel::RequestFor(
    OpKernelContext* context) {
  if (num_settings_ == 0) {
    tensorflow::mutex_lock lock(mutex_);
    if (LooksAsBefore(context)) return request_;
  }
  RequestBuilder builder(tensor_name_);
  Describe(builder.spec);
  builder.spec.commit_group = commit_group_.data();
  builder.spec.commit_group_bytes = commit_group_.size();
  if (InDeviceMemory(context)) builder.spec.device = device_;
  DescribeRun(context, builder);
  absl::InlinedVector<TensorLook, 1> looks;
  for (int i = 0; i < NumTensors(context); ++i) {
    const Tensor& tensor = context->input(i);
    TF_ASSIGN_OR_RETURN(const int32_t dtype, DTypeFromTf(tensor.dtype()));
    builder.AddTensor(dtype, tensor.shape().dim_sizes());
    looks.push_back({tensor.dtype(), tensor.shape()});
  }
  TF_ASSIGN_OR_RETURN(RequestPtr request, builder.Build());
  tensorflow::mutex_lock lock(mutex_);
  request_ = request;
  looks_ = std::move(looks);
  return request;
}

bool CollectiveKernel::LooksAsBefore(OpKernelContext* context) const {
  const size_t tensors = NumTensors(context);
  if (request_ == nullptr || looks_.size() != tensors) return false;
  for (size_t i = 0; i < tensors; ++i) {
    const Tensor& tensor = context->input(i);
    if (tensor.dtype() != looks_[i].dtype) return false;
    if (tensor.shape() != looks_[i].shape) return false;
  }
  return true;
}

std::shared_ptr<CollectiveKernel::Call> CollectiveKernel::NewCall(
    OpKernelContext* context, DoneCallback done) {
  std::shared_ptr<Call> call;
  {
    tensorflow::mutex_lock lock(mutex_);
    if (call_.use_count() != 1) call_ = std::make_shared<Call>();
    // Acquires what the last owner wrote before it released the object.
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
  outputs_.clear();
  by_rows_.clear();
}

absl::Status CollectiveKernel::Call::UseDevice(OpKernelContext* context) {
  ordinal_ = OrdinalOf(*context);
  TF_ASSIGN_OR_RETURN(stream_, StreamOf(context));
  return absl::OkStatus();
}

void CollectiveKernel::Call::AddOutput(const Tensor& output) {
  outputs_.push_back(output.data());
  held_.push_back(output);
}

void CollectiveKernel::Call::AddResultByRows(
    OpKernelContext* context, const tensorflow::TensorShape& shape,
    tensorflow::DataType dtype) {
  const int result = static_cast<int>(by_rows_.size());
  by_rows_.push_back(
      {shape, dtype,
       context->get_allocator(context->output_alloc_attr(result))});
}

void CollectiveKernel::Call::Enqueue(const std::shared_ptr<Call>& self,
                                     OpKernelContext* context,
                                     KrRuntimeLookup* runtime,
                                     const KrRequest& request,
                                     int num_tensors) {
  absl::InlinedVector<const void*, 1> inputs;
  // After the outputs: a second reference to an input would keep its buffer
  // from becoming an output.
  for (int i = 0; i < num_tensors; ++i) {
    const Tensor& input = context->input(i);
    inputs.push_back(input.data());
    held_.push_back(input);
  }
  if (!RegisterCancellation(self)) {
    return Finish(absl::CancelledError(absl::StrCat(
        KrRequestLabel(&request), ": the step was cancelled before it began")));
  }
  KrOperation operation = {};
  operation.inputs = inputs.data();
  operation.context = this;
  operation.device_ordinal = ordinal_;
  operation.stream = stream_;
  operation.done = [](void* call, const KrStatus* status) {
    // Keeps it alive until the end of this function.
    const auto alive = std::move(static_cast<Call*>(call)->in_flight_);
    alive->Finish(ToAbsl(status));
  };
  if (by_rows_.empty()) {
    operation.outputs = outputs_.data();
  } else {
    operation.allocate = [](void* call, int32_t result, int64_t rows,
                            void** memory) -> KrStatus* {
      absl::StatusOr<void*> found =
          static_cast<Call*>(call)->AllocateResult(result, rows);
      if (!found.ok()) return ToKr(found.status());
      *memory = *found;
      return nullptr;
    };
  }
  in_flight_ = self;
  KrStatus* const refused = KrEnqueue(runtime, &request, &operation);
  if (refused == nullptr) return;  // `done` may have been called already
  in_flight_ = nullptr;
  Finish(TakeStatus(refused));
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

bool CollectiveKernel::Call::RegisterCancellation(
    const std::shared_ptr<Call>& self) {
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
  // Waits for a cancellation that is running now; it finds nothing to do. Not
  // under our lock, which the cancellation takes.
  if (cancellation_ != nullptr && token_ != kNoToken) {
    cancellation_->DeregisterCallback(token_);
  }
  // Before `done`: the next op may reuse the buffer if it has no other
  // reference.
  held_.clear();
  RunDone(context, std::move(done), status);
}

absl::StatusOr<void*> CollectiveKernel::Call::AllocateResult(int result,
                                                             int64_t rows) {
  auto [shape, dtype, allocator] = by_rows_[result];
  shape.set_dim(0, rows);
  tensorflow::mutex_lock lock(mutex_);
  if (context_ == nullptr) {
    held_.emplace_back(allocator, dtype, shape);
    void* const memory = held_.back().data();
    if (memory != nullptr || shape.num_elements() == 0) return memory;
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a result of shape ", shape.DebugString()));
  }
  // That of a run before, which has lost its result with another rank.
  delete context_->release_output(result).tensor;
  Tensor* output = nullptr;
  absl::Status status = context_->allocate_output(result, shape, &output);
  if (!status.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a result of shape ", shape.DebugString(),
                     ": ", status.message()));
  }
  held_.push_back(*output);
  return output->data();
}

absl::Status ForwardOrAllocateOutputs(OpKernelContext* context,
                                      CollectiveKernel::Call& call) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    const Tensor& input = context->input(i);
    Tensor* output = nullptr;
    // Checked here first, because TensorFlow searches all outputs before it
    // comes to this.
    TF_RETURN_IF_ERROR(
        input.RefCountIsOne()
            ? context->forward_input_or_allocate_output({i}, i, input.shape(),
                                                        &output)
            : context->allocate_output(i, input.shape(), &output));
    call.AddOutput(*output);
  }
  return absl::OkStatus();
}

void AddResultsByRows(OpKernelContext* context, CollectiveKernel::Call& call) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    const Tensor& input = context->input(i);
    call.AddResultByRows(context, input.shape(), input.dtype());
  }
}

}  // namespace keras_ring
