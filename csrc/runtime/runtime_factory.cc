#include "csrc/runtime/runtime_factory.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "csrc/collective/cpu_collective.h"
#include "csrc/comm/message_channel.h"
#include "csrc/comm/rendezvous.h"
#include "csrc/comm/tcp_transport.h"
#include "csrc/control/control_tree.h"

namespace keras_ring {
namespace {

// Must hold the description of a large model's gradients in one message.
constexpr size_t kMaxControlFrame = 64 << 20;

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

RendezvousOptions RendezvousOptionsOf(const Options& options, JobKey key,
                                      std::vector<std::string> fingerprint) {
  RendezvousOptions result;
  result.rank = options.rank;
  result.size = options.size;
  result.store_host = options.rendezvous_host;
  result.store_port = options.rendezvous_port;
  result.store_listen_fd = options.rendezvous_fd;
  result.key = std::move(key);
  result.host_id = options.host_id.empty() ? HostName() : options.host_id;
  result.advertise_host = options.interface_address;
  result.fingerprint = std::move(fingerprint);
  return result;
}

// The neighbours in the ring, which is all that the collectives speak to.
std::vector<int> RingPeers(int rank, int size) {
  std::set<int> peers = {(rank + 1) % size, (rank + size - 1) % size};
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

}  // namespace

Result<std::shared_ptr<Runtime>> CreateRuntime(
    const Options& options, const std::vector<std::string>& versions) {
  const Deadline deadline = Deadline::AfterSeconds(options.start_timeout);
  RuntimeDeps deps;
  deps.options = options;
  deps.counters = std::make_unique<Counters>();
  deps.clock = std::make_unique<SystemClock>();

  std::vector<std::string> fingerprint = options.Fingerprint();
  fingerprint.insert(fingerprint.end(), versions.begin(), versions.end());
  JobKey key;
  if (options.size > 1) {
    KR_ASSIGN_OR_RETURN(key, JobKey::FromHex(options.job_key));
  }
  KR_ASSIGN_OR_RETURN(deps.mesh,
                      JoinJob(RendezvousOptionsOf(options, std::move(key),
                                                  std::move(fingerprint)),
                              deadline, *deps.counters));
  for (const Member& member : deps.mesh->members()) {
    deps.host_ids.push_back(member.host_id);
    deps.peer_names.push_back("host " + member.host + ", pid " +
                              std::to_string(member.pid));
  }

  const ControlTree tree = BuildControlTree(deps.host_ids, options.rank);
  KR_ASSIGN_OR_RETURN(auto control, deps.mesh->Connect(LinkKind::kControl,
                                                       tree.Peers(), deadline));
  KR_ASSIGN_OR_RETURN(
      deps.channel, MessageChannel::Create(std::move(control), kMaxControlFrame,
                                           *deps.counters));
  KR_ASSIGN_OR_RETURN(
      auto data,
      deps.mesh->Connect(LinkKind::kData, RingPeers(options.rank, options.size),
                         deadline));
  KR_ASSIGN_OR_RETURN(
      deps.transport,
      TcpTransport::Create(
          options.rank, options.size, std::move(data),
          std::chrono::duration_cast<Duration>(
              std::chrono::duration<double>(options.heartbeat_timeout)),
          *deps.counters));
  deps.collective =
      std::make_unique<CpuCollective>(*deps.transport, CpuCollectiveOptions());
  return Runtime::Start(std::move(deps));
}

}  // namespace keras_ring
