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
// sleeps until something arrives, and ends when the job is complete and the
// last client has its table.
class TcpStoreServer {
 public:
  struct News {
    std::string key;
    std::string value;
    // The key has gone with its client. The client's last word has the key
    // `value`.
    bool gone = false;
  };
  // `heard`, if any, is called on the server's thread for each key that a
  // client sets, that is removed with its client, or that is set for a client
  // that has gone.
  using Heard = std::function<void(const News& news)>;
  explicit TcpStoreServer(Heard heard = nullptr);
  ~TcpStoreServer();  // stops

  Status Start();
  // Keeps serving until its clients have gone, but no longer than `linger`:
  // rank 0 may leave the job while another rank has yet to ask for the table.
  // Idempotent.
  void Stop(Duration linger = std::chrono::seconds(1));

  // Takes over a client's connection, or closes it if the job is complete
  // already. Any thread. If the client goes once the job is complete, and
  // `last_word` is not set, the server sets it, empty: so others learn of it.
  void Serve(Link link, std::string last_word = "");

  // From now on new clients are told to come back later: the job is complete,
  // so any new client belongs to the next one. Any thread.
  void Seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }

  // Waits until every client has gone. Returns false if `deadline` comes first.
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
  // A client that waits for a number of keys under a prefix, and its request.
  struct Asked {
    Client* client = nullptr;
    uint64_t id = 0;
  };
  using Waits = std::map<std::pair<std::string, size_t>, std::vector<Asked>>;

  void Run();
  void TakeNewClients();
  // The events since the last call, in the order in which the clients came. A
  // null client stands for a wake-up.
  Result<std::vector<std::pair<Client*, uint32_t>>> WaitForEvents(
      int milliseconds);
  void ReadFrom(Client& client);
  void Send(Client& client, const std::string& frame);
  // Asks epoll to report when there is room to write, or stops that.
  void WatchForRoom(Client& client);
  Status Handle(Client& client, std::string_view request);
  void AnswerWaits();
  // Removes its keys at once; RemoveGoneClients removes the client later.
  void Drop(Client& client);
  void SayLastWord(const std::string& key);
  void Tell(const News& news) const {
    if (heard_) heard_(news);
  }
  void RemoveGoneClients();
  // Ends the thread, so that Serve closes new connections, if there are no
  // clients now.
  bool EndIfAlone();

  const Heard heard_;
  Socket wake_;
  Socket poll_;  // of epoll
  LocalStore entries_;
  // Used by the thread only.
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

// Opens a client's link to the store at `host`. Retries until the deadline
// while nothing listens there, or the listener is just closing.
// kUnauthenticated at once if the keys differ.
Result<Link> OpenStoreLink(const std::string& host, uint16_t port,
                           const JobKey& key, int rank, Deadline deadline,
                           Tls* tls = nullptr);

// One caller at a time.
class TcpStoreClient final : public Store {
 public:
  // `link`: to a store that has accepted this client.
  explicit TcpStoreClient(Link link);
  // Uses OpenStoreLink.
  static Result<std::unique_ptr<TcpStoreClient>> Connect(
      const std::string& host, uint16_t port, const JobKey& key, int rank,
      Deadline deadline, Tls* tls = nullptr);

  Status Set(const std::string& key, const std::string& value,
             Deadline deadline) override;
  Result<StoreEntries> List(const std::string& prefix, size_t at_least,
                            Deadline deadline) override;
  // List in two steps; other calls may come between them. The socket becomes
  // readable once EndList could return, and not before.
  uint64_t BeginList(const std::string& prefix, size_t at_least);
  // May be called again after kDeadlineExceeded.
  Result<StoreEntries> EndList(uint64_t id, Deadline deadline);

  // Returns whether the server answers at all: its process may have been
  // stopped.
  bool Answers();

  const Socket& socket() const { return connection_.socket(); }

 private:
  // Returns the reply to request `id`. Replies to lists that were begun are
  // kept for EndList; other replies are dropped, as their callers have given
  // up.
  Result<std::string> Await(uint64_t id, Deadline deadline);

  FramedConnection connection_;
  uint64_t next_id_ = 1;
  // Lists that have begun and not ended, by id, with their replies.
  std::map<uint64_t, std::optional<std::string>> begun_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_STORE_TCP_STORE_H_
