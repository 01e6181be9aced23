#include "csrc/collective/cuda/nccl_collective.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "csrc/base/logging.h"
#include "csrc/base/round.h"
#include "csrc/collective/arguments.h"
#include "csrc/collective/cuda/call_memory.h"
#include "csrc/collective/cuda/device_calls.h"

namespace keras_ring {
namespace {

using cuda::CopyRow;
using cuda::FoldRow;
using cuda::Gpu;
using cuda::kNcclInProgress;
using cuda::kNcclSuccess;
using cuda::kNcclUint8;
using cuda::NcclCode;
using cuda::NcclComm;

constexpr int64_t kVector = cuda::kVectorBytes;
constexpr size_t kMinBuffer = size_t{8} << 20;
// How often NCCL is asked whether it has taken a call: at first without a
// pause.
constexpr auto kBusy = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::microseconds(20);
// How long the end of a communicator may take.
constexpr auto kEndLimit = std::chrono::seconds(2);

// Returns NCCL's number; -1 if it has no such dtype.
int NcclDTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return cuda::kNcclInt8;
    case DType::kUint8:
      return cuda::kNcclUint8;
    case DType::kInt32:
      return cuda::kNcclInt32;
    case DType::kInt64:
      return cuda::kNcclInt64;
    case DType::kFloat16:
      return cuda::kNcclFloat16;
    case DType::kBfloat16:
      return cuda::kNcclBfloat16;
    case DType::kFloat32:
      return cuda::kNcclFloat32;
    case DType::kFloat64:
      return cuda::kNcclFloat64;
    default:
      return -1;
  }
}

int NcclOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return cuda::kNcclMin;
    case ReduceOp::kMax:
      return cuda::kNcclMax;
    case ReduceOp::kProduct:
      return cuda::kNcclProduct;
    default:
      return cuda::kNcclSum;
  }
}

bool CanReduce(const Reduction& reduction) {
  if (reduction.op == ReduceOp::kAdasum) return false;
  if (NcclDTypeOf(reduction.dtype) < 0) return false;
  // Compressed values are summed as float32, and NCCL sums what there is.
  if (reduction.dtype == DType::kFloat64 &&
      reduction.wire_dtype() != reduction.dtype) {
    return false;
  }
  return !IsInteger(reduction.dtype) || FinishOf(reduction).identity();
}

// A reduction as what a rank does before NCCL, and after it: each a fold of one
// array.
struct Parts {
  explicit Parts(const Reduction& reduction)
      : before(reduction), finish(reduction) {
    compresses = reduction.wire_dtype() != reduction.dtype;
    before.op = ReduceOp::kSum;
    before.postscale = 1.0;
    before.divisor = 1;
    scales = compresses || reduction.prescale != 1.0;
    // A sum is rounded to the wire dtype once it is finished.
    finish.prescale = 1.0;
    finish.compression = Compression::kNone;
    finishes = compresses || !FinishOf(reduction).identity();
    round = before;
    round.prescale = 1.0;
  }

  Reduction before;
  Reduction finish;
  Reduction round;
  bool compresses;
  bool scales;
  bool finishes;
};

// Finishes the sums of `folds`; `results` are where they are then.
Status FinishSums(const Parts& parts, const FoldRows& folds,
                  const FoldRows& results, cuda::KernelSet& kernels,
                  CallMemory& memory, cuda::Stream stream) {
  if (!parts.finishes) return OkStatus();
  KR_RETURN_IF_ERROR(folds.Launch(kernels, memory, stream, parts.finish, 1, 1));
  if (!parts.compresses) return OkStatus();
  return results.Launch(kernels, memory, stream, parts.round, 1, 1);
}

}  // namespace

// What a rank tells the others before they use NCCL.
struct NcclCollective::Facts {
  cuda::Uuid device;
  int32_t version;  // 0: it has none
  char why_not[180];
};

// What exists once the device is open.
struct NcclCollective::Connection {
  std::shared_ptr<Gpu> gpu;
  std::unique_ptr<cuda::KernelSet> kernels;
  std::optional<cuda::OwnStream> stream;
  // Small tensors, one after the other. The last is used; each is at least
  // twice as large as the one before, and stays: to free memory of a device is
  // to wait for all of its work.
  std::vector<char*> buffers;
  size_t buffer_bytes = 0;

  ~Connection() {
    if (!stream.has_value()) return;
    const Gpu::Current current(*gpu);
    gpu->driver().cuStreamSynchronize(stream->get());
    for (char* buffer : buffers) gpu->Free(buffer);
  }
};

NcclCollective::NcclCollective(int rank, int size, cuda::CudaAccess& gpus,
                               Loader load, const NcclOptions& options,
                               Collective& host,
                               std::unique_ptr<Collective> fallback)
    : rank_(rank),
      size_(size),
      gpus_(gpus),
      load_(std::move(load)),
      options_(options),
      host_(host),
      fallback_(std::move(fallback)),
      calls_(options.grace) {}

NcclCollective::~NcclCollective() {
  const bool done = calls_.Stop();
  if (connection_ == nullptr) return;
  const Gpu::Current current(*connection_->gpu);
  if (!done) {
    KR_LOG(kWarning) << "the stream of " << connection_->gpu->name()
                     << " is not done with what it was given; what it uses is "
                        "kept until this process ends";
    static_cast<void>(connection_.release());
  }
  MutexLock lock(comm_mutex_);
  if (comm_ == nullptr) return;
  // All ranks end it at about the same time. One that ends alone gives up.
  NcclCode code = nccl_->ncclCommFinalize(comm_);
  const Deadline deadline = Deadline::After(kEndLimit);
  while (code == kNcclInProgress && SystemTime().Now() < deadline.at()) {
    comm_aborts_.WaitUntil(comm_mutex_, SystemTime().Now() + kPause,
                           [] { return false; });
    if (nccl_->ncclCommGetAsyncError(comm_, &code) != kNcclSuccess) break;
  }
  if (code == kNcclSuccess) {
    nccl_->ncclCommDestroy(comm_);
  } else {
    nccl_->ncclCommAbort(comm_);
  }
}

void NcclCollective::Start(const CollectiveArgs& args, Done done) {
  Status status = broken_.Run([&]() -> Status {
    const CallArgs& call = CallOf(args);
    if (!connected_) return Connect(call.ordinal, call.tag);
    if (!why_not_.empty()) return OkStatus();
    return CheckOrdinal(*connection_->gpu, call.ordinal);
  });
  if (!status.ok()) return done(status);
  if (!why_not_.empty() || !CanDo(args)) {
    return fallback_->Start(args, std::move(done));
  }
  const Gpu::Current current(*connection_->gpu);
  CallMemory& memory = calls_.Begin();
  status = broken_.Run([&]() -> Status {
    KR_RETURN_IF_ERROR(current.status());
    return Run(args, memory);
  });
  if (!status.ok()) {
    // What others wait for will not come.
    Abort(status);
  }
  calls_.End(connection_->stream->get(), std::move(done));
}

bool NcclCollective::CanDo(const CollectiveArgs& args) {
  if (const auto* allreduce = std::get_if<AllreduceArgs>(&args)) {
    return CanReduce(*allreduce);
  }
  if (const auto* scatter = std::get_if<ReducescatterArgs>(&args)) {
    return CanReduce(*scatter);
  }
  return true;
}

// --- The start ---

Status NcclCollective::Connect(int ordinal, uint64_t tag) {
  Facts own = {};
  const Result<const cuda::Nccl*> loaded = load_();
  if (loaded.ok()) {
    nccl_ = *loaded;
    int version = 0;
    nccl_->ncclGetVersion(&version);
    own.version = version;
  } else {
    std::snprintf(own.why_not, sizeof(own.why_not), "%s",
                  loaded.status().message().c_str());
  }
  KR_ASSIGN_OR_RETURN(const auto gpu, gpus_.Open(ordinal));
  own.device = gpu->uuid();
  std::vector<Facts> all(static_cast<size_t>(size_));
  AllgatherArgs gather;
  gather.tag = tag;
  gather.input = &own;
  gather.output = all.data();
  gather.bytes_per_rank.assign(static_cast<size_t>(size_), sizeof(Facts));
  KR_RETURN_IF_ERROR(RunNow(host_, gather));
  why_not_ = WhyNot(all);
  if (why_not_.empty()) {
    version_ = cuda::NcclVersionText(own.version);
    KR_RETURN_IF_ERROR(OpenDevice(ordinal));
    KR_RETURN_IF_ERROR(Communicate(tag));
  }
  connected_ = true;
  return OkStatus();
}

std::string NcclCollective::WhyNot(const std::vector<Facts>& all) {
  std::set<std::string> devices;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Facts& facts = all[rank];
    const std::string who = "rank " + std::to_string(rank);
    if (facts.version == 0) return who + ": " + facts.why_not;
    if (facts.version != all[0].version) {
      return who + " has NCCL " + cuda::NcclVersionText(facts.version) +
             ", and rank 0 has " + cuda::NcclVersionText(all[0].version);
    }
    if (!devices.emplace(facts.device.bytes, sizeof(facts.device.bytes))
             .second) {
      return who + " shares its device with another rank";
    }
  }
  return "";
}

Status NcclCollective::OpenDevice(int ordinal) {
  auto connection = std::make_unique<Connection>();
  KR_ASSIGN_OR_RETURN(connection->gpu, gpus_.Open(ordinal));
  const Gpu::Current current(*connection->gpu);
  KR_RETURN_IF_ERROR(current.status());
  KR_ASSIGN_OR_RETURN(connection->kernels,
                      cuda::KernelSet::Load(connection->gpu));
  KR_ASSIGN_OR_RETURN(connection->stream,
                      cuda::OwnStream::Create(connection->gpu));
  KR_RETURN_IF_ERROR(calls_.Open(connection->gpu));
  connection_ = std::move(connection);
  return OkStatus();
}

Status NcclCollective::Communicate(uint64_t tag) {
  const Gpu::Current current(*connection_->gpu);
  KR_RETURN_IF_ERROR(current.status());
  // The ranks wait for rank 0 anyway: it sends zeros if it has no id.
  cuda::NcclUniqueId id = {};
  Status made;
  if (rank_ == 0) {
    made = StatusOf(*nccl_, nccl_->ncclGetUniqueId(&id), nullptr,
                    "ncclGetUniqueId");
  }
  BroadcastArgs broadcast;
  broadcast.tag = tag;
  broadcast.tensors.push_back({&id, &id, sizeof(id)});
  KR_RETURN_IF_ERROR(RunNow(host_, broadcast));
  KR_RETURN_IF_ERROR(made);
  {
    MutexLock lock(comm_mutex_);
    cuda::NcclConfig config;
    const NcclCode code =
        nccl_->ncclCommInitRankConfig(&comm_, size_, id, rank_, &config);
    if (code != kNcclSuccess && code != kNcclInProgress) {
      return Failed(code, "ncclCommInitRankConfig");
    }
  }
  return Settle("ncclCommInitRankConfig",
                Deadline::After(options_.connect_limit));
}

Status NcclCollective::Failed(NcclCode code, const char* function) {
  const Status failed = StatusOf(*nccl_, code, comm_, function);
  return Status(
      failed.code(),
      failed.message() +
          "; NCCL_DEBUG=INFO tells more. Usual causes are an interface that "
          "not all hosts have (NCCL_SOCKET_IFNAME), a firewall between them, "
          "and too little shared memory in a container");
}

Status NcclCollective::Settle(const char* function, Deadline deadline) {
  const TimePoint began = SystemTime().Now();
  MutexLock lock(comm_mutex_);
  for (;;) {
    if (comm_aborted_) return broken_.Get();
    NcclCode code = kNcclSuccess;
    const NcclCode asked = nccl_->ncclCommGetAsyncError(comm_, &code);
    if (asked != kNcclSuccess) return Failed(asked, "ncclCommGetAsyncError");
    if (code == kNcclSuccess) return OkStatus();
    if (code != kNcclInProgress) return Failed(code, function);
    const TimePoint now = SystemTime().Now();
    if (now >= deadline.at()) {
      return DeadlineExceededError(std::string(function) +
                                   ": NCCL was not ready in time; "
                                   "NCCL_DEBUG=INFO tells what it waits for");
    }
    if (now - began < kBusy) continue;
    comm_aborts_.WaitUntil(
        comm_mutex_, now + kPause,
        [this]() KR_REQUIRES(comm_mutex_) { return comm_aborted_; });
  }
}

// --- The calls ---

Status NcclCollective::Run(const CollectiveArgs& args, CallMemory& memory) {
  KR_RETURN_IF_ERROR(AwaitReady(connection_->gpu->driver(), CallOf(args),
                                connection_->stream->get()));
  return std::visit([&](const auto& one) -> Status { return Do(one, memory); },
                    args);
}

template <typename Issue>
Status NcclCollective::Group(Issue issue) {
  {
    MutexLock lock(comm_mutex_);
    if (comm_aborted_) return broken_.Get();
    NcclCode code = nccl_->ncclGroupStart();
    if (code == kNcclSuccess) code = issue(comm_);
    // Also after an error, or the next group would be a part of this one.
    const NcclCode ended = nccl_->ncclGroupEnd();
    if (code == kNcclSuccess || code == kNcclInProgress) code = ended;
    if (code != kNcclSuccess && code != kNcclInProgress) {
      return Failed(code, "a group of calls");
    }
  }
  return Settle("a group of calls", Deadline::After(options_.connect_limit));
}

Result<char*> NcclCollective::Reserve(size_t bytes) {
  Connection& on = *connection_;
  if (bytes > on.buffer_bytes) {
    const size_t wanted = std::max({kMinBuffer, bytes, 2 * on.buffer_bytes});
    KR_ASSIGN_OR_RETURN(void* const buffer, on.gpu->Allocate(wanted));
    on.buffers.push_back(static_cast<char*>(buffer));
    on.buffer_bytes = wanted;
    // The gaps between tensors are reduced as well, and nobody reads the
    // result.
    KR_RETURN_IF_ERROR(KR_CUDA(on.gpu->driver(), cuMemsetD8Async,
                               cuda::ToDevice(buffer), 0, wanted,
                               on.stream->get()));
  }
  return on.buffers.empty() ? nullptr : on.buffers.back();
}

Status NcclCollective::Do(const AllreduceArgs& args, CallMemory& memory) {
  KR_RETURN_IF_ERROR(CheckReduction(args));
  const int64_t element = static_cast<int64_t>(DTypeSize(args.dtype));
  const Parts parts(args);
  int64_t packed = 0;  // bytes
  for (const TensorSpan& tensor : args.tensors) {
    const int64_t bytes = tensor.count * element;
    if (bytes < options_.direct_bytes) packed += RoundUp(bytes, kVector);
  }
  KR_ASSIGN_OR_RETURN(char* const buffer, Reserve(static_cast<size_t>(packed)));
  struct Array {
    const void* input;
    void* output;
    size_t count;
  };
  std::vector<Array> arrays;
  CopyRows copies_in;
  CopyRows copies_out;
  FoldRows folds_in;
  FoldRows folds_out;
  FoldRows results;
  int64_t at = 0;
  for (const TensorSpan& tensor : args.tensors) {
    const int64_t bytes = tensor.count * element;
    if (bytes == 0) continue;
    const bool is_small = bytes < options_.direct_bytes;
    // Where it is reduced.
    void* const there = is_small ? buffer + at : tensor.output;
    if (is_small) at += RoundUp(bytes, kVector);
    if (parts.scales) {
      folds_in.AddOne(there, tensor.input, tensor.count, element);
    } else if (is_small) {
      copies_in.Add(there, tensor.input, bytes);
    }
    if (parts.finishes) {
      folds_out.AddOne(tensor.output, there, tensor.count, element);
      results.AddOne(tensor.output, tensor.output, tensor.count, element);
    } else if (is_small) {
      copies_out.Add(tensor.output, there, bytes);
    }
    if (is_small) continue;
    arrays.push_back({parts.scales ? there : tensor.input, there,
                      static_cast<size_t>(tensor.count)});
  }
  if (packed > 0) {
    arrays.push_back({buffer, buffer, static_cast<size_t>(packed / element)});
  }
  if (arrays.empty()) return OkStatus();
  const cuda::Stream stream = connection_->stream->get();
  cuda::KernelSet& kernels = *connection_->kernels;
  KR_RETURN_IF_ERROR(
      memory.Begin(2 * CallMemory::BytesOf<CopyRow>(args.tensors.size()) +
                   3 * CallMemory::BytesOf<FoldRow>(args.tensors.size())));
  KR_RETURN_IF_ERROR(copies_in.Launch(kernels, memory, stream));
  KR_RETURN_IF_ERROR(
      folds_in.Launch(kernels, memory, stream, parts.before, 1, 1));
  KR_RETURN_IF_ERROR(Group([&](NcclComm comm) {
    for (const Array& array : arrays) {
      const NcclCode code = nccl_->ncclAllReduce(
          array.input, array.output, array.count, NcclDTypeOf(args.dtype),
          NcclOpOf(args.op), comm, stream);
      if (code != kNcclSuccess && code != kNcclInProgress) return code;
    }
    return kNcclSuccess;
  }));
  KR_RETURN_IF_ERROR(
      FinishSums(parts, folds_out, results, kernels, memory, stream));
  return copies_out.Launch(kernels, memory, stream);
}

Status NcclCollective::Do(const ReducescatterArgs& args, CallMemory& memory) {
  KR_RETURN_IF_ERROR(CheckReducescatter(args, size_));
  const size_t element = DTypeSize(args.dtype);
  const Parts parts(args);
  const auto& counts = args.count_per_rank;
  const int64_t total =
      std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (total == 0) return OkStatus();
  const cuda::Stream stream = connection_->stream->get();
  cuda::KernelSet& kernels = *connection_->kernels;
  KR_RETURN_IF_ERROR(memory.Begin(0));
  const char* input = static_cast<const char*>(args.input);
  if (parts.scales) {
    KR_ASSIGN_OR_RETURN(char* const scaled,
                        Reserve(static_cast<size_t>(total) * element));
    FoldRows folds;
    folds.AddOne(scaled, input, total, element);
    KR_RETURN_IF_ERROR(
        folds.Launch(kernels, memory, stream, parts.before, 1, 1));
    input = scaled;
  }
  KR_RETURN_IF_ERROR(Group([&](NcclComm comm) {
    const char* block = input;
    for (int rank = 0; rank < size_; ++rank) {
      const size_t count = static_cast<size_t>(counts[rank]);
      if (count > 0) {
        const NcclCode code = nccl_->ncclReduce(
            block, rank == rank_ ? args.output : nullptr, count,
            NcclDTypeOf(args.dtype), NcclOpOf(args.op), rank, comm, stream);
        if (code != kNcclSuccess && code != kNcclInProgress) return code;
      }
      block += count * element;
    }
    return kNcclSuccess;
  }));
  FoldRows folds;
  folds.AddOne(args.output, args.output, counts[rank_], element);
  return FinishSums(parts, folds, folds, kernels, memory, stream);
}

Status NcclCollective::Do(const BroadcastArgs& args, CallMemory& memory) {
  KR_RETURN_IF_ERROR(CheckRoot(args, size_));
  KR_RETURN_IF_ERROR(memory.Begin(0));
  return Group([&](NcclComm comm) {
    for (const TensorSpan& tensor : args.tensors) {
      if (tensor.count == 0) continue;
      const NcclCode code = nccl_->ncclBroadcast(
          tensor.input, tensor.output, static_cast<size_t>(tensor.count),
          kNcclUint8, args.root, comm, connection_->stream->get());
      if (code != kNcclSuccess && code != kNcclInProgress) return code;
    }
    return kNcclSuccess;
  });
}

Status NcclCollective::Do(const AllgatherArgs& args, CallMemory& memory) {
  KR_RETURN_IF_ERROR(CheckSizes(args.bytes_per_rank.size(), size_));
  KR_RETURN_IF_ERROR(memory.Begin(0));
  // Blocks have sizes of their own: each comes from its rank.
  return Group([&](NcclComm comm) {
    char* block = static_cast<char*>(args.output);
    for (int rank = 0; rank < size_; ++rank) {
      const size_t bytes = args.bytes_per_rank[static_cast<size_t>(rank)];
      if (bytes > 0) {
        const NcclCode code = nccl_->ncclBroadcast(
            rank == rank_ ? args.input : block, block, bytes, kNcclUint8, rank,
            comm, connection_->stream->get());
        if (code != kNcclSuccess && code != kNcclInProgress) return code;
      }
      block += bytes;
    }
    return kNcclSuccess;
  });
}

Status NcclCollective::Do(const AlltoallArgs& args, CallMemory& memory) {
  KR_RETURN_IF_ERROR(CheckAlltoall(args, size_));
  KR_RETURN_IF_ERROR(memory.Begin(0));
  const cuda::Stream stream = connection_->stream->get();
  return Group([&](NcclComm comm) {
    const char* from = static_cast<const char*>(args.input);
    char* to = static_cast<char*>(args.output);
    for (int peer = 0; peer < size_; ++peer) {
      const size_t sent = args.bytes(rank_, peer);
      const size_t received = args.bytes(peer, rank_);
      NcclCode code = kNcclSuccess;
      if (sent > 0) {
        code = nccl_->ncclSend(from, sent, kNcclUint8, peer, comm, stream);
      }
      if (received > 0 && (code == kNcclSuccess || code == kNcclInProgress)) {
        code = nccl_->ncclRecv(to, received, kNcclUint8, peer, comm, stream);
      }
      if (code != kNcclSuccess && code != kNcclInProgress) return code;
      from += sent;
      to += received;
    }
    return kNcclSuccess;
  });
}

// --- The end ---

std::string NcclCollective::Explain() const {
  if (!connected_) {
    return "by NCCL, if all ranks have it and a device each: that is seen when "
           "the first tensor comes\n";
  }
  if (why_not_.empty()) {
    return std::to_string(size_) + " ranks, by NCCL " + version_ + "\n";
  }
  return "not by NCCL: " + why_not_ + "\n" + fallback_->Explain();
}

void NcclCollective::Abort(const Status& cause) {
  broken_.Set(cause);
  // Before the device reaches the ends of calls that have no results.
  calls_.Abort(broken_.Get());
  {
    MutexLock lock(comm_mutex_);
    if (comm_ != nullptr && !comm_aborted_) {
      // Ends what the device does for it, so that events are reached.
      nccl_->ncclCommAbort(comm_);
      comm_ = nullptr;
    }
    comm_aborted_ = true;
  }
  comm_aborts_.NotifyAll();
  fallback_->Abort(cause);
}

}  // namespace keras_ring
