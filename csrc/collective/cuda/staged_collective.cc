#include "csrc/collective/cuda/staged_collective.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "csrc/base/round.h"
#include "csrc/collective/cuda/device_calls.h"

namespace keras_ring {
namespace {

using cuda::Gpu;
using cuda::ToDevice;

constexpr size_t kAlignment = 64;
constexpr size_t kMinBytes = size_t{1} << 20;

size_t Number(int64_t bytes) { return static_cast<size_t>(bytes); }

}  // namespace

// One call: the copies in, the call of the host's collective, the copies out.
class StagedCollective::Run {
 public:
  explicit Run(StagedCollective& owner) : owner_(owner) {}

  Status operator()(const AllreduceArgs& args) {
    AllreduceArgs on_host = args;
    return InPlace(DTypeSize(args.dtype), on_host, on_host.tensors);
  }

  Status operator()(const BroadcastArgs& args) {
    BroadcastArgs on_host = args;
    return InPlace(1, on_host, on_host.tensors);
  }

  Status operator()(const AllgatherArgs& args) {
    AllgatherArgs on_host = args;
    const auto& bytes = args.bytes_per_rank;
    const size_t own =
        bytes.size() > Number(owner_.rank_) ? bytes[Number(owner_.rank_)] : 0;
    return Apart(own, std::accumulate(bytes.begin(), bytes.end(), size_t{0}),
                 on_host);
  }

  Status operator()(const ReducescatterArgs& args) {
    ReducescatterArgs on_host = args;
    const auto& counts = args.count_per_rank;
    const size_t element = DTypeSize(args.dtype);
    const int64_t own =
        counts.size() > Number(owner_.rank_) ? counts[Number(owner_.rank_)] : 0;
    return Apart(
        Number(std::accumulate(counts.begin(), counts.end(), int64_t{0})) *
            element,
        Number(own) * element, on_host);
  }

  Status operator()(const AlltoallArgs& args) {
    AlltoallArgs on_host = args;
    size_t sent = 0;
    size_t received = 0;
    for (int peer = 0; args.bytes && peer < args.size; ++peer) {
      sent += args.bytes(owner_.rank_, peer);
      received += args.bytes(peer, owner_.rank_);
    }
    return Apart(sent, received, on_host);
  }

 private:
  // A call whose results have the sizes of its inputs.
  template <typename Args>
  Status InPlace(size_t element, Args& args, std::vector<TensorSpan>& tensors) {
    const std::vector<TensorSpan> there = tensors;
    size_t total = 0;
    for (const TensorSpan& tensor : there) {
      total += RoundUp(Number(tensor.count) * element, kAlignment);
    }
    KR_ASSIGN_OR_RETURN(char* next, owner_.Reserve(total));
    for (TensorSpan& tensor : tensors) {
      const size_t bytes = Number(tensor.count) * element;
      KR_RETURN_IF_ERROR(FromDevice(next, tensor.input, bytes));
      tensor.input = tensor.output = next;
      next += RoundUp(bytes, kAlignment);
    }
    KR_RETURN_IF_ERROR(Synchronize());
    KR_RETURN_IF_ERROR(OnHost(args));
    for (size_t i = 0; i < there.size(); ++i) {
      KR_RETURN_IF_ERROR(ToDeviceFrom(tensors[i].output, there[i].output,
                                      Number(there[i].count) * element));
    }
    return Synchronize();
  }

  // A call with one input and one output, which do not overlap.
  template <typename Args>
  Status Apart(size_t input_bytes, size_t output_bytes, Args& args) {
    const size_t begin = RoundUp(input_bytes, kAlignment);
    KR_ASSIGN_OR_RETURN(char* const memory,
                        owner_.Reserve(begin + output_bytes));
    void* const output = args.output;
    KR_RETURN_IF_ERROR(FromDevice(memory, args.input, input_bytes));
    args.input = memory;
    args.output = memory + begin;
    KR_RETURN_IF_ERROR(Synchronize());
    KR_RETURN_IF_ERROR(OnHost(args));
    KR_RETURN_IF_ERROR(ToDeviceFrom(args.output, output, output_bytes));
    return Synchronize();
  }

  Status FromDevice(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return OkStatus();
    return KR_CUDA(owner_.gpu_->driver(), cuMemcpyDtoHAsync, to, ToDevice(from),
                   bytes, owner_.stream_->get());
  }
  Status ToDeviceFrom(const void* from, void* to, size_t bytes) {
    if (bytes == 0) return OkStatus();
    return KR_CUDA(owner_.gpu_->driver(), cuMemcpyHtoDAsync, ToDevice(to), from,
                   bytes, owner_.stream_->get());
  }
  Status Synchronize() {
    return KR_CUDA(owner_.gpu_->driver(), cuStreamSynchronize,
                   owner_.stream_->get());
  }

  template <typename Args>
  Status OnHost(Args& args) {
    args.ready.clear();
    return RunNow(owner_.host_, args);
  }

  StagedCollective& owner_;
};

StagedCollective::StagedCollective(int rank, int size, cuda::CudaAccess& gpus,
                                   Collective& host)
    : rank_(rank), size_(size), gpus_(gpus), host_(host) {}

StagedCollective::~StagedCollective() {
  if (memory_ != nullptr) gpu_->FreeHost(memory_);
}

void StagedCollective::Start(const CollectiveArgs& args, Done done) {
  done(broken_.Run([&] { return Do(args); }));
}

Status StagedCollective::Do(const CollectiveArgs& args) {
  const CallArgs& call = CallOf(args);
  if (gpu_ == nullptr) KR_RETURN_IF_ERROR(Connect(call.ordinal));
  KR_RETURN_IF_ERROR(CheckOrdinal(*gpu_, call.ordinal));
  const Gpu::Current current(*gpu_);
  KR_RETURN_IF_ERROR(current.status());
  for (const auto& event : call.ready) KR_RETURN_IF_ERROR(event->Wait());
  return std::visit(Run(*this), args);
}

Status StagedCollective::Connect(int ordinal) {
  KR_ASSIGN_OR_RETURN(gpu_, gpus_.Open(ordinal));
  KR_ASSIGN_OR_RETURN(stream_, cuda::OwnStream::Create(gpu_));
  return OkStatus();
}

Result<char*> StagedCollective::Reserve(size_t bytes) {
  if (bytes <= capacity_) return memory_;
  if (memory_ != nullptr) gpu_->FreeHost(memory_);
  memory_ = nullptr;
  capacity_ = 0;
  const size_t wanted = std::max(kMinBytes, bytes);
  KR_ASSIGN_OR_RETURN(void* const memory, gpu_->AllocateHost(wanted));
  memory_ = static_cast<char*>(memory);
  capacity_ = wanted;
  return memory_;
}

std::string StagedCollective::Explain() const {
  return std::to_string(size_) +
         " ranks, whose tensors are copied to host memory and back\n" +
         host_.Explain();
}

void StagedCollective::Abort(const Status& cause) {
  broken_.Set(cause);
  host_.Abort(cause);
}

}  // namespace keras_ring
