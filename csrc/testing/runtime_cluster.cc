#include "csrc/testing/runtime_cluster.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <map>
#include <thread>
#include <utility>

#include "csrc/base/round.h"
#include "csrc/collective/cuda/cuda_ipc_collective.h"
#include "csrc/collective/cuda/staged_collective.h"
#include "csrc/collective/net/cpu_collective.h"
#include "csrc/collective/shm/shm_collective.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/rendezvous/rendezvous.h"
#include "csrc/comm/transport/local_link.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/control/control_tree.h"
#include "csrc/cuda/cuda_access.h"
#include "csrc/testing/controller_cluster.h"
#include "csrc/testing/local_host_group.h"
#include "csrc/testing/local_transport.h"

namespace keras_ring {
namespace {

// One clock for several runtimes, each of which owns its own.
class SharedClock final : public Clock {
 public:
  explicit SharedClock(const Clock& clock) : clock_(clock) {}
  TimePoint Now() const override { return clock_.Now(); }

 private:
  const Clock& clock_;
};

// links[r][p]: rank r's end of its connection to p.
std::vector<Links> ControlLinks(const std::vector<std::string>& host_ids,
                                const RankSet& set) {
  std::vector<Links> links(host_ids.size());
  for (int rank = 0; rank < static_cast<int>(host_ids.size()); ++rank) {
    for (int peer : TreeOfRuntime(host_ids, set, rank).Peers()) {
      if (peer > rank) continue;
      int pair[2];
      KR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                          0, pair) == 0);
      links[rank].emplace(peer, Socket(pair[0]));
      links[peer].emplace(rank, Socket(pair[1]));
    }
  }
  return links;
}

size_t OffsetOfGpuPages(int size) {
  return RoundUp(ShmCollective::DataBytes(size, ShmCollectiveOptions()), 64);
}

// Gives a rank the collective of device tensors.
void AddGpus(const cuda::Driver& driver, RuntimeDeps& deps) {
  const int size = deps.options.size;
  deps.gpus = std::make_shared<cuda::CudaAccess>(driver);
  CudaIpcOptions options;
  options.page_offset = OffsetOfGpuPages(size);
  options.barrier.clock = deps.clock.get();
  options.grace = std::chrono::milliseconds(200);
  deps.gpu_collective = std::make_unique<CudaIpcCollective>(
      std::shared_ptr<const HostGroup>(std::shared_ptr<void>(),
                                       deps.host.get()),
      *deps.gpus, options, Meter(*deps.counters, nullptr),
      std::make_unique<StagedCollective>(deps.options.rank, size, *deps.gpus,
                                         *deps.collective));
}

// By rank.
std::vector<std::unique_ptr<HostGroup>> HostGroups(
    const std::vector<std::string>& host_ids) {
  std::map<std::string, std::vector<int>> ranks_of_host;
  for (size_t rank = 0; rank < host_ids.size(); ++rank) {
    ranks_of_host[host_ids[rank]].push_back(static_cast<int>(rank));
  }
  std::vector<std::unique_ptr<HostGroup>> of_rank(host_ids.size());
  for (const auto& [host, ranks] : ranks_of_host) {
    const int size = static_cast<int>(ranks.size());
    HostGroupLayout layout;
    layout.control_bytes = RoundUp(ControlPage::BytesFor(size), 64);
    layout.data_bytes = OffsetOfGpuPages(size) + CudaIpcCollective::DataBytes();
    auto groups = CreateLocalHostGroups(ranks, layout);
    for (int index = 0; index < size; ++index) {
      of_rank[ranks[index]] = std::move(groups[index]);
    }
  }
  return of_rank;
}

}  // namespace

RuntimeClusterParts ConnectRuntimes(const std::vector<std::string>& host_ids,
                                    const Options& options,
                                    const RuntimeClusterSetup& setup,
                                    const RankSet& set) {
  RuntimeClusterParts parts;
  const int size = static_cast<int>(host_ids.size());
  std::vector<Links> links = ControlLinks(host_ids, set);
  std::vector<std::unique_ptr<HostGroup>> hosts(size);
  if (setup.shares_memory) hosts = HostGroups(host_ids);
  std::vector<std::unique_ptr<Transport>> transports =
      CreateLocalTransports(size);
  for (int rank = 0; rank < size; ++rank) {
    parts.control.emplace_back();
    for (const auto& [peer, link] : links[rank]) {
      parts.control.back().push_back(link.socket().fd());
    }
    RuntimeDeps deps;
    deps.options = options;
    deps.options.rank = rank;
    deps.options.size = size;
    deps.ranks = set;
    deps.counters = std::make_shared<Counters>();
    if (setup.trace != nullptr) {
      deps.trace = {std::shared_ptr<void>(), setup.trace};
    }
    deps.clock = std::make_unique<SharedClock>(*setup.clock);
    deps.host_ids = host_ids;
    for (const std::string& host : host_ids) {
      deps.peer_names.push_back("host " + host);
    }
    deps.host = std::move(hosts[rank]);
    if (deps.host && deps.host->size() == size) {
      ShmCollectiveOptions collective;
      collective.barrier.spin = setup.spin;
      collective.barrier.clock = deps.clock.get();
      deps.collective = std::make_unique<ShmCollective>(
          *deps.host, collective, Meter(*deps.counters, setup.trace));
    } else {
      std::unique_ptr<Transport> transport = std::move(transports[rank]);
      if (setup.wrap_transport) {
        transport = setup.wrap_transport(rank, std::move(transport));
      }
      deps.collective = std::make_unique<CpuCollective>(
          std::move(transport), CpuCollectiveOptions(),
          Meter(*deps.counters, setup.trace));
    }
    if (setup.wrap_collective) {
      deps.collective = setup.wrap_collective(rank, std::move(deps.collective));
    }
    if (setup.driver != nullptr) AddGpus(*setup.driver, deps);
    Result<std::unique_ptr<MessageChannel>> channel =
        MessageChannel::Create(std::move(links[rank]), 1 << 20, *deps.counters,
                               deps.host.get(), setup.spin, set, *deps.clock);
    KR_CHECK(channel.ok());
    deps.channel = std::move(channel).value();
    parts.deps.push_back(std::move(deps));
  }
  return parts;
}

RuntimeCluster::RuntimeCluster(const std::vector<std::string>& host_ids,
                               const Options& options,
                               const RuntimeClusterSetup& setup) {
  RuntimeClusterParts parts = ConnectRuntimes(host_ids, options, setup);
  control_ = std::move(parts.control);
  for (RuntimeDeps& deps : parts.deps) {
    runtimes_.push_back(Runtime::Start(std::move(deps)).value());
  }
}

RuntimeCluster::~RuntimeCluster() { ShutdownAll(); }

void RuntimeCluster::CutOff(int rank) {
  for (int fd : control_[rank]) KR_CHECK(shutdown(fd, SHUT_RDWR) == 0);
}

void RuntimeCluster::ShutdownAll() {
  std::vector<std::thread> threads;
  for (const auto& runtime : runtimes_) {
    if (!runtime) continue;
    threads.emplace_back([&runtime] { runtime->Shutdown(""); });
  }
  for (std::thread& thread : threads) thread.join();
}

Status EnqueueSum(Runtime& runtime, const std::string& name,
                  FloatOperation& operation) {
  TensorEntry entry;
  entry.request = std::make_shared<const Request>(
      AllreduceRequest(name, static_cast<int64_t>(operation.input.size())));
  operation.output.assign(operation.input.size(), -1.0f);
  entry.inputs = {operation.input.data()};
  entry.outputs = {operation.output.data()};
  entry.completion = Completion([&operation](const Status& status) {
    operation.finished.set_value(status);
  });
  return runtime.Enqueue(std::move(entry));
}

Status Await(FloatOperation& operation) {
  if (operation.status.wait_for(std::chrono::seconds(30)) !=
      std::future_status::ready) {
    return DeadlineExceededError("the operation did not end");
  }
  return operation.status.get();
}

}  // namespace keras_ring
