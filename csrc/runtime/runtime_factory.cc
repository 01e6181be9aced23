#include "csrc/runtime/runtime_factory.h"

#include <unistd.h>

#include <utility>

#include "csrc/comm/host_group.h"
#include "csrc/comm/message_channel.h"
#include "csrc/comm/rendezvous.h"
#include "csrc/runtime/runtime_parts.h"

namespace keras_ring {
namespace {

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

}  // namespace

Result<std::shared_ptr<Runtime>> CreateRuntime(
    const Options& options, const std::vector<std::string>& versions,
    const std::shared_ptr<Arena>& arena) {
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

  KR_RETURN_IF_ERROR(ConnectParts(*deps.mesh, arena, deadline, deps));
  return Runtime::Start(std::move(deps));
}

}  // namespace keras_ring
