#include "csrc/testing/fake_collective.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "csrc/collective/kernels/codec.h"

namespace keras_ring {
namespace {

void CopyAll(const std::vector<TensorSpan>& tensors, size_t element_size) {
  for (const TensorSpan& tensor : tensors) {
    if (tensor.count == 0 || tensor.input == tensor.output) continue;
    std::memcpy(tensor.output, tensor.input, tensor.count * element_size);
  }
}

// A copy as it comes back from the wire.
void CopyReduced(const Reduction& reduction, const TensorSpan& tensor) {
  const Codec* codec = FindCodec(reduction.dtype, reduction.wire_dtype());
  if (codec == nullptr) {
    return CopyAll({tensor}, DTypeSize(reduction.dtype));
  }
  std::vector<char> wire(tensor.count * codec->wire_size);
  codec->pack(wire.data(), tensor.input, tensor.count, /*prescale=*/1.0);
  codec->unpack(tensor.output, wire.data(), tensor.count);
}

}  // namespace

Status FakeCollective::Allreduce(const AllreduceArgs& args) {
  Call call;
  call.kind = Kind::kAllreduce;
  call.allreduce = args;
  return Run(std::move(call), [&] {
    for (const TensorSpan& tensor : args.tensors) CopyReduced(args, tensor);
  });
}

Status FakeCollective::Allgather(const AllgatherArgs& args) {
  Call call;
  call.kind = Kind::kAllgather;
  call.allgather = args;
  return Run(std::move(call), [&] {
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
  Call call;
  call.kind = Kind::kBroadcast;
  call.broadcast = args;
  return Run(std::move(call), [&] { CopyAll(args.tensors, 1); });
}

Status FakeCollective::Reducescatter(const ReducescatterArgs& args) {
  Call call;
  call.kind = Kind::kReducescatter;
  call.reducescatter = args;
  return Run(std::move(call), [&] {
    const size_t element_size = DTypeSize(args.dtype);
    const char* input = static_cast<const char*>(args.input);
    for (int rank = 0; rank < rank_; ++rank) {
      input += args.count_per_rank[rank] * element_size;
    }
    CopyReduced(args, {input, args.output, args.count_per_rank[rank_]});
  });
}

Status FakeCollective::Alltoall(const AlltoallArgs& args) {
  Call call;
  call.kind = Kind::kAlltoall;
  call.alltoall = args;
  call.alltoall.bytes = nullptr;  // it may not outlive the call
  const int size = args.size;
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      call.alltoall_bytes.push_back(args.bytes(from, to));
    }
  }
  return Run(std::move(call), [&] {
    const char* input = static_cast<const char*>(args.input);
    char* output = static_cast<char*>(args.output);
    for (int rank = 0; rank < rank_; ++rank) {
      input += args.bytes(rank_, rank);
    }
    for (int from = 0; from < size; ++from) {
      const size_t bytes = args.bytes(from, rank_);
      if (bytes == 0) continue;
      if (from == rank_) {
        std::memcpy(output, input, bytes);
      } else {
        std::memset(output, 0, bytes);
      }
      output += bytes;
    }
  });
}

Status FakeCollective::Run(Call call, const std::function<void()>& copy) {
  call.thread = std::this_thread::get_id();
  call.one_shot_bytes = one_shot_bytes_;
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return broken_;
    calls_.push_back(std::move(call));
    changed_.NotifyAll();
  }
  while (!AwaitTurn()) {
    if (progress_ != nullptr) (*progress_)();
  }
  MutexLock lock(mutex_);
  if (broken_.ok()) copy();
  return broken_;
}

bool FakeCollective::AwaitTurn() {
  MutexLock lock(mutex_);
  auto over = [this]()
                  KR_REQUIRES(mutex_) { return !blocked_ || !broken_.ok(); };
  return changed_.WaitUntil(
      mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(1),
      over);
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
