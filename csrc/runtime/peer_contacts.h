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

// Of the peers of a control tree. Not thread-safe.
class PeerContacts {
 public:
  // How long a rank sleeps at most before it looks again whether its peers
  // live, and tells them that it does.
  static Duration LongestSleep(Duration timeout) { return timeout / 3; }

  // A peer is silent when nothing was heard from it for `timeout`. `clock` is
  // that of the channel; both must outlive it.
  PeerContacts(Duration timeout, MessageChannel& channel, const Clock& clock)
      : timeout_(timeout), channel_(channel), clock_(clock) {}

  // From now on.
  void Start(const ControlTree& tree);
  bool empty() const { return peers_.empty(); }
  // See ControlTree.
  bool IsDeputy(int peer) const { return peers_.at(peer).is_deputy; }
  void Send(int peer, const std::string& message);

  // This process has not run for so long. Others are not to blame for that.
  // Returns whether it was stopped, rather than busy.
  bool Pardon(Duration lost);

  // Those of which `has_left` says so are no peers any more.
  using HasLeft = std::function<bool(int peer)>;
  // A peer that is silent at `now`, if there is one.
  std::optional<int> FindSilent(TimePoint now, const HasLeft& has_left) const;
  // Sends a sign of life to those that have long heard nothing.
  void Ping(TimePoint now, const HasLeft& has_left);
  // When one of both may be next; nothing without peers.
  std::optional<TimePoint> NextLook(const HasLeft& has_left) const;

 private:
  struct Contact {
    TimePoint spoken;        // when this rank last sent it something
    TimePoint silent_since;  // at the earliest; see SilentSince
    bool is_deputy = false;
  };

  // Since when `peer` can be blamed for its silence.
  TimePoint SilentSince(int peer, const Contact& contact) const;

  const Duration timeout_;
  MessageChannel& channel_;
  const Clock& clock_;
  std::map<int, Contact> peers_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PEER_CONTACTS_H_
