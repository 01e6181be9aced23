#include "csrc/runtime/executor.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "csrc/base/deadline.h"
#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {
namespace {

// A bucket may need a collective per dtype; each has a tag of its own.
constexpr uint64_t kTagsPerDecision = 16;
static_assert(kNumDTypes <= kTagsPerDecision);

// The tag of its first collective; the tags of the others follow.
uint64_t TagOf(const ExecuteCommand& command) {
  return command.sequence * kTagsPerDecision;
}

std::string LabelOf(const ExecuteCommand& command) {
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

Executor::Executor(int rank, int size, const CollectiveSet& collectives,
                   Counters& counters, Callbacks callbacks, RankSet ranks,
                   const Clock& clock, TraceSink* trace)
    : rank_(rank),
      size_(size),
      collectives_(collectives),
      counters_(counters),
      meter_(counters, trace),
      callbacks_(std::move(callbacks)),
      ranks_(std::move(ranks)),
      clock_(clock) {}

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

InlineExecution* Executor::InlineExecutionFor(const Bucket& bucket) const {
  const Request& request = bucket.command.items.front()->request;
  // The request does not contain the sizes that the ranks contribute.
  if (TakesAnyRows(request.kind)) return nullptr;
  Collective* collective = collectives_.Find(request.device);
  if (collective == nullptr) return nullptr;
  InlineExecution* execution = collective->inline_execution();
  if (execution == nullptr) return nullptr;
  int64_t bytes = 0;
  for (const auto& item : bucket.command.items) {
    bytes += item->request.num_bytes();
  }
  return bytes <= execution->InlineBytes() ? execution : nullptr;
}

void Executor::RunOrPush(Bucket bucket, const std::function<void()>& progress) {
  KR_DCHECK(pusher_.IsOwner());
  bucket.tuned = std::exchange(tuned_, {});
  InlineExecution* const here = InlineExecutionFor(bucket);
  Flight* flight = nullptr;
  if (here != nullptr) {
    MutexLock lock(mutex_);
    if (in_flight_.empty() && buckets_.empty() && aborted_.ok()) {
      flight = &AddFlight(std::move(bucket));
    }
  }
  if (flight == nullptr) return Push(std::move(bucket));
  here->SetProgressCallback(&progress);
  Launch(*flight);
  here->SetProgressCallback(nullptr);
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
  collectives_.Abort(cause);
  End(failed, cause);
  for (Bucket& bucket : dropped) End(bucket.entries, cause);
}

void Executor::Stop(Duration limit) {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (!AwaitFlights(limit)) {
    const Status lost = DeadlineExceededError(
        Unfinished() + ": not done " +
        std::to_string(std::chrono::duration<double>(limit).count()) +
        " s after rank " + std::to_string(ranks_.Global(rank_)) +
        " began to leave; the collective has lost it");
    KR_LOG(kWarning) << lost.message();
    Abort(lost);
    if (!AwaitFlights(limit)) GiveUp();
  }
  if (thread_.joinable()) thread_.join();
  Status failure;
  {
    MutexLock lock(mutex_);
    if (changed_.WaitUntil(
            mutex_, Deadline::After(limit).at(),
            [this]() KR_REQUIRES(mutex_) { return failed_entries_.empty(); })) {
      return;
    }
    failure = failure_;
  }
  Abort(failure);
}

bool Executor::AwaitFlights(Duration limit) {
  MutexLock lock(mutex_);
  for (;;) {
    const uint64_t ended = num_ended_;
    const auto is_over = [this]() KR_REQUIRES(mutex_) {
      return in_flight_.empty() && buckets_.empty();
    };
    const bool moved = changed_.WaitUntil(
        mutex_, Deadline::After(limit).at(),
        [&]() KR_REQUIRES(mutex_) { return is_over() || num_ended_ != ended; });
    if (is_over()) return true;
    if (moved) continue;
    if (!in_flight_.empty() &&
        std::all_of(in_flight_.begin(), in_flight_.end(),
                    [](const Flight& one) { return one.goes_on_alone(); })) {
      return false;
    }
  }
}

std::string Executor::Unfinished() {
  MutexLock lock(mutex_);
  std::string labels;
  for (const Flight& flight : in_flight_) {
    if (!labels.empty()) labels += ", ";
    labels += LabelOf(flight.bucket.command);
  }
  return labels;
}

void Executor::GiveUp() {
  // Kept to the end of the process: a call of a lost bucket may be done yet.
  static Flights* const kept = new Flights();
  static Mutex* const mutex = new Mutex();
  Flights lost;
  Status cause;
  {
    MutexLock lock(mutex_);
    cause = aborted_;
    for (auto flight = in_flight_.begin(); flight != in_flight_.end();) {
      const auto next = std::next(flight);
      if (!flight->ending.exchange(true)) {
        lost.splice(lost.end(), in_flight_, flight);
      }
      flight = next;
    }
  }
  changed_.NotifyAll();
  for (Flight& flight : lost) {
    KR_LOG(kError) << LabelOf(flight.bucket.command)
                   << ": did not end when it was aborted; it is given up, and "
                      "whoever runs it may still write to its results";
    End(flight.bucket.entries, cause);
  }
  {
    MutexLock lock(*mutex);
    kept->splice(kept->end(), lost);
  }
  // A bucket that has just ended may still be in use by the thread that ended
  // it.
  MutexLock lock(mutex_);
  changed_.Wait(mutex_,
                [this]() KR_REQUIRES(mutex_) { return in_flight_.empty(); });
}

void Executor::Run() {
  for (;;) {
    Flight* flight;
    {
      MutexLock lock(mutex_);
      changed_.Wait(mutex_, [this]() KR_REQUIRES(mutex_) {
        return buckets_.empty() ? stopping_ : in_flight_.size() < kMaxInFlight;
      });
      if (buckets_.empty()) return;
      flight = &AddFlight(std::move(buckets_.front()));
      buckets_.pop_front();
    }
    Launch(*flight);
  }
}

Executor::Flight& Executor::AddFlight(Bucket bucket) {
  in_flight_.emplace_back();
  Flight& flight = in_flight_.back();
  flight.self = std::prev(in_flight_.end());
  flight.bucket = std::move(bucket);
  return flight;
}

void Executor::Launch(Flight& flight) {
  Bucket& bucket = flight.bucket;
  for (const TuneCommand& tuned : bucket.tuned) {
    collectives_.Tune(tuned.tunable, tuned.value);
  }
  flight.began = clock_.Now();
  counters_.began_ns.store(SteadyNanoseconds(flight.began),
                           std::memory_order_relaxed);
  Status status;
  if (bucket.entries.empty()) {
    const Request& request = bucket.command.items.front()->request;
    status = flight.placeholders.Make(bucket.command, bucket.decided,
                                      collectives_.DevicesOf(request.device),
                                      bucket.entries);
  }
  for (const TensorEntry& entry : bucket.entries) {
    meter_.Count(TracePhase::kNegotiate, bucket.decided - entry.submitted);
  }
  meter_.Count(TracePhase::kQueue, static_cast<int>(bucket.entries.size()) *
                                       (flight.began - bucket.decided));
  if (TraceSink* const trace = meter_.sink()) TraceBegin(flight, *trace);
  if (status.ok()) status = StartCalls(flight);
  if (status.ok()) status = flight.failure.Get();
  // Before the completions: the coordinator may decide while we call back.
  if (status.ok()) callbacks_.launched();
  if (flight.IsLast(status, Flight::kStarting)) Finalize(flight);
}

void Executor::TraceBegin(const Flight& flight, TraceSink& trace) const {
  const Bucket& bucket = flight.bucket;
  const uint64_t tag = TagOf(bucket.command);
  std::vector<TraceSpan> spans(bucket.entries.size() + 3);
  auto next = spans.begin();
  for (const TensorEntry& entry : bucket.entries) {
    TraceSpan& span = *next++;
    span.phase = TracePhase::kNegotiate;
    span.begin = entry.submitted;
    span.end = bucket.decided;
    span.name = entry.request->name;
    span.value = entry.request->num_bytes();
  }
  TraceSpan& queued = *next++;
  queued.phase = TracePhase::kQueue;
  queued.begin = bucket.decided;
  queued.end = flight.began;
  TraceSpan& cycle = *next++;
  cycle.phase = TracePhase::kCycle;
  cycle.begin = cycle.end = bucket.decided;
  TraceSpan& late = *next++;
  late.phase = TracePhase::kLate;
  late.begin = late.end = bucket.decided;
  const LastReady& last = bucket.command.last;
  late.peer = last.rank == LastReady::kNone ? TraceSpan::kNobody
                                            : ranks_.Global(last.rank);
  late.value = std::chrono::nanoseconds(last.late).count();
  for (TraceSpan& span : spans) span.tag = tag;
  trace.Record(spans.data(), spans.size());
}

void Executor::TraceEnd(const Flight& flight, TimePoint done,
                        TraceSink& trace) const {
  const Bucket& bucket = flight.bucket;
  const std::string label = LabelOf(bucket.command);
  TraceSpan span;
  span.phase = TracePhase::kExecute;
  span.tag = TagOf(bucket.command);
  span.begin = flight.began;
  span.end = done;
  span.name = label;
  for (const TensorEntry& entry : bucket.entries) {
    span.value += entry.request->num_bytes();
  }
  span.tensors = bucket.entries.size();
  trace.Record(span);
}

Status Executor::StartCalls(Flight& flight) {
  std::vector<TensorEntry>& entries = flight.bucket.entries;
  // A barrier moves nothing: that all ranks have asked for it is enough.
  if (entries.front().request->kind == RequestKind::kBarrier) return OkStatus();
  KR_ASSIGN_OR_RETURN(Collective* const collective,
                      collectives_.For({entries.front().request->device,
                                        entries.front().device_ordinal}));
  KR_RETURN_IF_ERROR(AddCalls(flight));
  KR_RETURN_IF_ERROR(AddDevices(flight));
  flight.left += flight.calls.size();
  for (const CollectiveArgs& call : flight.calls) {
    // Where a bucket was given up, this executor may be over by then.
    collective->Start(call, [this, &flight](const Status& status) {
      if (flight.IsLast(status)) Finalize(flight);
    });
  }
  return OkStatus();
}

bool Executor::Flight::IsLast(const Status& status, size_t done) {
  if (!status.ok()) failure.Set(status);
  return left.fetch_sub(done, std::memory_order_acq_rel) == done &&
         !ending.exchange(true);
}

void Executor::Finalize(Flight& flight) {
  Bucket& bucket = flight.bucket;
  Status status = flight.failure.Get();
  if (status.ok()) {
    ++counters_.buckets;
    counters_.entries += bucket.entries.size();
    TraceSpan callback;
    callback.phase = TracePhase::kCallback;
    callback.tag = TagOf(bucket.command);
    callback.begin = clock_.Now();
    meter_.Count(TracePhase::kExecute, callback.begin - flight.began);
    counters_.began_ns.store(0, std::memory_order_relaxed);
    if (TraceSink* const trace = meter_.sink()) {
      TraceEnd(flight, callback.begin, *trace);
    }
    End(bucket.entries, status);
    callback.end = clock_.Now();
    meter_.Add(callback);
  } else {
    counters_.began_ns.store(0, std::memory_order_relaxed);
    status = status.WithContext(LabelOf(bucket.command));
    bool first;
    {
      MutexLock lock(mutex_);
      first = failure_.ok();
      if (first) failure_ = status;
    }
    if (first) callbacks_.failed(status);
    FinishWhenAborted(std::move(bucket.entries));
  }
  Flights over;  // destroyed without the lock
  MutexLock lock(mutex_);
  ++num_ended_;
  over.splice(over.begin(), in_flight_, flight.self);
  // The data thread waits for room, or Stop for the end. Nobody else does, and
  // a notification would cost a system call.
  if (!buckets_.empty() || stopping_) changed_.NotifyAll();
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

Status Executor::AddCalls(Flight& flight) {
  switch (flight.bucket.entries.front().request->kind) {
    case RequestKind::kAllreduce:
      AddAllreduces(flight);
      return OkStatus();
    case RequestKind::kAllgather:
      return AddAllgathers(flight);
    case RequestKind::kBroadcast:
      AddBroadcast(flight);
      return OkStatus();
    case RequestKind::kReducescatter:
      return AddReducescatters(flight);
    case RequestKind::kAlltoall:
      return AddAlltoall(flight);
    case RequestKind::kBarrier:
    case RequestKind::kJoin:
      break;  // nothing moves
  }
  return InternalError("unknown kind of request");
}

Status Executor::AddDevices(Flight& flight) {
  Events ready;
  for (const TensorEntry& entry : flight.bucket.entries) {
    if (entry.stream.has_value() && entry.outputs.empty()) {
      // A later point of the same stream.
      KR_ASSIGN_OR_RETURN(
          auto allocated,
          collectives_.Record({entry.request->device, entry.device_ordinal},
                              *entry.stream));
      ready.push_back(std::move(allocated));
    } else if (entry.ready != nullptr) {
      ready.push_back(entry.ready);
    }
  }
  for (CollectiveArgs& args : flight.calls) {
    CallArgs& call = CallOf(args);
    call.ordinal = flight.bucket.entries.front().device_ordinal;
    call.ready = ready;
  }
  return OkStatus();
}

void Executor::AddAllreduces(Flight& flight) {
  const ExecuteCommand& command = flight.bucket.command;
  std::map<DType, AllreduceArgs> by_dtype;  // ordered: alike on every rank
  for (TensorEntry& entry : flight.bucket.entries) {
    const Request& request = *entry.request;
    for (size_t i = 0; i < request.tensors.size(); ++i) {
      const TensorSpec& spec = request.tensors[i];
      AllreduceArgs& args = by_dtype[spec.dtype];
      Describe(request, spec.dtype, Contributors(command), args);
      args.tensors.push_back(
          TensorSpan{entry.inputs[i], entry.outputs[i], spec.num_elements()});
    }
  }
  flight.calls.reserve(by_dtype.size());
  for (auto& [dtype, args] : by_dtype) {
    args.tag = TagOf(command) + static_cast<int>(dtype);
    flight.calls.emplace_back(std::move(args));
  }
}

Status Executor::AddAllgathers(Flight& flight) {
  const ExecuteCommand& command = flight.bucket.command;
  const Response& agreed = *command.items.front();
  TensorEntry& entry = flight.bucket.entries.front();
  for (size_t i = 0; i < entry.request->tensors.size(); ++i) {
    const int64_t row_bytes = RowBytes(entry.request->tensors[i]);
    AllgatherArgs args;
    args.tag = TagOf(command);
    int64_t total_rows = 0;
    for (int64_t rows : agreed.RowsOf(i)) {
      total_rows += rows;
      args.bytes_per_rank.push_back(rows * row_bytes);
    }
    KR_ASSIGN_OR_RETURN(args.output, entry.allocate(i, total_rows));
    args.input = entry.inputs[i];
    flight.calls.emplace_back(std::move(args));
  }
  return OkStatus();
}

void Executor::AddBroadcast(Flight& flight) {
  std::vector<TensorEntry>& entries = flight.bucket.entries;
  BroadcastArgs args;
  args.tag = TagOf(flight.bucket.command);
  args.root = ranks_.Local(entries.front().request->root);
  for (TensorEntry& entry : entries) {
    for (size_t i = 0; i < entry.request->tensors.size(); ++i) {
      args.tensors.push_back(TensorSpan{entry.inputs[i], entry.outputs[i],
                                        entry.request->tensors[i].num_bytes()});
    }
  }
  flight.calls.emplace_back(std::move(args));
}

Status Executor::AddReducescatters(Flight& flight) {
  const ExecuteCommand& command = flight.bucket.command;
  TensorEntry& entry = flight.bucket.entries.front();
  const Request& request = *entry.request;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& spec = request.tensors[i];
    const int64_t rows = spec.shape.front();
    const int64_t row_elements = RowBytes(spec) / DTypeSize(spec.dtype);
    ReducescatterArgs args;
    args.tag = TagOf(command);
    Describe(request, spec.dtype, Contributors(command), args);
    for (int rank = 0; rank < size_; ++rank) {
      args.count_per_rank.push_back(ScatteredRows(rows, rank, size_) *
                                    row_elements);
    }
    KR_ASSIGN_OR_RETURN(args.output,
                        entry.allocate(i, ScatteredRows(rows, rank_, size_)));
    args.input = entry.inputs[i];
    flight.calls.emplace_back(std::move(args));
  }
  return OkStatus();
}

Status Executor::AddAlltoall(Flight& flight) {
  const ExecuteCommand& command = flight.bucket.command;
  TensorEntry& entry = flight.bucket.entries.front();
  const std::shared_ptr<const Response>& agreed = command.items.front();
  AlltoallArgs args;
  args.tag = TagOf(command);
  args.size = size_;
  args.bytes = [agreed, row_bytes = RowBytes(entry.request->tensors.front())](
                   int from, int to) -> size_t {
    return agreed->RowsBetween(from, to) * row_bytes;
  };
  std::vector<int64_t> received;
  for (int from = 0; from < size_; ++from) {
    received.push_back(agreed->RowsBetween(from, rank_));
  }
  const int64_t total =
      std::accumulate(received.begin(), received.end(), int64_t{0});
  KR_ASSIGN_OR_RETURN(args.output, entry.allocate(0, total));
  KR_ASSIGN_OR_RETURN(void* splits, entry.allocate(1, size_));
  std::copy(received.begin(), received.end(), static_cast<int64_t*>(splits));
  args.input = entry.inputs.front();
  flight.calls.emplace_back(std::move(args));
  return OkStatus();
}

}  // namespace keras_ring
