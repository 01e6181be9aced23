#include "csrc/comm/transport/tcp_transport.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/logging.h"
#include "csrc/comm/transport/plan_streams.h"
#include "csrc/comm/transport/silence.h"

namespace keras_ring {
namespace {

// A waiting thread checks the limit, which may change, and its links at least
// this often.
constexpr Duration kNap = std::chrono::milliseconds(500);

// With so much still to come, a thread sleeps without spinning first.
constexpr size_t kMuchBytes = size_t{2} << 20;

}  // namespace

// The streams of a running plan.
class TcpTransport::Streams {
 public:
  Streams(SendReceivePlan& plan, const std::map<int, Peer>& peers,
          const RankSet& ranks) {
    sends_.reserve(plan.outgoing.size());
    receives_.reserve(plan.incoming.size());
    for (Outgoing& outgoing : plan.outgoing) {
      const Peer& peer = peers.at(outgoing.peer);
      sends_.push_back({SendStream(plan.tag, outgoing, peer.link,
                                   peer.send_quantum, ranks)});
    }
    for (Incoming& incoming : plan.incoming) {
      const Link& link = peers.at(incoming.peer).link;
      receives_.push_back({ReceiveStream(plan.tag, incoming, link, ranks)});
    }
  }

  bool done() const { return AllDone(sends_) && AllDone(receives_); }

  // Advances each stream that may move. Whether one did.
  Result<bool> Move(Counters& counters) {
    KR_ASSIGN_OR_RETURN(const bool sent,
                        Advance(sends_, counters.data_bytes_sent));
    KR_ASSIGN_OR_RETURN(const bool received,
                        Advance(receives_, counters.data_bytes_received));
    return sent || received;
  }

  // Returns whether a stream waits for its link, which must then be polled.
  bool any_blocked() const {
    return std::any_of(sends_.begin(), sends_.end(), IsBlocked<SendStream>) ||
           std::any_of(receives_.begin(), receives_.end(),
                       IsBlocked<ReceiveStream>);
  }
  // Returns whether a stream may move, as far as is known.
  bool any_open() const {
    return std::any_of(sends_.begin(), sends_.end(), IsOpen<SendStream>) ||
           std::any_of(receives_.begin(), receives_.end(),
                       IsOpen<ReceiveStream>);
  }

  // Returns whether much is still to be received.
  bool awaits_much() const {
    uint64_t left = 0;
    for (const auto& flow : receives_) left += flow.stream.left();
    return left >= kMuchBytes;
  }

  // Polls the links that streams wait for, and `others`; unblocks those that
  // are ready. False when `deadline` has passed with nothing ready.
  Result<bool> Poll(std::initializer_list<int> others, Deadline deadline) {
    entries_.clear();
    for (int fd : others) entries_.push_back({fd, POLLIN, 0});
    for (const auto& flow : receives_) {
      if (IsBlocked(flow)) AddEntry(flow, POLLIN);
    }
    // While a stream waits for other peers, a poll error is the only sign of a
    // lost receiver.
    for (const auto& flow : sends_) {
      AddEntry(flow, IsBlocked(flow) ? POLLOUT : 0);
    }
    return Look(deadline);
  }
  // Polls once more.
  Result<bool> Look(Deadline deadline) {
    const int ready =
        poll(entries_.data(), entries_.size(), deadline.PollTimeoutMs());
    if (ready < 0 && errno != EINTR) {
      return InternalError("poll: " + ErrnoText(errno));
    }
    if (ready <= 0) return !deadline.expired();
    for (const pollfd& entry : entries_) {
      if (entry.revents == 0) continue;
      Unblock(receives_, entry.fd);
      Unblock(sends_, entry.fd);
      if (entry.events == 0) KR_RETURN_IF_ERROR(Failure(entry.fd));
    }
    return true;
  }

  // The peers of the streams that could move.
  std::vector<int> senders() const { return ReadyPeers(receives_); }
  std::vector<int> receivers() const { return ReadyPeers(sends_); }

 private:
  template <typename Stream>
  struct Flow {
    Stream stream;
    bool blocked = false;
  };
  template <typename Stream>
  using Flows = std::vector<Flow<Stream>>;

  template <typename Stream>
  static bool IsBlocked(const Flow<Stream>& flow) {
    return flow.blocked && flow.stream.ready();
  }
  template <typename Stream>
  static bool IsOpen(const Flow<Stream>& flow) {
    return !flow.blocked && flow.stream.ready();
  }
  template <typename Stream>
  static bool AllDone(const Flows<Stream>& flows) {
    return std::all_of(flows.begin(), flows.end(),
                       [](const auto& flow) { return flow.stream.done(); });
  }
  template <typename Stream>
  static Result<bool> Advance(Flows<Stream>& flows, Counters::Count& bytes) {
    bool any = false;
    for (Flow<Stream>& flow : flows) {
      if (!IsOpen(flow)) continue;
      KR_ASSIGN_OR_RETURN(const Moved moved, flow.stream.Advance());
      bytes.fetch_add(moved.bytes, std::memory_order_relaxed);
      flow.blocked = moved.blocked;
      any = any || moved.bytes > 0 || !moved.blocked;
    }
    return any;
  }
  template <typename Stream>
  void AddEntry(const Flow<Stream>& flow, short events) {
    const int fd = flow.stream.link().socket().fd();
    for (pollfd& entry : entries_) {
      if (entry.fd == fd) {
        entry.events |= events;
        return;
      }
    }
    entries_.push_back({fd, events, 0});
  }
  template <typename Stream>
  static void Unblock(Flows<Stream>& flows, int fd) {
    for (Flow<Stream>& flow : flows) {
      if (flow.stream.link().socket().fd() == fd) flow.blocked = false;
    }
  }
  // Returns the error of a link on which nothing is to be sent now.
  Status Failure(int fd) const {
    for (const Flow<SendStream>& flow : sends_) {
      if (flow.stream.link().socket().fd() == fd) return flow.stream.Failure();
    }
    return OkStatus();
  }
  template <typename Stream>
  static std::vector<int> ReadyPeers(const Flows<Stream>& flows) {
    std::vector<int> peers;
    for (const Flow<Stream>& flow : flows) {
      if (flow.stream.ready()) peers.push_back(flow.stream.peer());
    }
    return peers;
  }

  Flows<SendStream> sends_;
  Flows<ReceiveStream> receives_;
  std::vector<pollfd> entries_;
};

TcpTransport::TcpTransport(TransportDeps deps, Socket wake,
                           std::map<int, Peer> peers)
    : BreakableTransport(std::move(deps), std::move(wake)),
      peers_(std::move(peers)) {}

Result<std::unique_ptr<TcpTransport>> TcpTransport::Create(TransportDeps deps,
                                                           Links links) {
  std::map<int, Peer> peers;
  for (auto& [peer, link] : links) {
    KR_CHECK(peer >= 0 && peer < deps.size && peer != deps.rank &&
             link.valid());
    ProbeWhenIdle(link.socket(), deps.report_time);
    const size_t quantum = SendQuantum(link.socket());
    peers[peer] = Peer{std::move(link), quantum};
  }
  KR_ASSIGN_OR_RETURN(Socket wake, NewEventFd());
  return std::unique_ptr<TcpTransport>(
      new TcpTransport(std::move(deps), std::move(wake), std::move(peers)));
}

std::string TcpTransport::Silence(const Streams& streams,
                                  const PlanEvents* events,
                                  Duration idle) const {
  return SilenceText(streams.senders(), streams.receivers(), events, idle,
                     deps().ranks);
}

Status TcpTransport::CheckLinks() const {
  for (const auto& [other, peer] : peers_) {
    const Duration silence = Unacknowledged(peer.link.socket());
    if (silence < deps().report_time) continue;
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(silence);
    return DeadlineExceededError(
        "the data connection of " + RankText(rank()) + " with " +
        RankText(other) +
        " is stuck: nothing that was sent was acknowledged "
        "for " +
        std::to_string(seconds.count()) +
        " s; what is between their hosts drops it");
  }
  return OkStatus();
}

Status TcpTransport::CheckPeers(const SendReceivePlan& plan) const {
  const auto check = [this](int peer) {
    if (peers_.count(peer) > 0) return OkStatus();
    return FailedPreconditionError(
        RankText(rank()) + " has no data connection with " + RankText(peer));
  };
  for (const Outgoing& outgoing : plan.outgoing) {
    KR_RETURN_IF_ERROR(check(outgoing.peer));
  }
  for (const Incoming& incoming : plan.incoming) {
    KR_RETURN_IF_ERROR(check(incoming.peer));
  }
  return OkStatus();
}

Status TcpTransport::Run(SendReceivePlan& plan) {
  if (is_broken()) return cause();
  KR_RETURN_IF_ERROR(CheckPeers(plan));
  if (plan.advance) plan.advance(plan);
  Streams streams(plan, peers_, deps().ranks);
  RunningClock clock(SystemTime(), RunningClock::kWaitGap);
  TimePoint moved = clock.Skip();
  Duration next_report = deps().report_time;
  while (!streams.done() || plan.busy) {
    if (is_broken()) return cause();
    const Result<bool> any = streams.Move(deps().counters);
    if (!any.ok()) return Break(any.status());
    const bool happened = plan.events != nullptr && plan.events->Happened();
    if (!*any && !happened) {
      const Status status = Await(streams, plan, clock, moved, &next_report);
      if (!status.ok()) return Break(status);
      continue;
    }
    if (plan.advance) plan.advance(plan);
    moved = clock.Skip();
    next_report = deps().report_time;
    // Waiting streams must not be starved while others move.
    if (!streams.any_blocked() || !streams.any_open()) continue;
    const Result<bool> ready = streams.Poll({wake_fd()}, Deadline(moved));
    if (!ready.ok()) return Break(ready.status());
  }
  return OkStatus();
}

Result<bool> TcpTransport::Spin(Streams& streams, PlanEvents* events) {
  const Deadline now(std::chrono::steady_clock::now());
  KR_ASSIGN_OR_RETURN(bool ready, streams.Poll({wake_fd()}, now));
  Status failure;
  ready = ready || spinner().Until([&] {
    if (events != nullptr && events->Happened()) return true;
    const Result<bool> look = streams.Look(now);
    if (!look.ok()) failure = look.status();
    return !look.ok() || *look;
  });
  KR_RETURN_IF_ERROR(failure);
  return ready;
}

// The descriptor of `events` is polled only between Arm and Disarm: before, it
// may still be readable because of earlier events.
Result<bool> TcpTransport::Sleep(Streams& streams, PlanEvents* events,
                                 Deadline deadline) {
  if (events == nullptr) return streams.Poll({wake_fd()}, deadline);
  if (!events->Arm()) return true;
  const Result<bool> ready =
      streams.Poll({wake_fd(), events->descriptor()}, deadline);
  events->Disarm();
  return ready;
}

Status TcpTransport::Await(Streams& streams, const SendReceivePlan& plan,
                           RunningClock& clock, TimePoint moved,
                           Duration* next_report) {
  PlanEvents* const events = plan.events;
  if (events != nullptr) KR_RETURN_IF_ERROR(events->Check());
  if (!streams.any_blocked() && events == nullptr) {
    return InternalError("the plan of collective " + std::to_string(plan.tag) +
                         " waits for nothing");
  }
  const Duration limit = deps().idle_limit->get();
  const Duration waited = clock.Now() - moved;
  {
    const int source = plan.OnlySource();
    const TimedPhase time(
        meter(), TracePhase::kWait, plan.tag,
        source < 0 ? TraceSpan::kNobody : deps().ranks.Global(source));
    bool ready = false;
    if (!streams.awaits_much()) {
      KR_ASSIGN_OR_RETURN(ready, Spin(streams, events));
    }
    if (!ready) {
      KR_ASSIGN_OR_RETURN(
          ready, Sleep(streams, events,
                       Deadline::After(std::min(kNap, limit - waited))));
    }
    if (ready) return OkStatus();
  }
  (void)clock.Look();
  const Duration idle = clock.Now() - moved;
  if (idle >= limit) {
    return DeadlineExceededError(Silence(streams, events, limit));
  }
  if (idle < deps().report_time) return OkStatus();
  KR_RETURN_IF_ERROR(CheckLinks());
  if (idle < *next_report) return OkStatus();
  KR_LOG(kWarning) << Silence(streams, events, idle)
                   << "; the connections are alive, so a rank is slow, or "
                      "waits for another one that is";
  *next_report *= 2;
  return OkStatus();
}

}  // namespace keras_ring
