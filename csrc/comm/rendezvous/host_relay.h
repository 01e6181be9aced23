// HostRelay: connects the ranks of a host to rank 0's store over one
// connection.
//
// Without it rank 0 has a connection to each rank of the job and sends its
// table to each. The first rank of a host serves a store to the others under a
// local name, forwards their requests, and gives all of them rank 0's answers.
// When it goes, their connections close, and another rank takes over.
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

// A rank's route to rank 0.
struct StoreRoute {
  int through = 0;    // the rank that it asks: 0, or that of the host's relay
  std::string local;  // the address of this host at which rank 0 sees it
  std::string peer;   // the address of rank 0
};

class HostRelay {
 public:
  // Accepts ranks from now on; they wait for Open or Refuse. `counters` must
  // outlive the relay.
  static Result<std::unique_ptr<HostRelay>> Start(Socket listener,
                                                  const JobKey& key,
                                                  Counters& counters);
  // An answer of rank 0 that is on its way to other ranks of the host still
  // arrives.
  ~HostRelay();

  // Begins to forward to and from rank 0's store at the other end of `link`.
  Status Open(Link link, const StoreRoute& route);
  // Tells the ranks that rank 0 cannot be reached, or does not accept this
  // host.
  void Refuse(const Status& why);

  // For a rank of the host: returns what the relay behind `store` was told by
  // Open or Refuse.
  static Result<StoreRoute> RouteOf(TcpStoreClient& store, Deadline deadline);

 private:
  HostRelay();
  LocalStore& store() { return server_.store(); }
  void PutRoute(const Status& status, const StoreRoute& route);
  // Returns whether there is an answer that other ranks of the host may still
  // ask for.
  bool has_answer() const { return concluded_ || !table_.members.empty(); }

  // The relay's thread.
  void Run();
  bool Wait();  // false: no more
  void PassOn(const TcpStoreServer::News& news);
  void Ask(const std::string& key);
  Status ReadAnswers();
  void OnAnswer(const StoreReply& reply);
  void OnLost(const Status& why);

  // Used by the relay's thread only.
  std::optional<FramedConnection> rank_zero_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::string> asked_;  // keys, by the id of the request
  JobTable table_;                         // once it has come
  bool concluded_ = false;                 // rank 0 has no more to say

  Socket wake_;
  Mutex mutex_;
  std::vector<TcpStoreServer::News> news_ KR_GUARDED_BY(mutex_);
  bool stopping_ KR_GUARDED_BY(mutex_) = false;
  // These use the members above.
  TcpStoreServer server_;
  std::unique_ptr<Acceptor> acceptor_;
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_HOST_RELAY_H_
