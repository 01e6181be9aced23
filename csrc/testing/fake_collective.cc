#include "csrc/testing/fake_collective.h"

#include <chrono>
#include <cstring>
#include <utility>

namespace keras_ring {
namespace {

void CopyAll(const std::vector<TensorSpan>& tensors, size_t element_size) {
  for (const TensorSpan& tensor : tensors) {
    if (tensor.count == 0 || tensor.input == tensor.output) continue;
    std::memcpy(tensor.output, tensor.input, tensor.count * element_size);
  }
}

}  // namespace

Status FakeCollective::Allreduce(const AllreduceArgs& args) {
  return Run(Call{Kind::kAllreduce, args, {}, {}},
             [&] { CopyAll(args.tensors, DTypeSize(args.dtype)); });
}

Status FakeCollective::Allgather(const AllgatherArgs& args) {
  return Run(Call{Kind::kAllgather, {}, args, {}}, [&] {
    char* output = static_cast<char*>(args.output);
    for (size_t rank = 0; rank < args.bytes_per_rank.size(); ++rank) {
      const size_t bytes = args.bytes_per_rank[rank];
      if (bytes == 0) continue;
      if (rank == static_cast<size_t>(rank_)) {
        std::memcpy(output, args.input, bytes);
      } else {
        std::memset(output, 0, bytes);
      }
      output += bytes;
    }
  });
}

Status FakeCollective::Broadcast(const BroadcastArgs& args) {
  return Run(Call{Kind::kBroadcast, {}, {}, args},
             [&] { CopyAll(args.tensors, 1); });
}

Status FakeCollective::Run(Call call, const std::function<void()>& copy) {
  MutexLock lock(mutex_);
  if (!broken_.ok()) return broken_;
  calls_.push_back(std::move(call));
  changed_.NotifyAll();
  changed_.Wait(mutex_, [this]() KR_REQUIRES(mutex_) {
    return !blocked_ || !broken_.ok();
  });
  if (broken_.ok()) copy();
  return broken_;
}

void FakeCollective::Abort(const Status& cause) { Fail(cause); }

void FakeCollective::Block() {
  MutexLock lock(mutex_);
  blocked_ = true;
}

void FakeCollective::Release() {
  MutexLock lock(mutex_);
  blocked_ = false;
  changed_.NotifyAll();
}

void FakeCollective::Fail(const Status& status) {
  MutexLock lock(mutex_);
  if (broken_.ok()) broken_ = status;
  changed_.NotifyAll();
}

bool FakeCollective::AwaitCalls(size_t count) {
  MutexLock lock(mutex_);
  return changed_.WaitUntil(
      mutex_, std::chrono::steady_clock::now() + std::chrono::seconds(30),
      [&]() KR_REQUIRES(mutex_) { return calls_.size() >= count; });
}

std::vector<FakeCollective::Call> FakeCollective::calls() {
  MutexLock lock(mutex_);
  return calls_;
}

}  // namespace keras_ring
