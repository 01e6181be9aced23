#include "csrc/runtime/runtime.h"

#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/collective_set.h"
#include "csrc/comm/host/death_watch.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/host/memory_holder.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/control/control_tree.h"
#include "csrc/control/controller.h"
#include "csrc/control/rank_activity.h"
#include "csrc/control/tensor_queue.h"
#include "csrc/cuda/cuda_access.h"
#include "csrc/runtime/background_loop.h"
#include "csrc/runtime/diagnostics/flight_log.h"
#include "csrc/runtime/diagnostics/status_page.h"
#include "csrc/runtime/diagnostics/timeline.h"
#include "csrc/runtime/executor.h"

namespace keras_ring {
namespace {

// How long it waits for its flight log. A megabyte takes milliseconds.
constexpr auto kFlightLogLimit = std::chrono::seconds(3);

// The length of the timeline that a signal requests.
constexpr auto kBriefTimeline = std::chrono::seconds(5);

// How long a rank that cannot start waits until its message is sent.
constexpr auto kWordLimit = std::chrono::seconds(1);

ControllerOptions ControllerOptionsOf(const Options& options) {
  ControllerOptions result;
  result.schedule.fusion_threshold = options.fusion_threshold;
  result.schedule.planned_bucket = options.planned_bucket;
  result.cache_capacity = options.cache_capacity;
  result.schedule.linger = Seconds(options.cycle_time_ms / 1e3);
  result.stalls.check_time = Seconds(options.stall_check_time);
  result.stalls.shutdown_time = Seconds(options.stall_shutdown_time);
  return result;
}

// The tunables of the coordinator; collectives have more.
std::vector<TunableRange> TunablesOf(const BucketSchedulerOptions& options) {
  using std::chrono::microseconds;
  return {{Tunable::kFusionThreshold, options.fusion_threshold},
          {Tunable::kLinger,
           std::chrono::duration_cast<microseconds>(options.linger).count()},
          {Tunable::kPlannedBucket, options.planned_bucket}};
}

CollectiveSet CollectivesOf(const RuntimeDeps& deps) {
  CollectiveSet collectives(*deps.collective);
  if (deps.gpu_collective != nullptr) {
    collectives.Add(DeviceKind::kCuda, *deps.gpu_collective, deps.gpus.get());
  }
  return collectives;
}

}  // namespace

Topology TopologyOf(const std::vector<std::string>& host_ids, int rank) {
  std::map<std::string, int> ranks_of_host;
  Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(host_ids.size());
  std::vector<int> local_ranks;
  for (const std::string& host : host_ids) {
    local_ranks.push_back(ranks_of_host[host]++);
  }
  topology.local_rank = local_ranks[rank];
  topology.local_size = ranks_of_host[host_ids[rank]];
  topology.cross_size = 0;
  for (int r = 0; r < topology.size; ++r) {
    if (local_ranks[r] != topology.local_rank) continue;
    if (r < rank) ++topology.cross_rank;
    ++topology.cross_size;
  }
  for (const auto& [host, count] : ranks_of_host) {
    if (count != topology.local_size) topology.homogeneous = false;
  }
  return topology;
}

ControlTree TreeOfRuntime(const std::vector<std::string>& host_ids,
                          const RankSet& ranks, int rank) {
  return ranks.is_job() ? BuildJobTree(host_ids, rank)
                        : BuildControlTree(host_ids, rank);
}

RuntimeDeps::RuntimeDeps() = default;
RuntimeDeps::~RuntimeDeps() = default;
RuntimeDeps::RuntimeDeps(RuntimeDeps&&) noexcept = default;
RuntimeDeps& RuntimeDeps::operator=(RuntimeDeps&&) noexcept = default;

Result<std::shared_ptr<Runtime>> Runtime::Start(RuntimeDeps deps) {
  std::shared_ptr<Runtime> runtime(new Runtime(std::move(deps)));
  KR_RETURN_IF_ERROR(runtime->StartThreads());
  return runtime;
}

Status Runtime::StartThreads() {
  Status status = executor_->Start();
  if (status.ok()) {
    status = loop_->Start(
        TreeOfRuntime(deps_.host_ids, deps_.ranks, topology_.rank));
  }
  if (status.ok()) {
    WatchDeaths();
    return status;
  }
  executor_->Stop();
  {
    MutexLock lock(shutdown_mutex_);
    stopped_ = true;
  }
  const Status cause = UnavailableError(
      "rank " + std::to_string(deps_.ranks.Global(topology_.rank)) +
      " could not start: " + status.message());
  for (const auto& [peer, word] : controller_->AbortMessages(cause, -1)) {
    deps_.channel->Send(peer, word);
  }
  const TimePoint until = deps_.clock->Now() + kWordLimit;
  while (!deps_.channel->Flushed() && deps_.clock->Now() < until) {
    (void)deps_.channel->Poll(&until);
  }
  return status;
}

void Runtime::WatchDeaths() {
  if (!death_watch_) return;
  const Status status =
      death_watch_->Start([this](int rank) { loop_->OnDeath(rank); });
  if (status.ok()) return;
  KR_LOG(kWarning) << "the death of a rank of this host will be noticed when "
                      "its connections close, which takes longer the more "
                      "memory it has: "
                   << status.message();
}

Runtime::Runtime(RuntimeDeps deps)
    : deps_(std::move(deps)),
      topology_(TopologyOf(deps_.host_ids, deps_.options.rank)),
      running_(*deps_.clock, PeerContacts::LongestSleep(
                                 Seconds(deps_.options.heartbeat_timeout))) {
  topology_.generation = deps_.options.generation;
  const ControlTree tree =
      TreeOfRuntime(deps_.host_ids, deps_.ranks, topology_.rank);
  queue_ = std::make_unique<TensorQueue>([this] { loop_->Wake(); },
                                         *deps_.clock, deps_.counters.get());
  ControllerOptions control = ControllerOptionsOf(deps_.options);
  control.stalls.describe = [this](const std::vector<std::string>& names) {
    const TimePoint now = deps_.clock->Now();
    return DescribeActivity(queue_->recorder().Records(), names, now,
                            ProgramActivity(*deps_.counters, now));
  };
  tunables_ = TunablesOf(control.schedule);
  if (deps_.timeline != nullptr && topology_.local_size < topology_.size) {
    control.measures_clocks = true;
    control.shares_clock = tree.is_root() || deps_.host_ids[tree.parent] ==
                                                 deps_.host_ids[tree.rank];
    control.measured_clock = deps_.clock.get();
  }
  const std::vector<TunableRange> own = deps_.collective->Tunables();
  tunables_.insert(tunables_.end(), own.begin(), own.end());
  controller_ = std::make_unique<Controller>(tree, control, running_,
                                             *deps_.counters, deps_.ranks);
  executor_ = std::make_unique<Executor>(
      topology_.rank, topology_.size, CollectivesOf(deps_), *deps_.counters,
      Executor::Callbacks{
          [this] { loop_->OnLaunched(); },
          [this](const Status& status) { loop_->OnDataFailure(status); },
          [this](const std::vector<TensorEntry>& entries,
                 const Status& status) {
            queue_->recorder().Ended(entries, status, deps_.clock->Now());
          }},
      deps_.ranks, *deps_.clock, deps_.trace.get());
  BackgroundLoopOptions options;
  options.heartbeat_timeout = Seconds(deps_.options.heartbeat_timeout);
  options.describe_peer = [this](int rank) {
    return "rank " + std::to_string(deps_.ranks.Global(rank)) + " (" +
           deps_.peer_names[rank] + ")";
  };
  options.ranks = deps_.ranks;
  options.report_loss = deps_.report_loss;
  options.repeats_loss =
      topology_.size <= deps_.small_job || topology_.local_rank == 0;
  options.clock_read = [this](const ClockReading& reading) {
    if (deps_.timeline == nullptr) return;
    deps_.timeline->SetClock(reading.at, reading.offset, reading.error);
  };
  options.broken = [this](const Status& cause,
                          std::vector<FlightRecord> records) {
    if (deps_.status_page) deps_.status_page->SetError(cause.message());
    if (auto write = FlightLogJob(cause.ToString(), std::move(records))) {
      flight_log_writer_.Start(std::move(write));
    }
    if (deps_.on_loss.broken) deps_.on_loss.broken(cause);
  };
  options.status_of_waiting = deps_.on_loss.status_of_waiting;
  options.status_of_running = deps_.on_loss.status_of_running;
  if (deps_.host && deps_.ranks.is_job()) {
    death_watch_ = std::make_unique<DeathWatch>(*deps_.host);
    options.death_watch = death_watch_.get();
  }
  loop_ = std::make_unique<BackgroundLoop>(
      options, topology_.rank, *controller_, *deps_.channel, *queue_,
      *executor_, *deps_.clock, running_);
}

Runtime::~Runtime() { Shutdown("its runtime being destroyed"); }

Result<std::string> Runtime::Explain(DeviceKind kind) const {
  if (kind == DeviceKind::kHost) return deps_.collective->Explain();
  if (deps_.gpu_collective == nullptr) {
    return FailedPreconditionError("this job has no collectives of GPUs");
  }
  KR_RETURN_IF_ERROR(deps_.gpus->CheckAny());
  return deps_.gpu_collective->Explain();
}

Status Runtime::CheckServed(const TensorEntry& entry) const {
  const Request& request = *entry.request;
  if (request.tensors.empty()) return OkStatus();
  const Result<Collective*> found =
      executor_->collectives().For({request.device, entry.device_ordinal});
  if (found.ok()) return OkStatus();
  return found.status().WithContext(LabelOf(request));
}

std::string Runtime::LabelOf(const Request& request) const {
  return request.Label() + " of rank " +
         std::to_string(deps_.ranks.Global(topology_.rank));
}

Result<std::shared_ptr<const Event>> Runtime::Record(Device device,
                                                     void* stream) const {
  return executor_->collectives().Record(device, stream);
}

Status Runtime::Enqueue(TensorEntry entry) {
  Status served = CheckServed(entry);
  if (!served.ok()) {
    entry.completion.Disarm();
    return served;
  }
  return queue_->Add(std::move(entry));
}

std::vector<TunableRange> Runtime::tunables() const {
  MutexLock lock(tunables_mutex_);
  return tunables_;
}

Status Runtime::Tune(const std::string& name, int64_t value) {
  if (topology_.rank != 0) {
    return FailedPreconditionError(
        name + " was to be tuned on rank " +
        std::to_string(deps_.ranks.Global(topology_.rank)) + ": only rank " +
        std::to_string(deps_.ranks.Global(0)) + " decides for all");
  }
  KR_RETURN_IF_ERROR(status());
  MutexLock lock(tunables_mutex_);
  KR_ASSIGN_OR_RETURN(const TunableRange found, FindTunable(tunables_, name));
  KR_RETURN_IF_ERROR(CheckTuned(found, value));
  for (TunableRange& range : tunables_) {
    if (range.tunable == found.tunable) range.value = value;
  }
  // Under the lock, so that the loop gets the values in this order, too.
  loop_->Tune(found.tunable, value);
  return OkStatus();
}

Status Runtime::status() const { return loop_->status(); }

void Runtime::Break(const Status& cause) { loop_->Break(cause); }

void Runtime::SetBrokenListener(
    std::function<void(const Status& cause)> listener) {
  loop_->SetBrokenListener(std::move(listener));
}

void Runtime::WriteFlightLog(const std::string& reason) const {
  if (const auto write = FlightLogJob(reason, queue_->recorder().Records())) {
    write();
  }
}

void Runtime::RecordBriefTimeline() const {
  const std::string directory = FlightDirectory(deps_.options);
  if (deps_.timeline == nullptr || directory.empty()) return;
  Timeline::Settings settings;
  // Jobs that have one key, and so one directory, differ in this.
  settings.directory =
      directory + "/timeline." + std::to_string(deps_.first_pid) + ".ranks";
  settings.length = kBriefTimeline;
  Status status;
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    status = InternalError(directory + ": " + ErrnoText(errno));
  }
  if (status.ok()) status = deps_.timeline->Start(settings);
  if (status.ok()) {
    KR_LOG(kWarning) << "SIGUSR2: this rank's timeline of the next "
                     << kBriefTimeline.count() << " s goes to "
                     << settings.directory << ", for keras-ring report";
  } else {
    KR_LOG(kWarning) << "SIGUSR2: " << status.message();
  }
}

std::function<void()> Runtime::FlightLogJob(
    const std::string& reason, std::vector<FlightRecord> records) const {
  auto write = deps_.write_flight_log;
  if (!write) {
    const std::string directory = FlightDirectory(deps_.options);
    if (directory.empty()) return nullptr;
    write = [directory](const FlightLog& log) {
      return keras_ring::WriteFlightLog(directory, log);
    };
  }
  FlightLog log;
  log.rank = deps_.ranks.Global(topology_.rank);
  log.members.clear();
  for (int rank = 0; rank < topology_.size; ++rank) {
    log.members.push_back(deps_.ranks.Global(rank));
  }
  log.process_set = deps_.ranks.number();
  log.reason = reason;
  log.records =
      NewestRecords(std::move(records), NumLoggedRecords(topology_.size));
  return [write = std::move(write), log = std::move(log)] {
    const Result<std::string> path = write(log);
    if (path.ok()) {
      KR_LOG(kInfo) << "the last operations of this rank are in " << *path;
    } else {
      KR_LOG(kWarning) << path.status().message();
    }
  };
}

void Runtime::Shutdown(const std::string& reason) {
  retired_.store(true, std::memory_order_release);
  MutexLock lock(shutdown_mutex_);
  if (stopped_) return;
  // A leaving rank does not wait indefinitely for slow ones.
  if (deps_.idle_limit) {
    deps_.idle_limit->Lower(Seconds(deps_.options.heartbeat_timeout));
  }
  loop_->Leave(reason, Deadline::AfterSeconds(deps_.options.shutdown_timeout));
  executor_->Stop();
  // Before this rank says Bye: it has done its share, and may end.
  if (death_watch_) death_watch_->Stop();
  loop_->Stop();
  if (deps_.memory_holder) deps_.memory_holder->Stop();
  stopped_ = true;
  if (deps_.timeline) deps_.timeline->Stop(reason);
  if (!flight_log_writer_.Wait(Deadline::After(kFlightLogLimit))) {
    KR_LOG(kWarning) << "the flight record of this rank could not be written "
                        "in time: the disk does not answer";
  }
}

}  // namespace keras_ring
