// Runtime: one rank of one job, whole. What the floors above talk to.
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

// Where this rank stands, from the host identities of all members.
struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  int cross_rank = 0;  // index of this host among those with such a local rank
  int cross_size = 1;
  bool homogeneous = true;  // every host has as many ranks
};
Topology TopologyOf(const std::vector<std::string>& host_ids, int rank);

// The parts of a runtime; runtime_factory.cc makes the real ones. Built and
// connected, nothing started.
struct RuntimeDeps {
  RuntimeDeps();
  ~RuntimeDeps();
  RuntimeDeps(RuntimeDeps&&) noexcept;
  RuntimeDeps& operator=(RuntimeDeps&&) noexcept;

  Options options;  // rank and size are those in `ranks`
  // Who joins. By rank of these are host_ids and peer_names.
  RankSet ranks;
  // A process set has those of its job.
  std::shared_ptr<Counters> counters;
  // Is told what the operations spend their time with; or null.
  std::shared_ptr<TraceSink> trace;
  // Of the job alone: where that goes, and where `counters` lie. Or null.
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
  // Of the job, if this rank shares memory with no other one. Or null.
  std::unique_ptr<MemoryHolder> memory_holder;
  std::unique_ptr<MessageChannel> channel;
  // Goes first, so that it has left before its rank's connections end.
  std::unique_ptr<Collective> collective;
  // Of `collective`. Null: it has one of its own.
  std::shared_ptr<IdleLimit> idle_limit;
  // Of a process set: see BackgroundLoopOptions.
  std::function<bool(const Status& cause)> report_loss;
  // Writes a flight log, and says where; may take its time. Null: to the
  // directory that the options name.
  std::function<Result<std::string>(const FlightLog& log)> write_flight_log;
  // In a larger job, one rank of each host logs as an error what is said to
  // all.
  int small_job = 64;  // ranks
};

// A process set leaves it to its job to hear of the death of ranks.
ControlTree TreeOfRuntime(const std::vector<std::string>& host_ids,
                          const RankSet& ranks, int rank);

class Runtime {
 public:
  // Starts the threads. Where that fails, the other ranks are told why.
  static Result<std::shared_ptr<Runtime>> Start(RuntimeDeps deps);
  ~Runtime();

  const Topology& topology() const { return topology_; }
  const Counters& counters() const { return *deps_.counters; }
  const Options& options() const { return deps_.options; }
  const RankSet& ranks() const { return deps_.ranks; }
  // The parts that process sets are made of.
  const RuntimeDeps& deps() const { return deps_; }
  // How collectives are done, for people.
  std::string Explain() const;

  // Submits an operation. Either an error, and the completion never fires, or
  // OK, and it fires exactly once from another thread. Thread-safe, does not
  // block.
  Status Enqueue(TensorEntry entry);

  // What can be tuned, with what it has now. Any thread.
  std::vector<TunableRange> tunables() const KR_EXCLUDES(tunables_mutex_);
  // From one place of the sequence on, all ranks have this value. On rank 0
  // only. Any thread; does not wait.
  Status Tune(const std::string& name, int64_t value)
      KR_EXCLUDES(tunables_mutex_);

  // OK while collectives can run; then why they cannot, for ever.
  Status status() const;

  // Whether a shutdown has begun: it is time to ask for another runtime.
  bool retired() const { return retired_.load(std::memory_order_acquire); }

  // See BackgroundLoop.
  void Break(const Status& cause);
  void SetBrokenListener(std::function<void(const Status& cause)> listener);

  // Leaves a flight log for `keras-ring doctor`. Any thread but those of the
  // runtime, any time; takes as long as the disk does.
  void WriteFlightLog(const std::string& reason) const;

  // Records a timeline for some seconds, beside the flight logs: of a job that
  // nobody thought of recording. Any thread.
  void RecordBriefTimeline() const;

  // Ends the job in agreement with the other ranks and stops the threads. The
  // reason is told to the others; empty for a program that came to its end.
  // Idempotent; thread-safe.
  void Shutdown(const std::string& reason);

 private:
  explicit Runtime(RuntimeDeps deps);
  Status StartThreads() KR_EXCLUDES(shutdown_mutex_);
  // kInvalidArgument if no collective serves the device of these tensors. Asked
  // before anybody hears of them: a bucket that cannot run breaks the job.
  Status CheckServed(const TensorEntry& entry) const;
  void WatchDeaths();
  // Writes a log of these records, whenever it is called. It needs nothing of
  // this object. Null if there is to be none.
  std::function<void()> FlightLogJob(const std::string& reason,
                                     std::vector<FlightRecord> records) const;

  // In order of construction; destroyed in reverse.
  RuntimeDeps deps_;
  Topology topology_;
  RunningClock running_;
  std::unique_ptr<TensorQueue> queue_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<Executor> executor_;
  // Of the job, if ranks of this host share memory; else null. Process sets
  // hear of it from the job.
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
