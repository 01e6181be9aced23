// JobMesh: the Mesh of a job over TCP.
#ifndef KERAS_RING_COMM_JOB_MESH_H_
#define KERAS_RING_COMM_JOB_MESH_H_

#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/comm/acceptor.h"
#include "csrc/comm/handshake.h"
#include "csrc/comm/join_record.h"
#include "csrc/comm/rendezvous.h"
#include "csrc/comm/socket.h"
#include "csrc/comm/tcp_store.h"

namespace keras_ring {

// Accepted links, until Connect asks for them. A peer may be faster than this
// rank and dial before it does. Thread-safe.
class LinkInbox {
 public:
  // Of those that wait for one and the same use, the last few are kept.
  void Put(const Hello& hello, Socket socket) KR_EXCLUDES(mutex_);
  // Waits for one link for `use` from each of `ranks`. Process sets are made
  // one after the other, so links of an earlier one, which has failed, go.
  Result<std::map<int, Socket>> Take(LinkUse use, const std::vector<int>& ranks,
                                     Deadline deadline) KR_EXCLUDES(mutex_);
  // Take fails with `cause` from now on. The first cause is kept.
  void Abort(const Status& cause) KR_EXCLUDES(mutex_);
  size_t size() const KR_EXCLUDES(mutex_);

 private:
  // Process set, kind, rank.
  using Key = std::tuple<uint32_t, LinkKind, int>;
  void DropEarlierLocked(uint32_t set) KR_REQUIRES(mutex_);
  // Those of `ranks` that have a link waiting; closed links are thrown away,
  // since the peer has given them up.
  std::vector<int> MissingLocked(LinkUse use, const std::vector<int>& ranks)
      KR_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar came_;
  std::multimap<Key, Socket> links_ KR_GUARDED_BY(mutex_);
  Status aborted_ KR_GUARDED_BY(mutex_);
};

class JobMesh final : public Mesh {
 public:
  // `serve_store`: on rank 0. `counters` must outlive the mesh.
  static Result<std::unique_ptr<JobMesh>> Start(int rank, int size,
                                                const JobKey& key,
                                                Socket listener,
                                                bool serve_store,
                                                Counters& counters);

  // The number this rank's acceptor answers to.
  uint64_t target() const { return target_; }
  uint16_t port() const { return port_; }
  // Null but on rank 0.
  TcpStoreServer* store_server() { return store_server_.get(); }

  // Before the first Connect.
  void SetTable(JobTable table) { table_ = std::move(table); }

  const std::vector<Member>& members() const override { return table_.members; }
  Result<std::map<int, Socket>> Connect(LinkUse use,
                                        const std::vector<int>& peers,
                                        Deadline deadline) override;
  void Abort(const Status& cause) override { inbox_.Abort(cause); }

 private:
  JobMesh(int rank, int size, const JobKey& key, uint64_t target,
          uint16_t port);
  Verdict Admit(const Hello& hello) const;
  void Connected(const Hello& hello, Socket socket);
  Result<Socket> Dial(LinkUse use, int peer, Deadline deadline) const;

  const int rank_;
  const int size_;
  const JobKey key_;
  const uint64_t target_;
  const uint16_t port_;
  JobTable table_;
  LinkInbox inbox_;
  std::unique_ptr<TcpStoreServer> store_server_;
  // Last, so that it stops first: its thread uses what stands above.
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_JOB_MESH_H_
