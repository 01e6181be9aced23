#include "csrc/runtime/peer_contacts.h"

#include <algorithm>

#include "csrc/control/message.h"

namespace keras_ring {

void PeerContacts::Start(const ControlTree& tree) {
  const TimePoint now = clock_.Now();
  for (int peer : tree.Peers()) peers_[peer] = {now, now};
  for (int peer : tree.deputies) peers_.at(peer).is_deputy = true;
}

void PeerContacts::Send(int peer, const std::string& message) {
  channel_.Send(peer, message);
  peers_.at(peer).spoken = clock_.Now();
}

// Lost time does not count. If much was lost, this process was stopped, and
// most likely the whole job: the others resume somewhat later, perhaps one
// after the other, so they get all of the timeout again. If little was lost,
// the processor was busy, and a dead peer must be found all the same.
bool PeerContacts::Pardon(Duration lost) {
  const TimePoint now = clock_.Now();
  const bool stopped = lost >= timeout_ / 3;
  for (auto& [peer, contact] : peers_) {
    contact.silent_since =
        stopped ? now : std::min(now, SilentSince(peer, contact) + lost);
  }
  return stopped;
}

TimePoint PeerContacts::SilentSince(int peer, const Contact& contact) const {
  return std::max(contact.silent_since, channel_.LastHeard(peer));
}

std::optional<int> PeerContacts::FindSilent(TimePoint now,
                                            const HasLeft& has_left) const {
  for (const auto& [peer, contact] : peers_) {
    if (!has_left(peer) && now - SilentSince(peer, contact) >= timeout_) {
      return peer;
    }
  }
  return std::nullopt;
}

void PeerContacts::Ping(TimePoint now, const HasLeft& has_left) {
  static const std::string ping = EncodeMessage(PingMessage{});
  for (auto& [peer, contact] : peers_) {
    if (has_left(peer)) continue;
    if (now - contact.spoken < LongestSleep(timeout_)) continue;
    channel_.Send(peer, ping);
    contact.spoken = now;
  }
}

std::optional<TimePoint> PeerContacts::NextLook(const HasLeft& has_left) const {
  std::optional<TimePoint> next;
  for (const auto& [peer, contact] : peers_) {
    if (has_left(peer)) continue;
    const TimePoint at = std::min(SilentSince(peer, contact) + timeout_,
                                  contact.spoken + LongestSleep(timeout_));
    next = next ? std::min(*next, at) : at;
  }
  return next;
}

}  // namespace keras_ring
