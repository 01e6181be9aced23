#include "csrc/comm/rendezvous/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "csrc/comm/net/addresses.h"
#include "csrc/comm/net/descriptor_limit.h"
#include "csrc/comm/rendezvous/job_mesh.h"
#include "csrc/comm/rendezvous/member_record.h"
#include "csrc/comm/rendezvous/store_access.h"
#include "csrc/comm/store/tcp_store.h"

namespace keras_ring {
namespace {

// Ranks that start together reach their deadlines together. The others wait
// this much longer, so that all report rank 0's verdict, in the same words.
constexpr Duration kVerdictGrace = std::chrono::milliseconds(500);
// And then as long for an answer that rank 0 has at hand.
constexpr Duration kAnswerGrace = std::chrono::milliseconds(300);
// How long rank 0 stays to tell the others why there is no job.
constexpr Duration kVerdictLinger = std::chrono::seconds(2);
// The last of the start's time is for the ranks to tell each other why there is
// no job; a quarter of it at most.
constexpr Duration kTellingTime = std::chrono::milliseconds(750);
constexpr Duration kNamePause = std::chrono::milliseconds(200);
constexpr Duration kJoinAgainPause = std::chrono::milliseconds(20);

bool IsList(const std::string& hosts) {
  return hosts.find(',') != std::string::npos;
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "an unknown host";
  return name;
}

Member OwnMember(const RendezvousOptions& options) {
  Member member;
  member.host_id = options.host_id;
  member.host = HostName();
  member.pid = getpid();
  return member;
}

MemberRecord OwnRecord(const RendezvousOptions& options, const JobMesh& mesh,
                       const std::string& address) {
  MemberRecord record;
  record.rank = options.rank;
  record.size = options.size;
  record.member = OwnMember(options);
  record.member.address = address;
  record.member.port = mesh.port();
  record.target = mesh.target();
  record.fingerprint = options.fingerprint;
  return record;
}

// A job of one rank: no sockets at all.
class SoloMesh final : public StartingMesh {
 public:
  SoloMesh(Member member, Deadline deadline)
      : members_{std::move(member)}, deadline_(deadline) {}
  int rank() const override { return 0; }
  const std::vector<Member>& members() const override { return members_; }
  Result<Links> Connect(LinkUse, const std::vector<int>& peers,
                        Deadline) override {
    KR_CHECK(peers.empty());
    return Links();
  }
  void Abort(const Status&) override {}
  Deadline deadline() const override { return deadline_; }
  Status StartBarrier(const Status& own) override { return own; }

 private:
  const std::vector<Member> members_;
  const Deadline deadline_;
};

Status CheckOptions(const RendezvousOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgumentError(
        "rank " + std::to_string(options.rank) + " of " +
        std::to_string(options.size) +
        ": the rank must be at least 0 and below the size");
  }
  if (options.size == 1) return OkStatus();
  if (options.key.empty()) {
    return InvalidArgumentError("a job of several ranks needs a job key");
  }
  if (options.rank > 0 &&
      (options.store_host.empty() || options.store_port == 0)) {
    return InvalidArgumentError("rank " + std::to_string(options.rank) +
                                " was not told the address of rank 0's store");
  }
  return OkStatus();
}

// Rank 0: collects the records until there is one per rank, or a reason why
// there cannot be a job.
Result<std::vector<MemberRecord>> CollectRecords(LocalStore& store, int size,
                                                 Deadline deadline) {
  MemberRecords records(size);
  const auto feed = store.Follow("");
  while (!records.complete()) {
    Result<LocalStore::Change> change = feed->Next(deadline);
    if (change.status().code() == StatusCode::kDeadlineExceeded) {
      return records.Missing();
    }
    KR_RETURN_IF_ERROR(change.status());
    const std::string& key = change->key;
    if (HasPrefix(key, kLatePrefix)) {
      if (change->gone) continue;
      JobTable none;
      none.status = records.Missing();
      const std::string asker = key.substr(std::strlen(kLatePrefix));
      KR_RETURN_IF_ERROR(
          store.Set(kMissingPrefix + asker, Encode(none), deadline));
    } else if (HasPrefix(key, kMemberPrefix) && change->gone) {
      records.Remove(key);
    } else if (HasPrefix(key, kMemberPrefix)) {
      KR_RETURN_IF_ERROR(records.Add(key, change->value));
    }
  }
  return records.Take();
}

// The table of the job, or why there is none.
JobTable JobOf(LocalStore& store, int size, Deadline deadline) {
  JobTable failed;
  auto records = CollectRecords(store, size, deadline);
  failed.status =
      records.ok() ? CompareFingerprints(*records) : records.status();
  return failed.status.ok() ? MakeTable(*records) : failed;
}

Status PublishFailure(TcpStoreServer& server, int size, const JobTable& table) {
  const Deadline linger = Deadline::After(kVerdictLinger);
  (void)server.store().Set(kTableKey, Encode(table), linger);
  if (table.status.code() != StatusCode::kDeadlineExceeded) {
    // Ranks that are still on their way shall hear it, too.
    (void)server.store().List(kMemberPrefix, size, linger);
  }
  server.WaitUntilAlone(linger);
  return table.status;
}

// Fills in the address of rank 0 for rank 0 itself and the ranks of its host.
void FillAddresses(JobTable& table, const std::string& of_rank_zero) {
  for (Member& member : table.members) {
    if (member.address.empty()) member.address = of_rank_zero;
  }
}

// Opens the listener on which rank 0 serves the store and accepts ranks.
Result<Socket> ListenAsRankZero(const RendezvousOptions& options) {
  if (options.store_listen_fd >= 0) {
    return AdoptListener(options.store_listen_fd);
  }
  const std::string& host = options.store_host;
  // The others may come to another address than this host gives itself: by an
  // interface of their choice, by one of several, or by a name that is loopback
  // on this host.
  if (IsList(host) || (!MeansLoopback(host) &&
                       (!options.advertise_host.empty() || IsLoopback(host)))) {
    return ListenEverywhere(options.store_port);
  }
  return Listen(host, options.store_port);
}

// The name of this host may become known only a while after it has started.
Result<Socket> ListenWhenNamed(const RendezvousOptions& options,
                               Deadline deadline) {
  while (true) {
    Result<Socket> listener = ListenAsRankZero(options);
    if (listener.ok() || options.store_listen_fd >= 0 || deadline.expired() ||
        Resolve(options.store_host, options.store_port, 0).status().code() !=
            StatusCode::kUnavailable) {
      return listener;
    }
    Pause(kNamePause, deadline);
  }
}

Result<std::unique_ptr<StartingMesh>> JoinAsRankZero(
    const RendezvousOptions& options, Deadline deadline, Counters& counters) {
  KR_RETURN_IF_ERROR(MakeRoomForDescriptors(
      options.size, "rank 0 of a job of " + std::to_string(options.size)));
  Result<Socket> listener = ListenWhenNamed(options, deadline);
  if (!listener.ok()) return listener.status();
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<JobMesh> mesh,
      JobMesh::Start(options.rank, options.size, options.key,
                     std::move(listener).value(),
                     /*serve_store=*/true, counters, options.tls));
  TcpStoreServer& server = *mesh->store_server();
  const bool elsewhere = !options.advertise_host.empty() &&
                         options.store_listen_fd < 0 &&
                         !MeansLoopback(options.store_host);
  MemberRecord own =
      OwnRecord(options, *mesh, elsewhere ? options.advertise_host : "");
  KR_RETURN_IF_ERROR(server.store().Set(JoinKey(own), Encode(own), deadline));
  JobTable table = JobOf(server.store(), options.size, deadline);
  if (table.status.code() == StatusCode::kDeadlineExceeded) {
    // One of the refused connections may be a missing rank.
    const std::string refusals = mesh->refusals();
    if (!refusals.empty()) {
      table.status =
          DeadlineExceededError(table.status.message() + "; " + refusals);
    }
  }
  if (!table.status.ok()) return PublishFailure(server, options.size, table);
  // Before the table is out: a rank that has it may leave and come back for
  // the next job, and must not meet this one's store.
  server.Seal();
  const Duration left = std::max(
      Duration::zero(), deadline.at() - std::chrono::steady_clock::now());
  table.time_left = left - std::min(kTellingTime, left / 4);
  const Deadline of_links = Deadline::After(table.time_left);
  KR_RETURN_IF_ERROR(server.store().Set(kTableKey, Encode(table), deadline));
  FillAddresses(table, options.store_host);
  mesh->SetTable(std::move(table), of_links);
  return std::unique_ptr<StartingMesh>(std::move(mesh));
}

// The address of this rank's listener. Empty: it listens on all addresses, and
// each peer takes the one by which it has reached rank 0.
std::string ListenAddress(const RendezvousOptions& options,
                          const StoreRoute& route) {
  const bool one_host = MeansLoopback(options.store_host);
  if (!options.advertise_host.empty() && !one_host) {
    return options.advertise_host;
  }
  const std::string& address = route.local;
  // On the host of rank 0 any of its addresses is reached, also one that other
  // hosts do not reach.
  if (IsList(options.store_host) && route.peer == address) return "";
  if (one_host || !MeansLoopback(address)) return address;
  // Rank 0 is on this host, whose name is loopback here, but not on other
  // hosts.
  const std::string outside = OutsideAddress();
  return outside.empty() ? address : outside;
}

// The table of the job, which may say that there is none. kUnavailable when
// the store went away meanwhile.
Result<JobTable> AskForTable(TcpStoreClient& store, const MemberRecord& own,
                             Deadline deadline) {
  KR_RETURN_IF_ERROR(store.Set(JoinKey(own), Encode(own), deadline));
  const Deadline patient(deadline.at() + kVerdictGrace);
  Result<StoreEntries> entries = store.List(kTableKey, 1, patient);
  if (entries.ok()) {
    JobTable table;
    if (!Decode(entries->begin()->second, &table)) {
      return InternalError("a malformed table in the store");
    }
    return table;
  }
  if (entries.status().code() != StatusCode::kDeadlineExceeded) {
    return entries.status();
  }
  // Rank 0 has a later deadline and still waits: asks it for the missing ranks.
  const Deadline soon = Deadline::After(kAnswerGrace);
  const std::string asker =
      std::to_string(own.rank) + "/" + std::to_string(own.target) + ".";
  KR_RETURN_IF_ERROR(store.Set(kLatePrefix + asker, "", soon));
  KR_ASSIGN_OR_RETURN(const StoreEntries missing,
                      store.List(kMissingPrefix + asker, 1, soon));
  JobTable none;
  if (!Decode(missing.begin()->second, &none)) {
    return InternalError("a malformed answer in the store");
  }
  return none;
}

Result<JobTable> AwaitTable(const StoreAccess& access, const MemberRecord& own,
                            const std::string& where, Deadline deadline) {
  Result<JobTable> table = AskForTable(*access.store, own, deadline);
  if (table.status().code() != StatusCode::kDeadlineExceeded) return table;
  std::string silent = "rank 0 (at " + where + ")";
  const int through = access.route.through;
  if (through != 0 && !access.store->Answers()) {
    silent = "rank " + std::to_string(through) +
             ", by which this rank reaches rank 0,";
  }
  return DeadlineExceededError(
      "lost " + silent +
      " while the job started: it let this rank in, and nothing came from it "
      "within KERAS_RING_START_TIMEOUT; its process is stopped or its host or "
      "network is gone");
}

Result<std::unique_ptr<StartingMesh>> JoinAsOther(
    const RendezvousOptions& options, Deadline deadline, Counters& counters) {
  const std::string where = HostPort(options.store_host, options.store_port);
  std::unique_ptr<JobMesh> mesh;
  std::string address;
  while (true) {
    Result<StoreAccess> access = ReachStore(options, deadline, counters);
    Status status = access.status();
    if (access.ok()) {
      if (mesh == nullptr) {
        address = ListenAddress(options, access->route);
        KR_ASSIGN_OR_RETURN(
            Socket listener,
            ListenInRange(address, options.ports, options.rank));
        KR_ASSIGN_OR_RETURN(
            mesh, JobMesh::Start(options.rank, options.size, options.key,
                                 std::move(listener),
                                 /*serve_store=*/false, counters, options.tls));
      }
      Result<JobTable> table = AwaitTable(
          *access, OwnRecord(options, *mesh, address), where, deadline);
      if (table.ok()) {
        KR_RETURN_IF_ERROR(table->status);
        if (table->members.size() != static_cast<size_t>(options.size)) {
          return InternalError("the table has a wrong number of members");
        }
        FillAddresses(*table, access->route.peer);
        const Deadline of_rank_zero = Deadline::After(table->time_left);
        mesh->SetTable(std::move(table).value(),
                       Deadline(std::min(deadline.at(), of_rank_zero.at())));
        KR_RETURN_IF_ERROR(
            mesh->KeepStore(std::move(access).value(), of_rank_zero));
        return std::unique_ptr<StartingMesh>(std::move(mesh));
      }
      status = table.status();
      if (status.code() != StatusCode::kUnavailable) return status;
    }
    bool again = status.code() == StatusCode::kUnavailable;
    if (!again && status.code() != StatusCode::kDeadlineExceeded) {
      return status.WithContext("joining the job at " + where);
    }
    if (deadline.expired()) {
      return DeadlineExceededError("rank 0 did not come to " + where +
                                   " in time: " + status.message());
    }
    // The store was that of an earlier job just closing, or rank 0 has died.
    Pause(kJoinAgainPause, deadline);
  }
}

}  // namespace

Result<std::unique_ptr<StartingMesh>> Rendezvous(
    const RendezvousOptions& options, Deadline deadline, Counters& counters) {
  KR_RETURN_IF_ERROR(CheckOptions(options));
  if (options.size == 1) {
    return std::unique_ptr<StartingMesh>(
        std::make_unique<SoloMesh>(OwnMember(options), deadline));
  }
  return options.rank == 0 ? JoinAsRankZero(options, deadline, counters)
                           : JoinAsOther(options, deadline, counters);
}

}  // namespace keras_ring
