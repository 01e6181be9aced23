#include "csrc/runtime/runtime_factory.h"

#include <unistd.h>

#include <fstream>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/host/host_id.h"
#include "csrc/comm/host/memory_holder.h"
#include "csrc/comm/net/addresses.h"
#include "csrc/comm/net/tls.h"
#include "csrc/comm/rendezvous/rendezvous.h"
#include "csrc/comm/rendezvous/sub_mesh.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/cuda/cuda_access.h"
#include "csrc/runtime/backends.h"
#include "csrc/runtime/diagnostics/status_page.h"
#include "csrc/runtime/diagnostics/timeline.h"
#include "csrc/runtime/process_runtime.h"
#include "csrc/runtime/runtime_parts.h"

namespace keras_ring {
namespace {

RendezvousOptions RendezvousOptionsOf(const Options& options, JobKey key,
                                      std::vector<std::string> fingerprint) {
  RendezvousOptions result;
  result.rank = options.rank;
  result.size = options.size;
  result.store_host = options.rendezvous_host;
  result.store_port = options.rendezvous_port;
  result.store_listen_fd = options.rendezvous_fd;
  result.key = std::move(key);
  result.host_id = options.host_id.empty() ? OwnHostId() : options.host_id;
  // With loopback the job is on one host.
  result.by_host = !MeansLoopback(options.rendezvous_host);
  result.advertise_host = options.interface_address;
  result.ports = {options.port_low, options.port_high};
  result.fingerprint = std::move(fingerprint);
  return result;
}

void NameMembers(const std::vector<Member>& members, RuntimeDeps& deps) {
  for (const Member& member : members) {
    deps.host_ids.push_back(member.host_id);
    deps.peer_names.push_back("host " + member.host + ", pid " +
                              std::to_string(member.pid));
  }
}

// Counters where other programs can see them, if there is such a place.
void MakeCounters(RuntimeDeps& deps) {
  auto page = StatusPage::Create(deps.options);
  if (!page.ok()) {
    KR_LOG(kInfo) << page.status().message()
                  << "; keras-ring top will not see this rank";
  }
  if (!page.ok() || *page == nullptr) {
    deps.counters = std::make_shared<Counters>();
    return;
  }
  deps.status_page = *page;
  deps.counters =
      std::shared_ptr<Counters>(deps.status_page, &(*page)->counters());
}

// The resident memory of this process; 0 if the system does not tell.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// To be called once this rank's position is known.
Status StartDiagnostics(const Member& own, RuntimeDeps& deps) {
  const Options& options = deps.options;
  const int local_rank = TopologyOf(deps.host_ids, options.rank).local_rank;
  if (deps.status_page) {
    KR_RETURN_IF_ERROR(
        deps.status_page->Publish(options, local_rank, own.host));
  }
  TimelineOwner owner;
  owner.rank = options.rank;
  owner.size = options.size;
  owner.local_rank = local_rank;
  owner.host = own.host;
  for (const OptionDescription& option : DescribeOptions()) {
    const Result<std::string> value = options.Show(option.variable);
    if (value.ok() && !value->empty()) {
      owner.settings.emplace_back(option.variable, *value);
    }
  }
  deps.timeline =
      std::make_shared<Timeline>(std::move(owner), [counters = deps.counters] {
        const auto number = [](const Counters::Count& count) {
          return static_cast<int64_t>(count.load(std::memory_order_relaxed));
        };
        return std::vector<TimelineSample>{
            {"pending tensors", number(counters->pending)},
            {"resident bytes", ResidentBytes()},
            {"data bytes sent", number(counters->data_bytes_sent)},
            {"data bytes received", number(counters->data_bytes_received)}};
      });
  deps.trace = deps.timeline;
  if (options.timeline.empty()) return OkStatus();
  Timeline::Settings settings;
  settings.directory = options.timeline + ".ranks";
  settings.mark_cycles = options.timeline_mark_cycles;
  const Status status = deps.timeline->Start(settings);
  // A failure of diagnostics is no reason to stop a training.
  if (!status.ok()) {
    KR_LOG(kWarning) << status.message() << "; the job goes on without it";
  }
  return OkStatus();
}

// Null if there is none: then other ranks notice this rank's death later.
std::unique_ptr<MemoryHolder> HoldMemory() {
  auto holder = std::make_unique<MemoryHolder>();
  const Status status = holder->Start();
  if (status.ok()) return holder;
  KR_LOG(kInfo) << "the other ranks learn of the end of this one when its "
                   "memory has been freed, which takes longer the more it has: "
                << status.message();
  return nullptr;
}

// The parts of a process set of which this rank is a member.
Result<RuntimeDeps> ConnectSet(const std::shared_ptr<Runtime>& job,
                               const RankSet& set, Deadline deadline) {
  const RuntimeDeps& of_job = job->deps();
  RuntimeDeps deps;
  deps.options = of_job.options;
  deps.options.rank = set.Local(of_job.options.rank);
  deps.options.size = static_cast<int>(set.members().size());
  deps.ranks = set;
  deps.counters = of_job.counters;
  deps.gpus = of_job.gpus;
  if (of_job.timeline) {
    deps.trace =
        std::make_shared<ProcessSetTrace>(of_job.timeline, set.number());
  }
  deps.clock = std::make_unique<SystemClock>();
  // Not kept alive by its sets: it ends after them.
  deps.report_loss = [job = std::weak_ptr<Runtime>(job)](const Status& cause) {
    const auto runtime = job.lock();
    if (runtime) runtime->Break(cause);
    return runtime != nullptr;
  };
  SubMesh mesh(*of_job.mesh, set);
  NameMembers(mesh.members(), deps);
  KR_RETURN_IF_ERROR(
      ConnectParts(mesh, nullptr, of_job.host.get(), deadline, deps));
  return deps;
}

}  // namespace

Result<std::shared_ptr<ProcessSets>> CreateJob(
    const Options& options, const std::vector<std::string>& versions,
    const std::shared_ptr<Arena>& arena, const LossHandling& on_loss,
    const Counters* ended) {
  KR_RETURN_IF_ERROR(CheckCollectiveChoices(options));
  const Deadline deadline = Deadline::AfterSeconds(options.start_timeout);
  RuntimeDeps deps;
  deps.options = options;
  deps.on_loss = on_loss;
  MakeCounters(deps);
  if (ended != nullptr) CarryOver(*ended, *deps.counters);
  deps.clock = std::make_unique<SystemClock>();
  deps.gpus = std::make_shared<cuda::CudaAccess>(options.cuda_driver);

  std::vector<std::string> fingerprint = options.Fingerprint();
  fingerprint.insert(fingerprint.end(), versions.begin(), versions.end());
  JobKey key;
  if (options.size > 1) {
    KR_ASSIGN_OR_RETURN(key, JobKey::FromHex(options.job_key));
  }
  RendezvousOptions rendezvous =
      RendezvousOptionsOf(options, std::move(key), std::move(fingerprint));
  if (options.tls && options.size > 1) {
    KR_ASSIGN_OR_RETURN(rendezvous.tls, LoadTls());
  }
  KR_ASSIGN_OR_RETURN(std::unique_ptr<StartingMesh> mesh,
                      Rendezvous(rendezvous, deadline, *deps.counters));
  NameMembers(mesh->members(), deps);
  deps.first_pid = mesh->members()[0].pid;
  Status connected = StartDiagnostics(mesh->members()[options.rank], deps);
  if (connected.ok()) {
    connected = ConnectParts(*mesh, arena, nullptr, mesh->deadline(), deps);
  }
  // No rank goes on that could wait for a rank which does not: it would take a
  // silent rank for lost.
  KR_RETURN_IF_ERROR(mesh->StartBarrier(connected));
  deps.mesh = std::move(mesh);
  if (options.size > 1 && !deps.host) deps.memory_holder = HoldMemory();
  KR_ASSIGN_OR_RETURN(const std::shared_ptr<Runtime> job,
                      Runtime::Start(std::move(deps)));
  return std::make_shared<ProcessSets>(
      job,
      [job](const RankSet& set, Deadline deadline) {
        return ConnectSet(job, set, deadline);
      },
      ProcessSetNumbers());
}

}  // namespace keras_ring
