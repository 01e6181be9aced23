// Acceptor: a listening socket and the thread that lets the job's own ranks in
// and keeps unauthenticated peers out.
#ifndef KERAS_RING_COMM_NET_ACCEPTOR_H_
#define KERAS_RING_COMM_NET_ACCEPTOR_H_

#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <thread>

#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/rejection_log.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

struct AcceptorOptions {
  // A connection that has not finished its handshake by then is dropped.
  Duration handshake_limit = std::chrono::seconds(10);
  // The limit of handshakes at once; more wait in the listener's backlog.
  size_t max_pending = 256;
  // When that many are pending and another waits, the oldest is dropped that
  // is older than this: an honest handshake takes milliseconds.
  Duration eviction_age = std::chrono::milliseconds(500);
  // Or than this, if it has not even said its first message: an honest client
  // has sent it before its turn comes.
  Duration silence_age = std::chrono::milliseconds(100);
  // Encrypts the links. Null: TLS is off. Must outlive the acceptor.
  Tls* tls = nullptr;
};

class Acceptor {
 public:
  // Both are called on the acceptor's thread and must not block. `admit`
  // judges a hello that is authentic; `connected` gets the link of one that
  // was accepted, once the verdict is on its way and TLS, if any, is ready.
  using Admit = std::function<Verdict(const Hello& hello)>;
  using Connected = std::function<void(const Hello& hello, Link link)>;

  // `counters` must outlive the acceptor.
  Acceptor(Socket listener, const JobKey& key, Admit admit, Connected connected,
           Counters& counters, AcceptorOptions options = {});
  ~Acceptor();  // stops

  Status Start();
  // Closes the listener and every unfinished connection. After it returns no
  // callback runs. Idempotent.
  void Stop();
  // Summarizes the refused connections; "" if there are none. Any thread.
  std::string refusals() const { return rejections_.Summary(); }

 private:
  struct Pending {
    ServerHandshake handshake;
    std::string peer;  // asked for at once: a closed socket has none
    TimePoint since;
  };

  void Run();
  void AcceptWaiting();
  TimePoint EvictedAt(const Pending& pending) const;
  void MakeRoom();
  void Drive(std::list<Pending>::iterator it);
  void Expire();
  void Reject(const Pending& pending, const Status& why);
  int TimeoutMs(bool accepting) const;

  const JobKey key_;
  const Admit admit_;
  const Connected connected_;
  const AcceptorOptions options_;
  RejectionLog rejections_;
  Socket listener_;
  Socket wake_;
  std::list<Pending> pending_;  // oldest first; the thread's own
  // Accepts nothing until then, after the system ran out of descriptors or
  // while max_pending handshakes are pending.
  TimePoint accept_again_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_ACCEPTOR_H_
