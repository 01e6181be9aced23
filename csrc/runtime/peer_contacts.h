// PeerContacts: when this rank last spoke with each of its peers, and since
// when each can be blamed for its silence.
#ifndef KERAS_RING_RUNTIME_PEER_CONTACTS_H_
#define KERAS_RING_RUNTIME_PEER_CONTACTS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/control/control_tree.h"

namespace keras_ring {

// The contacts with the peers of a control tree. Not thread-safe.
class PeerContacts {
 public:
  // The longest time that a rank sleeps before it checks again whether its
  // peers are alive, and signals them that it is.
  static Duration LongestSleep(Duration timeout) { return timeout / 3; }

  // A peer is silent when nothing was heard from it for `timeout`. `clock` is
  // the clock of the channel; both must outlive the object.
  PeerContacts(Duration timeout, MessageChannel& channel, const Clock& clock)
      : timeout_(timeout), channel_(channel), clock_(clock) {}

  // Starts to watch the peers of `tree`.
  void Start(const ControlTree& tree);
  bool empty() const { return peers_.empty(); }
  // See ControlTree.
  bool IsDeputy(int peer) const { return peers_.at(peer).is_deputy; }
  void Send(int peer, const std::string& message);

  // This process has not run for the time `lost`, for which the peers are not
  // to blame. Returns whether it was stopped, rather than busy.
  bool Pardon(Duration lost);

  // Peers for which `has_left` returns true are ignored.
  using HasLeft = std::function<bool(int peer)>;
  // Returns a peer that is silent at `now`, if there is one.
  std::optional<int> FindSilent(TimePoint now, const HasLeft& has_left) const;
  // Sends a sign of life to peers to which nothing was sent for long.
  void Ping(TimePoint now, const HasLeft& has_left);
  // Returns when FindSilent or Ping is next needed; no value without peers.
  std::optional<TimePoint> NextLook(const HasLeft& has_left) const;

 private:
  struct Contact {
    TimePoint spoken;        // when this rank last sent it something
    TimePoint silent_since;  // the earliest time; see SilentSince
    bool is_deputy = false;
  };

  // Returns since when `peer` can be blamed for its silence.
  TimePoint SilentSince(int peer, const Contact& contact) const;

  const Duration timeout_;
  MessageChannel& channel_;
  const Clock& clock_;
  std::map<int, Contact> peers_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PEER_CONTACTS_H_
