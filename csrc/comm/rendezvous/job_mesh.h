// JobMesh: the Mesh of a job over TCP.
#ifndef KERAS_RING_COMM_RENDEZVOUS_JOB_MESH_H_
#define KERAS_RING_COMM_RENDEZVOUS_JOB_MESH_H_

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/acceptor.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/rendezvous/member_record.h"
#include "csrc/comm/rendezvous/rendezvous.h"
#include "csrc/comm/rendezvous/start_monitor.h"
#include "csrc/comm/rendezvous/store_access.h"
#include "csrc/comm/store/tcp_store.h"

namespace keras_ring {

// Accepted links, until Connect takes them. A peer may be faster than this rank
// and dial before it does. Thread-safe.
class LinkInbox {
 public:
  // Keeps only the last few of the links that wait for the same use.
  void Put(const Hello& hello, Link link) KR_EXCLUDES(mutex_);
  // Waits for one link for `use` from each of `ranks`. Process sets are made
  // one after the other, so links of an earlier one, which has failed, are
  // dropped.
  Result<Links> Take(LinkUse use, const std::vector<int>& ranks,
                     Deadline deadline) KR_EXCLUDES(mutex_);
  // Makes Take fail with `cause` from now on. The first cause is kept.
  void Abort(const Status& cause) KR_EXCLUDES(mutex_);
  // Returns that cause; OK while there is none.
  Status aborted() const KR_EXCLUDES(mutex_);
  size_t size() const KR_EXCLUDES(mutex_);

 private:
  // Process set, kind, rank.
  using Key = std::tuple<uint32_t, LinkKind, int>;
  void DropEarlierLocked(uint32_t set) KR_REQUIRES(mutex_);
  // Returns the members of `ranks` that have no link waiting; drops closed
  // links, since their peers have given them up.
  std::vector<int> MissingLocked(LinkUse use, const std::vector<int>& ranks)
      KR_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar came_;
  std::multimap<Key, Link> links_ KR_GUARDED_BY(mutex_);
  Status aborted_ KR_GUARDED_BY(mutex_);
};

class JobMesh final : public StartingMesh {
 public:
  // `serve_store`: on rank 0. `tls`: null where links are plain. It and
  // `counters` must outlive the mesh.
  static Result<std::unique_ptr<JobMesh>> Start(
      int rank, int size, const JobKey& key, Socket listener, bool serve_store,
      Counters& counters, Tls* tls = nullptr);

  // The number that this rank's acceptor answers to.
  uint64_t target() const { return target_; }
  uint16_t port() const { return port_; }
  // Null on all ranks but 0.
  TcpStoreServer* store_server() { return store_server_.get(); }
  std::string refusals() const { return acceptor_->refusals(); }

  // To be called before the first Connect.
  void SetTable(JobTable table, Deadline deadline) {
    table_ = std::move(table);
    deadline_ = deadline;
  }
  // On ranks other than 0: keeps the store until the start is agreed on.
  // `of_rank_zero`: when rank 0 gives up the start. From now on no caller here
  // waits for a start that has failed.
  Status KeepStore(StoreAccess access, Deadline of_rank_zero);

  int rank() const override { return rank_; }
  const std::vector<Member>& members() const override { return table_.members; }
  Result<Links> Connect(LinkUse use, const std::vector<int>& peers,
                        Deadline deadline) override;
  void Abort(const Status& cause) override { inbox_.Abort(cause); }
  Deadline deadline() const override { return deadline_; }
  Status StartBarrier(const Status& own) override;

 private:
  JobMesh(int rank, int size, const JobKey& key, uint64_t target, uint16_t port,
          Tls* tls);
  Verdict Admit(const Hello& hello) const;
  void Connected(const Hello& hello, Link link);
  // Another rank has failed to start, or is gone: stops waiting for links.
  void GiveUpStart();
  Result<Link> Dial(LinkUse use, int peer, Deadline deadline) const;

  const int rank_;
  const int size_;
  const JobKey key_;
  const uint64_t target_;
  const uint16_t port_;
  Tls* const tls_;
  JobTable table_;
  Deadline deadline_{TimePoint::max()};
  StoreAccess access_;
  uint64_t asked_ = 0;  // the id of the request for the verdict
  Deadline deadline_of_rank_zero_{TimePoint::max()};
  LinkInbox inbox_;
  // These use the members above.
  std::unique_ptr<StartMonitor> watch_;
  std::unique_ptr<TcpStoreServer> store_server_;
  // Last, so that it stops first: its thread uses the members above.
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_JOB_MESH_H_
