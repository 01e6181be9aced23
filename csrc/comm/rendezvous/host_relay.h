// HostRelay: the way of a host's ranks to rank 0's store, over one connection.
//
// Without it rank 0 has a connection to each rank of the job and sends its
// table to each. One rank of a host, whoever comes first, serves a store to the
// others under a local name, passes on what they say, and gives all of them
// what rank 0 answers. Where it goes, so do their connections, and another
// takes its place.
#ifndef KERAS_RING_COMM_RENDEZVOUS_HOST_RELAY_H_
#define KERAS_RING_COMM_RENDEZVOUS_HOST_RELAY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/acceptor.h"
#include "csrc/comm/net/framed_connection.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/rendezvous/member_record.h"
#include "csrc/comm/store/store_message.h"
#include "csrc/comm/store/tcp_store.h"

namespace keras_ring {

// What a rank has to know of its way to rank 0.
struct StoreRoute {
  int through = 0;    // the rank that it asks: 0, or that of the host's relay
  std::string local;  // the address of this host at which rank 0 sees it
  std::string peer;   // the one of rank 0
};

class HostRelay {
 public:
  // Lets ranks in from now on, which wait for Open or Refuse. `counters` must
  // outlive the relay.
  static Result<std::unique_ptr<HostRelay>> Start(Socket listener,
                                                  const JobKey& key,
                                                  Counters& counters);
  // Where rank 0's answer is on its way to others of the host, it arrives.
  ~HostRelay();

  // Begins to pass on, to and from rank 0's store at the other end of `link`.
  Status Open(Link link, const StoreRoute& route);
  // Rank 0 cannot be reached, or does not let this host in.
  void Refuse(const Status& why);

  // For a rank of the host: what the relay that `store` leads to was told by
  // Open or Refuse.
  static Result<StoreRoute> RouteOf(TcpStoreClient& store, Deadline deadline);

 private:
  HostRelay();
  LocalStore& store() { return server_.store(); }
  void PutRoute(const Status& status, const StoreRoute& route);
  // One that others of the host may have yet to ask for.
  bool has_answer() const { return concluded_ || !table_.members.empty(); }

  // The relay's thread.
  void Run();
  bool Wait();  // false: no more
  void PassOn(const TcpStoreServer::News& news);
  void Ask(const std::string& key);
  Status ReadAnswers();
  void OnAnswer(const StoreReply& reply);
  void OnLost(const Status& why);

  // Its own.
  std::optional<FramedConnection> rank_zero_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::string> asked_;  // keys, by the id of the request
  JobTable table_;                         // once it has come
  bool concluded_ = false;                 // rank 0 has no more to say

  Socket wake_;
  Mutex mutex_;
  std::vector<TcpStoreServer::News> news_ KR_GUARDED_BY(mutex_);
  bool stopping_ KR_GUARDED_BY(mutex_) = false;
  // These use what stands above.
  TcpStoreServer server_;
  std::unique_ptr<Acceptor> acceptor_;
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_HOST_RELAY_H_
