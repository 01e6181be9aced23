// The kernel of KerasRingCommit.
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/kernel_registration.h"
#include "tf_ops/tf_adapters.h"

namespace keras_ring {
namespace {

using ::tensorflow::AsyncOpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

// One run of the op, shared by the answer and the cancellation of the step. The
// first of them ends the op; the other one finds it ended.
class Question {
 public:
  Question(OpKernelContext* context, AsyncOpKernel::DoneCallback done)
      : context_(context),
        done_(std::move(done)),
        cancellation_(context->cancellation_manager()) {}

  // Returns false if the step is cancelled already: then the op has ended.
  static bool Register(const std::shared_ptr<Question>& self) {
    if (self->cancellation_ == nullptr) return true;
    self->token_ = self->cancellation_->get_cancellation_token();
    const bool registered = self->cancellation_->RegisterCallback(
        self->token_, [self] { self->End(Cancelled(), false); });
    if (!registered) self->End(Cancelled(), false);
    return registered;
  }

  void OnAnswer(const absl::Status& status, bool committed) {
    // Waits for a cancellation that is running now, so not under the lock.
    if (cancellation_ != nullptr) cancellation_->DeregisterCallback(token_);
    End(status, committed);
  }

 private:
  static absl::Status Cancelled() {
    return absl::CancelledError(
        "the step was cancelled while its commit was waiting for other ranks");
  }

  void End(const absl::Status& status, bool committed) {
    AsyncOpKernel::DoneCallback done;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done = std::exchange(done_, nullptr);
    }
    if (done == nullptr) return;
    absl::Status ended = status;
    tensorflow::Tensor* output = nullptr;
    if (ended.ok()) ended = context_->allocate_output(0, {}, &output);
    if (ended.ok()) {
      output->scalar<bool>()() = committed;
    } else {
      context_->SetStatus(ended);
    }
    done();
  }

  OpKernelContext* const context_;
  std::mutex mutex_;
  AsyncOpKernel::DoneCallback done_;  // guarded by mutex_
  tensorflow::CancellationManager* const cancellation_;
  tensorflow::CancellationToken token_ = -1;
};

class CommitKernel final : public AsyncOpKernel {
 public:
  explicit CommitKernel(OpKernelConstruction* context)
      : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("commit_group", &group_));
    OP_REQUIRES_OK(context,
                   TakeStatus(KrCheckName(group_.data(), group_.size())));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto question = std::make_shared<Question>(context, std::move(done));
    if (!Question::Register(question)) return;
    // Given to the answer, which frees it.
    auto* kept = new std::shared_ptr<Question>(question);
    KrStatus* const refused =
        KrCommit(group_.data(), group_.size(), kept,
                 [](void* context, const KrStatus* status, bool committed) {
                   const std::unique_ptr<std::shared_ptr<Question>> asked(
                       static_cast<std::shared_ptr<Question>*>(context));
                   (*asked)->OnAnswer(ToAbsl(status), committed);
                 });
    if (refused == nullptr) return;
    delete kept;
    question->OnAnswer(TakeStatus(refused), false);
  }

 private:
  std::string group_;
};

}  // namespace

void RegisterCommitKernel(const char* device) {
  RegisterKernel<CommitKernel>("KerasRingCommit", device, {"committed"});
}

}  // namespace keras_ring
