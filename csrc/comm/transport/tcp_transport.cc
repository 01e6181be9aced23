#include "csrc/comm/transport/tcp_transport.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/comm/transport/duplex_stream.h"

namespace keras_ring {
namespace {

// Who waits looks at the limit, which may change, and at its links at least
// this often.
constexpr Duration kNap = std::chrono::milliseconds(500);

// The poll entries of one SendReceivePlan: the wake-up, and one or two sockets.
class Wait {
 public:
  explicit Wait(int wake_fd) : entries_{{wake_fd, POLLIN, 0}} {}

  void Add(const Link& link, short events) {
    const int fd = link.socket().fd();
    for (int i = 1; i < size_; ++i) {
      if (entries_[i].fd == fd) {
        entries_[i].events |= events;
        return;
      }
    }
    entries_[size_++] = {fd, events, 0};
  }

  bool IsOver() { return poll(entries_, size_, 0) > 0; }

  // False when `deadline` passed with nothing ready.
  Result<bool> Until(Deadline deadline) {
    int ready = poll(entries_, size_, deadline.PollTimeoutMs());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) {
      return InternalError("poll: " + ErrnoText(errno));
    }
    return !deadline.expired();
  }

 private:
  pollfd entries_[3];
  int size_ = 1;
};

}  // namespace

TcpTransport::TcpTransport(int rank, int size, Links peers,
                           std::shared_ptr<const IdleLimit> idle_limit,
                           Duration link_limit, Counters& counters,
                           const RankSet& ranks, TraceSink* trace,
                           Duration spin)
    : rank_(rank),
      size_(size),
      peers_(std::move(peers)),
      idle_limit_(std::move(idle_limit)),
      link_limit_(link_limit),
      counters_(counters),
      meter_(counters, trace),
      ranks_(ranks),
      spinner_(spin) {}

Result<std::unique_ptr<TcpTransport>> TcpTransport::Create(
    int rank, int size, Links peers,
    std::shared_ptr<const IdleLimit> idle_limit, Duration link_limit,
    Counters& counters, const RankSet& ranks, TraceSink* trace, Duration spin) {
  for (const auto& [peer, link] : peers) {
    KR_CHECK(peer >= 0 && peer < size && peer != rank && link.valid());
    ProbeWhenIdle(link.socket(), link_limit);
  }
  std::unique_ptr<TcpTransport> transport(
      new TcpTransport(rank, size, std::move(peers), std::move(idle_limit),
                       link_limit, counters, ranks, trace, spin));
  KR_ASSIGN_OR_RETURN(transport->wake_, NewEventFd());
  return transport;
}

void TcpTransport::Abort(const Status& cause) {
  (void)Break(cause);
  Signal(wake_);
}

Status TcpTransport::Break(const Status& cause) {
  MutexLock lock(mutex_);
  if (broken_.ok()) broken_ = cause;
  is_broken_ = true;
  return broken_;
}

Status TcpTransport::FirstCause() {
  MutexLock lock(mutex_);
  return broken_;
}

std::string TcpTransport::RankText(int rank) const {
  return "rank " + std::to_string(ranks_.Global(rank));
}

std::string TcpTransport::Silence(const SendReceivePlan& duplex, bool sending,
                                  bool receiving, Duration idle) const {
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(idle);
  std::string text =
      "no byte moved for " + std::to_string(milliseconds.count()) + " ms while";
  if (receiving) text += " receiving from " + RankText(duplex.from);
  if (sending && receiving) text += " and";
  if (sending) text += " sending to " + RankText(duplex.to);
  return text;
}

Status TcpTransport::CheckLinks() const {
  for (const auto& [peer, link] : peers_) {
    const Duration silence = Unacknowledged(link.socket());
    if (silence < link_limit_) continue;
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(silence);
    return DeadlineExceededError(
        "the data connection of " + RankText(rank_) + " with " +
        RankText(peer) +
        " is stuck: nothing that was sent was acknowledged "
        "for " +
        std::to_string(seconds.count()) +
        " s; what is between their hosts drops it");
  }
  return OkStatus();
}

Status TcpTransport::CheckPeer(int peer) const {
  if (peer < 0 || peers_.count(peer) > 0) return OkStatus();
  return FailedPreconditionError(
      RankText(rank_) + " has no data connection with " + RankText(peer));
}

Status TcpTransport::Run(SendReceivePlan& duplex) {
  if (is_broken_) return FirstCause();
  KR_RETURN_IF_ERROR(CheckPeer(duplex.to));
  KR_RETURN_IF_ERROR(CheckPeer(duplex.from));
  const Link* const to = duplex.to < 0 ? nullptr : &peers_.at(duplex.to);
  const Link* const from = duplex.from < 0 ? nullptr : &peers_.at(duplex.from);
  SendStream send(duplex, to, ranks_);
  ReceiveStream receive(duplex, from, ranks_);

  TimePoint moved = std::chrono::steady_clock::now();
  Duration next_report = link_limit_;
  while (!send.done() || !receive.done()) {
    if (is_broken_) return FirstCause();
    Result<size_t> sent = send.Advance();
    if (!sent.ok()) return Break(sent.status());
    Result<size_t> got = receive.Advance();
    if (!got.ok()) return Break(got.status());
    counters_.data_bytes_sent.fetch_add(*sent, std::memory_order_relaxed);
    counters_.data_bytes_received.fetch_add(*got, std::memory_order_relaxed);
    if (*sent > 0 || *got > 0) {
      moved = std::chrono::steady_clock::now();
      next_report = link_limit_;
      continue;
    }
    if (send.done() && receive.done()) break;

    Wait wait(wake_.fd());
    if (!receive.done()) wait.Add(*from, POLLIN);
    if (send.ready()) wait.Add(*to, POLLOUT);
    const Duration limit = idle_limit_->get();
    const Duration waited = std::chrono::steady_clock::now() - moved;
    Result<bool> ready = [&] {
      const TimedPhase time(meter_, TracePhase::kWait, duplex.tag);
      if (spinner_.Until([&wait] { return wait.IsOver(); })) {
        return Result<bool>(true);
      }
      return wait.Until(Deadline::After(std::min(kNap, limit - waited)));
    }();
    if (!ready.ok()) return Break(ready.status());
    if (*ready) continue;
    const Duration idle = std::chrono::steady_clock::now() - moved;
    if (idle >= limit) {
      return Break(DeadlineExceededError(
          Silence(duplex, send.ready(), !receive.done(), limit)));
    }
    if (idle < link_limit_) continue;
    const Status links = CheckLinks();
    if (!links.ok()) return Break(links);
    if (idle < next_report) continue;
    KR_LOG(kWarning) << Silence(duplex, send.ready(), !receive.done(), idle)
                     << "; the connections are alive, so a rank is slow, or "
                        "waits for another one that is";
    next_report *= 2;
  }
  return OkStatus();
}

}  // namespace keras_ring
