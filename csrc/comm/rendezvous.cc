#include "csrc/comm/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "csrc/comm/job_mesh.h"
#include "csrc/comm/join_record.h"
#include "csrc/comm/tcp_store.h"

namespace keras_ring {
namespace {

// Ranks that start together reach their deadlines together. The others wait
// this much longer, so that all report rank 0's verdict, in the same words.
constexpr Duration kVerdictGrace = std::chrono::seconds(1);
// How long rank 0 stays to tell the others why there is no job.
constexpr Duration kVerdictLinger = std::chrono::seconds(2);
constexpr Duration kJoinAgainPause = std::chrono::milliseconds(20);

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

JoinRecord OwnRecord(const RendezvousOptions& options, const JobMesh& mesh,
                     const std::string& address) {
  JoinRecord record;
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
class SoloMesh final : public Mesh {
 public:
  explicit SoloMesh(Member member) : members_{std::move(member)} {}
  const std::vector<Member>& members() const override { return members_; }
  Result<std::map<int, Socket>> Connect(LinkUse, const std::vector<int>& peers,
                                        Deadline) override {
    KR_CHECK(peers.empty());
    return std::map<int, Socket>();
  }
  void Abort(const Status&) override {}

 private:
  const std::vector<Member> members_;
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
JobTable CollectRecords(Store& store, int size, Deadline deadline) {
  JobTable failed;
  std::vector<JoinRecord> records;
  while (records.size() < static_cast<size_t>(size)) {
    // One at a time, so that a wrong rank shows when it comes.
    Result<StoreEntries> entries =
        store.List(kJoinPrefix, records.size() + 1, deadline);
    if (!entries.ok()) {
      bool late = entries.status().code() == StatusCode::kDeadlineExceeded;
      failed.status = late ? MissingRanks(records, size) : entries.status();
      return failed;
    }
    Result<std::vector<JoinRecord>> decoded = DecodeRecords(*entries);
    failed.status =
        decoded.ok() ? CheckRanks(*decoded, size) : decoded.status();
    if (!failed.status.ok()) return failed;
    records = std::move(decoded).value();
  }
  failed.status = CompareFingerprints(records);
  return failed.status.ok() ? MakeTable(records) : failed;
}

Status PublishFailure(TcpStoreServer& server, int size, const JobTable& table) {
  const Deadline linger = Deadline::After(kVerdictLinger);
  (void)server.store().Set(kTableKey, Encode(table), linger);
  if (table.status.code() != StatusCode::kDeadlineExceeded) {
    // Those that are still on their way shall hear it too.
    (void)server.store().List(kJoinPrefix, size, linger);
  }
  server.WaitUntilAlone(linger);
  return table.status;
}

Result<std::unique_ptr<Mesh>> JoinAsRankZero(const RendezvousOptions& options,
                                             Deadline deadline,
                                             Counters& counters) {
  Result<Socket> listener =
      options.store_listen_fd >= 0
          ? AdoptListener(options.store_listen_fd)
          : Listen(options.store_host, options.store_port);
  if (!listener.ok()) return listener.status();
  KR_ASSIGN_OR_RETURN(std::unique_ptr<JobMesh> mesh,
                      JobMesh::Start(options.rank, options.size, options.key,
                                     std::move(listener).value(),
                                     /*serve_store=*/true, counters));
  TcpStoreServer& server = *mesh->store_server();
  JoinRecord own = OwnRecord(options, *mesh, options.store_host);
  KR_RETURN_IF_ERROR(server.store().Set(JoinKey(own), Encode(own), deadline));
  JobTable table = CollectRecords(server.store(), options.size, deadline);
  if (!table.status.ok()) return PublishFailure(server, options.size, table);
  // Before the table is out: a rank that has it may leave and come back for
  // the next job, and must not meet this one's store.
  server.Seal();
  KR_RETURN_IF_ERROR(server.store().Set(kTableKey, Encode(table), deadline));
  mesh->SetTable(std::move(table));
  return std::unique_ptr<Mesh>(std::move(mesh));
}

// The address of this rank's listener.
Result<std::string> ListenAddress(const RendezvousOptions& options,
                                  const TcpStoreClient& store) {
  if (!options.advertise_host.empty() && !IsLoopback(options.store_host)) {
    return options.advertise_host;
  }
  return LocalAddress(store.socket());
}

// The table of the job, which may say that there is none. kUnavailable when
// the store went away meanwhile.
Result<JobTable> AwaitTable(TcpStoreClient& store, const JoinRecord& own,
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
  // Rank 0 has a later deadline and still waits: say for whom.
  KR_ASSIGN_OR_RETURN(
      StoreEntries present,
      store.List(kJoinPrefix, 0, Deadline::After(kVerdictGrace)));
  KR_ASSIGN_OR_RETURN(auto records, DecodeRecords(present));
  return MissingRanks(records, own.size);
}

Result<std::unique_ptr<Mesh>> JoinAsOther(const RendezvousOptions& options,
                                          Deadline deadline,
                                          Counters& counters) {
  const std::string where = HostPort(options.store_host, options.store_port);
  std::unique_ptr<JobMesh> mesh;
  std::string address;
  while (true) {
    auto store = TcpStoreClient::Connect(options.store_host, options.store_port,
                                         options.key, options.rank, deadline);
    Status status = store.status();
    if (store.ok()) {
      if (mesh == nullptr) {
        KR_ASSIGN_OR_RETURN(address, ListenAddress(options, **store));
        KR_ASSIGN_OR_RETURN(Socket listener, Listen(address, 0));
        KR_ASSIGN_OR_RETURN(
            mesh, JobMesh::Start(options.rank, options.size, options.key,
                                 std::move(listener),
                                 /*serve_store=*/false, counters));
      }
      Result<JobTable> table =
          AwaitTable(**store, OwnRecord(options, *mesh, address), deadline);
      if (table.ok()) {
        KR_RETURN_IF_ERROR(table->status);
        if (table->members.size() != static_cast<size_t>(options.size)) {
          return InternalError("the table has a wrong number of members");
        }
        mesh->SetTable(std::move(table).value());
        return std::unique_ptr<Mesh>(std::move(mesh));
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

Result<std::unique_ptr<Mesh>> JoinJob(const RendezvousOptions& options,
                                      Deadline deadline, Counters& counters) {
  KR_RETURN_IF_ERROR(CheckOptions(options));
  if (options.size == 1) {
    return std::unique_ptr<Mesh>(
        std::make_unique<SoloMesh>(OwnMember(options)));
  }
  return options.rank == 0 ? JoinAsRankZero(options, deadline, counters)
                           : JoinAsOther(options, deadline, counters);
}

}  // namespace keras_ring
