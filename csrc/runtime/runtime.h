// Runtime: one rank of one job, complete. The interface for the floors above.
#ifndef KERAS_RING_RUNTIME_RUNTIME_H_
#define KERAS_RING_RUNTIME_RUNTIME_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/idle_limit.h"
#include "csrc/base/meter.h"
#include "csrc/base/mutex.h"
#include "csrc/base/options.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/running_clock.h"
#include "csrc/base/status.h"
#include "csrc/base/tunable.h"
#include "csrc/control/tensor_entry.h"
#include "csrc/runtime/diagnostics/flight_log_writer.h"

namespace keras_ring {

class BackgroundLoop;
class Collective;
class Controller;
class DeathWatch;
class Executor;
struct FlightLog;
struct FlightRecord;
class HostGroup;
class MemoryHolder;
class Mesh;
class MessageChannel;
class TensorQueue;
struct ControlTree;
class StatusPage;
class Timeline;
namespace cuda {
class CudaAccess;
}

// The position of this rank, computed from the host identities of all members.
struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  // index of this host among those with such a local rank
  int cross_rank = 0;
  int cross_size = 1;
  bool homogeneous = true;  // every host has the same number of ranks
  int64_t generation = 0;   // of an elastic job: see ElasticJob
};
Topology TopologyOf(const std::vector<std::string>& host_ids, int rank);

// What happens when a job breaks that may go on without a rank: see ElasticJob.
struct LossHandling {
  // See BackgroundLoopOptions.
  std::function<Status(const Status& cause)> status_of_waiting;
  std::function<Status(const Status& cause)> status_of_running;
  // Called once, by the loop's thread, when the job breaks. Must not block.
  std::function<void(const Status& cause)> broken;
};

// The parts of a runtime; runtime_factory.cc makes the real ones. They are
// built and connected, but not started.
struct RuntimeDeps {
  RuntimeDeps();
  ~RuntimeDeps();
  RuntimeDeps(RuntimeDeps&&) noexcept;
  RuntimeDeps& operator=(RuntimeDeps&&) noexcept;

  Options options;  // rank and size are those in `ranks`
  // The members. host_ids and peer_names are indexed by their ranks.
  RankSet ranks;
  // A process set shares those of its job.
  std::shared_ptr<Counters> counters;
  // Receives the spans of the operations; or null.
  std::shared_ptr<TraceSink> trace;
  // For the job only: the timeline that `trace` writes to, and the page that
  // holds `counters`. Or null.
  std::shared_ptr<Timeline> timeline;
  std::shared_ptr<StatusPage> status_page;
  std::unique_ptr<Clock> clock;
  // Null in a process set and in tests.
  std::unique_ptr<Mesh> mesh;
  std::vector<std::string> host_ids;    // by rank
  std::vector<std::string> peer_names;  // by rank, for messages
  int64_t first_pid = 0;                // the process of rank 0
  // Null if this host's ranks do not share memory.
  std::unique_ptr<HostGroup> host;
  // For the job, if this rank shares memory with no other rank. Or null.
  std::unique_ptr<MemoryHolder> memory_holder;
  std::unique_ptr<MessageChannel> channel;
  // The devices that the process uses; or null.
  std::shared_ptr<cuda::CudaAccess> gpus;
  // Destroyed first, so that it has left before its rank's connections end.
  std::unique_ptr<Collective> collective;
  // That of tensors in the memory of devices; or null. Uses the other one.
  std::unique_ptr<Collective> gpu_collective;
  // The limit that `collective` uses. Null: it has its own.
  std::shared_ptr<IdleLimit> idle_limit;
  // For a process set: see BackgroundLoopOptions.
  std::function<bool(const Status& cause)> report_loss;
  // Writes a flight log, and returns its path; may block for some time. Null:
  // logs go to the directory that the options name.
  std::function<Result<std::string>(const FlightLog& log)> write_flight_log;
  // For an elastic job; else empty.
  LossHandling on_loss;
  // In a job with more ranks than this, only one rank of each host logs as an
  // error what is reported to all.
  int small_job = 64;  // ranks
};

// Returns the control tree. A process set relies on its job to detect the death
// of ranks.
ControlTree TreeOfRuntime(const std::vector<std::string>& host_ids,
                          const RankSet& ranks, int rank);

class Runtime {
 public:
  // Starts the threads. If that fails, the other ranks are told the cause.
  static Result<std::shared_ptr<Runtime>> Start(RuntimeDeps deps);
  ~Runtime();

  const Topology& topology() const { return topology_; }
  const Counters& counters() const { return *deps_.counters; }
  const Options& options() const { return deps_.options; }
  const RankSet& ranks() const { return deps_.ranks; }
  // The parts from which process sets take theirs.
  const RuntimeDeps& deps() const { return deps_; }
  // Describes for people how collectives are done whose tensors are on that
  // kind of device. kFailedPrecondition: this process has none.
  Result<std::string> Explain(DeviceKind kind = DeviceKind::kHost) const;

  // Returns an event that is reached once all is done that the stream of a
  // device was given so far (see DeviceAccess). Any thread.
  Result<std::shared_ptr<const Event>> Record(Device device,
                                              void* stream) const;

  // "allreduce 'a' of rank 3", for messages.
  std::string LabelOf(const Request& request) const;

  // Submits an operation. Returns an error, and the completion never fires, or
  // OK, and it fires exactly once from another thread. Thread-safe, does not
  // block.
  Status Enqueue(TensorEntry entry);

  // Returns the tunables, with their current values. Any thread.
  std::vector<TunableRange> tunables() const KR_EXCLUDES(tunables_mutex_);
  // Sets a tunable on all ranks at the same point of the sequence. On rank 0
  // only. Any thread; does not wait.
  Status Tune(const std::string& name, int64_t value)
      KR_EXCLUDES(tunables_mutex_);

  // OK while collectives can run; afterwards the reason why they cannot, for
  // good.
  Status status() const;

  // Returns whether a shutdown has begun: callers must look up another runtime.
  bool retired() const { return retired_.load(std::memory_order_acquire); }

  // See BackgroundLoop.
  void Break(const Status& cause);
  void SetBrokenListener(std::function<void(const Status& cause)> listener);

  // Writes a flight log for `keras-ring doctor`. May be called at any time by
  // any thread but those of the runtime; takes as long as the disk does.
  void WriteFlightLog(const std::string& reason) const;

  // Records a timeline for some seconds, beside the flight logs: for a job that
  // was started without a timeline. Any thread.
  void RecordBriefTimeline() const;

  // Ends the job in agreement with the other ranks and stops the threads. The
  // reason is sent to the others; empty for a program that finished normally.
  // Idempotent; thread-safe.
  void Shutdown(const std::string& reason);

 private:
  explicit Runtime(RuntimeDeps deps);
  Status StartThreads() KR_EXCLUDES(shutdown_mutex_);
  // Returns kInvalidArgument if no collective serves the device of these
  // tensors. Checked before other ranks hear of them: a bucket that cannot run
  // breaks the job.
  Status CheckServed(const TensorEntry& entry) const;
  void WatchDeaths();
  // Returns a function that writes a log of these records, whenever it is
  // called. It needs nothing of this object. Null if no log is wanted.
  std::function<void()> FlightLogJob(const std::string& reason,
                                     std::vector<FlightRecord> records) const;

  // In order of construction; destroyed in reverse.
  RuntimeDeps deps_;
  Topology topology_;
  RunningClock running_;
  std::unique_ptr<TensorQueue> queue_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<Executor> executor_;
  // For the job, if ranks of this host share memory; else null. Process sets
  // learn of deaths from the job.
  std::unique_ptr<DeathWatch> death_watch_;
  std::unique_ptr<BackgroundLoop> loop_;
  FlightLogWriter flight_log_writer_;

  mutable Mutex tunables_mutex_;
  std::vector<TunableRange> tunables_ KR_GUARDED_BY(tunables_mutex_);

  std::atomic<bool> retired_{false};
  Mutex shutdown_mutex_;  // held during a shutdown; taken before all others
  bool stopped_ KR_GUARDED_BY(shutdown_mutex_) = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_RUNTIME_H_
