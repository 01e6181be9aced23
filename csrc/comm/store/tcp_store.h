// The Store over TCP: a server on rank 0 and a client for every other rank.
#ifndef KERAS_RING_COMM_STORE_TCP_STORE_H_
#define KERAS_RING_COMM_STORE_TCP_STORE_H_

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/framed_connection.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/store/local_store.h"
#include "csrc/comm/store/store.h"

namespace keras_ring {

// Serves connections that an Acceptor has authenticated, on one thread that
// sleeps until something comes, and ends when the job is complete and the last
// client has its table.
class TcpStoreServer {
 public:
  struct News {
    std::string key;
    std::string value;
    // The key has gone with its client, whose last word has the key `value`.
    bool gone = false;
  };
  // `heard`, if any, is called on the server's thread with each key that comes
  // from a client or goes with it, or is set for one that has gone.
  using Heard = std::function<void(const News& news)>;
  explicit TcpStoreServer(Heard heard = nullptr);
  ~TcpStoreServer();  // stops

  Status Start();
  // Goes on serving until its clients have gone, but no longer than `linger`:
  // rank 0 may leave the job while another has yet to ask for the table.
  // Idempotent.
  void Stop(Duration linger = std::chrono::seconds(1));

  // Takes over a client's connection, or closes it when the job is complete
  // already. Any thread. If it goes once the job is complete, and nobody has
  // set `last_word`, that is set then, empty: so others learn of it.
  void Serve(Link link, std::string last_word = "");

  // From now on new clients are to be told to come back later: the job is
  // complete, so whoever comes belongs to the next one. Any thread.
  void Seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }

  // Waits until every client has gone.
  bool WaitUntilAlone(Deadline deadline);

  // The store as the server's own process sees it.
  LocalStore& store() { return entries_; }

 private:
  struct Client {
    Client(int number, Link link, std::string last_word);
    const int number;
    const std::string last_word;
    FramedConnection connection;
    size_t num_waits = 0;
    bool awaits_room = false;  // to write
    bool gone = false;
  };
  // Who waits for so many keys under a prefix: clients and their requests.
  struct Asked {
    Client* client = nullptr;
    uint64_t id = 0;
  };
  using Waits = std::map<std::pair<std::string, size_t>, std::vector<Asked>>;

  void Run();
  void TakeNewClients();
  // What has happened since, in the order in which the clients came; null: not
  // to its socket.
  Result<std::vector<std::pair<Client*, uint32_t>>> WaitForEvents(
      int milliseconds);
  void ReadFrom(Client& client);
  void Send(Client& client, const std::string& frame);
  // Asks to be told when there is room, or no more.
  void WatchForRoom(Client& client);
  Status Handle(Client& client, std::string_view request);
  void AnswerWaits();
  // Its keys go at once, its place when RemoveGoneClients comes by.
  void Drop(Client& client);
  void SayLastWord(const std::string& key);
  void Tell(const News& news) const {
    if (heard_) heard_(news);
  }
  void RemoveGoneClients();
  // Ends the work, so that Serve turns clients away, if there are none now.
  bool EndIfAlone();

  const Heard heard_;
  Socket wake_;
  Socket poll_;  // of epoll
  LocalStore entries_;
  // The thread's own.
  std::list<Client> clients_;
  Waits waits_;
  int next_number_ = 0;
  size_t num_gone_ = 0;

  Mutex mutex_;
  CondVar alone_;
  std::vector<std::pair<Link, std::string>> arrived_ KR_GUARDED_BY(mutex_);
  size_t num_clients_ KR_GUARDED_BY(mutex_) = 0;  // arrived_ included
  bool ended_ KR_GUARDED_BY(mutex_) = false;

  std::atomic<bool> sealed_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<Duration::rep> linger_{0};
  std::thread thread_;
};

// A client's link to the store at `host`. Tries again until the deadline while
// nobody listens there, or one who is just closing does. kUnauthenticated at
// once when the keys differ.
Result<Link> OpenStoreLink(const std::string& host, uint16_t port,
                           const JobKey& key, int rank, Deadline deadline,
                           Tls* tls = nullptr);

// One caller at a time.
class TcpStoreClient final : public Store {
 public:
  // `link`: to a store that has let this client in.
  explicit TcpStoreClient(Link link);
  // Over OpenStoreLink.
  static Result<std::unique_ptr<TcpStoreClient>> Connect(
      const std::string& host, uint16_t port, const JobKey& key, int rank,
      Deadline deadline, Tls* tls = nullptr);

  Status Set(const std::string& key, const std::string& value,
             Deadline deadline) override;
  Result<StoreEntries> List(const std::string& prefix, size_t at_least,
                            Deadline deadline) override;
  // List in two steps, which others may come between. Once the second could
  // return there is something to read from the socket, and nothing before.
  uint64_t BeginList(const std::string& prefix, size_t at_least);
  // May be called again after kDeadlineExceeded.
  Result<StoreEntries> EndList(uint64_t id, Deadline deadline);

  // Whether the server answers at all: its process may have been stopped.
  bool Answers();

  const Socket& socket() const { return connection_.socket(); }

 private:
  // The reply to what was sent under `id`. Those to lists that were begun are
  // kept for their ends; on others the caller has given up.
  Result<std::string> Await(uint64_t id, Deadline deadline);

  FramedConnection connection_;
  uint64_t next_id_ = 1;
  // By id: lists that have begun and not ended, and their replies.
  std::map<uint64_t, std::optional<std::string>> begun_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_STORE_TCP_STORE_H_
