#include "csrc/runtime/executor.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "csrc/base/deadline.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"
#include "csrc/runtime/join_placeholders.h"

namespace keras_ring {
namespace {

// A bucket may need a collective per dtype; each has a tag of its own.
constexpr uint64_t kTagsPerDecision = 16;
static_assert(kNumDTypes <= kTagsPerDecision);

std::string LabelOf(const Command& command) {
  std::string label = command.items.front()->request.Label();
  if (command.items.size() > 1) {
    label += " and " + std::to_string(command.items.size() - 1) + " more";
  }
  return label;
}

int64_t RowBytes(TensorSpec spec) {
  spec.shape.front() = 1;
  return spec.num_bytes();
}

void Describe(const Request& request, DType dtype, int contributors,
              Reduction& reduction) {
  reduction.dtype = dtype;
  reduction.op = request.op;
  reduction.prescale = request.prescale;
  reduction.postscale = request.postscale;
  reduction.divisor = contributors;
  reduction.compression = request.compression;
}

}  // namespace

Executor::Executor(int rank, int size, Collective& collective,
                   Counters& counters, Callbacks callbacks, RankSet ranks)
    : rank_(rank),
      size_(size),
      collective_(collective),
      counters_(counters),
      callbacks_(std::move(callbacks)),
      ranks_(std::move(ranks)) {}

Executor::~Executor() { KR_CHECK(!thread_.joinable()); }

Status Executor::Start() {
  KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-exec", [this] {
                        SetThreadName("kr-exec", ranks_.number());
                        Run();
                      }));
  return OkStatus();
}

void Executor::Push(Bucket bucket) {
  Status aborted;
  {
    MutexLock lock(mutex_);
    aborted = aborted_;
    if (aborted.ok()) buckets_.push_back(std::move(bucket));
  }
  if (aborted.ok()) {
    changed_.NotifyAll();
  } else {
    End(bucket.entries, aborted);
  }
}

bool Executor::MayRunHere(const Bucket& bucket) {
  int64_t bytes = 0;
  for (const auto& item : bucket.command.items) {
    bytes += item->request.num_bytes();
  }
  // What the ranks bring is not in there.
  if (TakesAnyRows(bucket.command.items.front()->request.kind) ||
      bytes > collective_.InlineBytes()) {
    return false;
  }
  MutexLock lock(mutex_);
  if (running_ || !buckets_.empty() || !aborted_.ok()) return false;
  running_ = true;
  return true;
}

void Executor::RunOrPush(Bucket bucket, const std::function<void()>& progress) {
  KR_DCHECK(pusher_.IsOwner());
  if (!MayRunHere(bucket)) return Push(std::move(bucket));
  collective_.SetProgressCallback(&progress);
  Execute(std::move(bucket));
  collective_.SetProgressCallback(nullptr);
  {
    MutexLock lock(mutex_);
    running_ = false;
  }
}

void Executor::Abort(const Status& cause) {
  std::deque<Bucket> dropped;
  std::vector<TensorEntry> failed;
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = cause;
    dropped.swap(buckets_);
    failed.swap(failed_entries_);
  }
  changed_.NotifyAll();
  collective_.Abort(cause);
  End(failed, cause);
  for (Bucket& bucket : dropped) End(bucket.entries, cause);
}

void Executor::Stop(Duration cause_limit) {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  Status failure;
  {
    MutexLock lock(mutex_);
    if (changed_.WaitUntil(
            mutex_, Deadline::After(cause_limit).at(),
            [this]() KR_REQUIRES(mutex_) { return failed_entries_.empty(); })) {
      return;
    }
    failure = failure_;
  }
  Abort(failure);
}

void Executor::Run() {
  for (;;) {
    Bucket bucket;
    {
      MutexLock lock(mutex_);
      running_ = false;
      changed_.Wait(mutex_, [this]() KR_REQUIRES(mutex_) {
        return !buckets_.empty() || stopping_;
      });
      if (buckets_.empty()) return;
      bucket = std::move(buckets_.front());
      buckets_.pop_front();
      running_ = true;
    }
    Execute(std::move(bucket));
  }
}

void Executor::Execute(Bucket bucket) {
  const TimePoint began = std::chrono::steady_clock::now();
  JoinPlaceholders placeholders;
  Status status;
  if (bucket.entries.empty()) {
    status = placeholders.Make(bucket.command, bucket.decided, bucket.entries);
  }
  for (const TensorEntry& entry : bucket.entries) {
    counters_.negotiate_ns += (bucket.decided - entry.submitted).count();
  }
  counters_.queue_ns +=
      bucket.entries.size() * (began - bucket.decided).count();
  if (status.ok()) status = RunBucket(bucket.command, bucket.entries);
  if (!status.ok()) {
    status = status.WithContext(LabelOf(bucket.command));
    bool first;
    {
      MutexLock lock(mutex_);
      first = failure_.ok();
      if (first) failure_ = status;
    }
    if (first) callbacks_.failed(status);
    return FinishWhenAborted(std::move(bucket.entries));
  }
  ++counters_.buckets;
  counters_.entries += bucket.entries.size();
  // Before the completions: the coordinator may decide while we call back.
  callbacks_.executed();
  CountTime time(counters_.callback_ns);
  End(bucket.entries, status);
}

void Executor::End(std::vector<TensorEntry>& entries,
                   const Status& status) const {
  callbacks_.ended(entries, status);
  for (TensorEntry& entry : entries) entry.completion.Fire(status);
}

void Executor::FinishWhenAborted(std::vector<TensorEntry> entries) {
  Status aborted;
  {
    MutexLock lock(mutex_);
    aborted = aborted_;
    if (aborted.ok()) {
      std::move(entries.begin(), entries.end(),
                std::back_inserter(failed_entries_));
    }
  }
  if (!aborted.ok()) End(entries, aborted);
}

Status Executor::RunBucket(const Command& command,
                           std::vector<TensorEntry>& entries) {
  switch (entries.front().request->kind) {
    case RequestKind::kAllreduce:
      return Allreduce(command, entries);
    case RequestKind::kAllgather:
      return Allgather(command, entries.front());
    case RequestKind::kBroadcast:
      return Broadcast(command, entries);
    case RequestKind::kBarrier:
      return OkStatus();  // that all ranks asked was the point
    case RequestKind::kReducescatter:
      return Reducescatter(command, entries.front());
    case RequestKind::kAlltoall:
      return Alltoall(command, entries.front());
    case RequestKind::kJoin:
      break;  // is no bucket
  }
  return InternalError("unknown kind of request");
}

Status Executor::Allreduce(const Command& command,
                           std::vector<TensorEntry>& entries) {
  std::map<DType, AllreduceArgs> by_dtype;  // ordered: alike on every rank
  for (TensorEntry& entry : entries) {
    const Request& request = *entry.request;
    for (size_t i = 0; i < request.tensors.size(); ++i) {
      const TensorSpec& spec = request.tensors[i];
      AllreduceArgs& args = by_dtype[spec.dtype];
      Describe(request, spec.dtype, Contributors(command), args);
      args.tensors.push_back(
          TensorSpan{entry.inputs[i], entry.outputs[i], spec.num_elements()});
    }
  }
  for (auto& [dtype, args] : by_dtype) {
    args.tag = command.sequence * kTagsPerDecision + static_cast<int>(dtype);
    KR_RETURN_IF_ERROR(collective_.Allreduce(args));
  }
  return OkStatus();
}

Status Executor::Allgather(const Command& command, TensorEntry& entry) {
  const Response& agreed = *command.items.front();
  for (size_t i = 0; i < entry.request->tensors.size(); ++i) {
    const int64_t row_bytes = RowBytes(entry.request->tensors[i]);
    AllgatherArgs args;
    args.tag = command.sequence * kTagsPerDecision;
    int64_t total_rows = 0;
    for (int64_t rows : agreed.RowsOf(i)) {
      total_rows += rows;
      args.bytes_per_rank.push_back(rows * row_bytes);
    }
    KR_ASSIGN_OR_RETURN(args.output, entry.allocate(i, total_rows));
    args.input = entry.inputs[i];
    KR_RETURN_IF_ERROR(collective_.Allgather(args));
  }
  return OkStatus();
}

Status Executor::Broadcast(const Command& command,
                           std::vector<TensorEntry>& entries) {
  BroadcastArgs args;
  args.tag = command.sequence * kTagsPerDecision;
  args.root = ranks_.Local(entries.front().request->root);
  for (TensorEntry& entry : entries) {
    for (size_t i = 0; i < entry.request->tensors.size(); ++i) {
      args.tensors.push_back(TensorSpan{entry.inputs[i], entry.outputs[i],
                                        entry.request->tensors[i].num_bytes()});
    }
  }
  return collective_.Broadcast(args);
}

Status Executor::Reducescatter(const Command& command, TensorEntry& entry) {
  const Request& request = *entry.request;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& spec = request.tensors[i];
    const int64_t rows = spec.shape.front();
    const int64_t row_elements = RowBytes(spec) / DTypeSize(spec.dtype);
    ReducescatterArgs args;
    args.tag = command.sequence * kTagsPerDecision;
    Describe(request, spec.dtype, Contributors(command), args);
    for (int rank = 0; rank < size_; ++rank) {
      args.count_per_rank.push_back(ScatteredRows(rows, rank, size_) *
                                    row_elements);
    }
    KR_ASSIGN_OR_RETURN(args.output,
                        entry.allocate(i, ScatteredRows(rows, rank_, size_)));
    args.input = entry.inputs[i];
    KR_RETURN_IF_ERROR(collective_.Reducescatter(args));
  }
  return OkStatus();
}

Status Executor::Alltoall(const Command& command, TensorEntry& entry) {
  const std::vector<int64_t> rows = command.items.front()->RowMatrix();
  const int64_t row_bytes = RowBytes(entry.request->tensors.front());
  AlltoallArgs args;
  args.tag = command.sequence * kTagsPerDecision;
  for (int64_t count : rows) args.bytes.push_back(count * row_bytes);
  std::vector<int64_t> received;
  for (int from = 0; from < size_; ++from) {
    received.push_back(rows[from * size_ + rank_]);
  }
  const int64_t total =
      std::accumulate(received.begin(), received.end(), int64_t{0});
  KR_ASSIGN_OR_RETURN(args.output, entry.allocate(0, total));
  KR_ASSIGN_OR_RETURN(void* splits, entry.allocate(1, size_));
  std::copy(received.begin(), received.end(), static_cast<int64_t*>(splits));
  args.input = entry.inputs.front();
  return collective_.Alltoall(args);
}

}  // namespace keras_ring
