#include "csrc/comm/transport/mpi_transport.h"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/base/mutex.h"
#include "csrc/comm/transport/silence.h"
#include "csrc/comm/transport/stream_cursors.h"

namespace keras_ring {
namespace {

// A nap is as long as an eighth of the time waited: so it adds little to that.
constexpr Duration kShortestNap = std::chrono::microseconds(20);
constexpr Duration kLongestNap = std::chrono::milliseconds(2);
constexpr int kNapsPerWait = 8;

Duration NapAfter(Duration waited) {
  return std::clamp(waited / kNapsPerWait, kShortestNap, kLongestNap);
}

timespec AsTimespec(Duration time) {
  const auto ns = std::chrono::nanoseconds(time).count();
  timespec spec = {};
  spec.tv_sec = ns / 1'000'000'000;
  spec.tv_nsec = ns % 1'000'000'000;
  return spec;
}

// Keeps buffers that MPI may still use until the end of the process.
template <typename Port, typename Mailboxes>
void KeepForEver(Port port, Mailboxes mailboxes) {
  static Mutex* const mutex = new Mutex;
  static auto* const kept = new std::vector<std::pair<Port, Mailboxes>>;
  MutexLock lock(*mutex);
  kept->emplace_back(std::move(port), std::move(mailboxes));
}

}  // namespace

// The streams of a running plan.
class MpiTransport::Streams {
 public:
  Streams(SendReceivePlan& plan, MpiTransport& transport) {
    sends_.reserve(plan.outgoing.size());
    receives_.reserve(plan.incoming.size());
    for (Outgoing& outgoing : plan.outgoing) {
      sends_.push_back({SendCursor(plan.tag, outgoing),
                        &transport.MailboxOf(outgoing.peer).out});
    }
    for (Incoming& incoming : plan.incoming) {
      receives_.push_back(
          {ReceiveCursor(plan.tag, incoming, transport.deps().ranks),
           &transport.MailboxOf(incoming.peer).in});
    }
  }

  Status Open(MpiPort& port) {
    for (Receiving& one : receives_) KR_RETURN_IF_ERROR(one.box->Open(port));
    return OkStatus();
  }
  bool done() const {
    return std::all_of(sends_.begin(), sends_.end(), IsSent) &&
           std::all_of(receives_.begin(), receives_.end(),
                       [](const Receiving& one) { return one.from.done(); });
  }
  // These move a message of each stream that may move. Whether one did.
  Result<bool> Send(MpiPort& port, Counters::Count& bytes) {
    bool any = false;
    for (Sending& one : sends_) {
      if (!one.to.ready()) continue;
      KR_ASSIGN_OR_RETURN(const Moved moved, one.box->Send(port, one.to));
      bytes.fetch_add(moved.bytes, std::memory_order_relaxed);
      any = any || !moved.blocked;
    }
    return any;
  }
  Result<bool> Take(MpiPort& port, Counters::Count& bytes) {
    bool any = false;
    for (Receiving& one : receives_) {
      if (!one.from.ready()) continue;
      KR_ASSIGN_OR_RETURN(const Moved moved, one.box->Take(port, one.from));
      bytes.fetch_add(moved.bytes, std::memory_order_relaxed);
      any = any || !moved.blocked;
    }
    return any;
  }

  // Returns whether a stream waits for its peer.
  bool waits() const {
    return std::any_of(sends_.begin(), sends_.end(),
                       [](const Sending& one) { return !one.box->idle(); }) ||
           std::any_of(receives_.begin(), receives_.end(),
                       [](const Receiving& one) { return one.from.ready(); });
  }
  // The peers of these streams.
  std::vector<int> senders() const {
    std::vector<int> peers;
    for (const Receiving& one : receives_) {
      if (one.from.ready()) peers.push_back(one.from.peer());
    }
    return peers;
  }
  std::vector<int> receivers() const {
    std::vector<int> peers;
    for (const Sending& one : sends_) {
      if (!one.box->idle()) peers.push_back(one.to.peer());
    }
    return peers;
  }

 private:
  struct Sending {
    SendCursor to;
    MpiOutbox* box;
  };
  struct Receiving {
    ReceiveCursor from;
    MpiInbox* box;
  };

  static bool IsSent(const Sending& one) {
    return one.to.done() && one.box->idle();
  }

  std::vector<Sending> sends_;
  std::vector<Receiving> receives_;
};

MpiTransport::MpiTransport(TransportDeps deps, Socket wake,
                           std::unique_ptr<MpiPort> port)
    : BreakableTransport(std::move(deps), std::move(wake)),
      port_(std::move(port)),
      mailboxes_(size()) {}

Result<std::unique_ptr<MpiTransport>> MpiTransport::Create(
    TransportDeps deps, std::unique_ptr<MpiPort> port) {
  KR_ASSIGN_OR_RETURN(Socket wake, NewEventFd());
  return std::unique_ptr<MpiTransport>(
      new MpiTransport(std::move(deps), std::move(wake), std::move(port)));
}

MpiTransport::~MpiTransport() {
  if (port_->Close()) return;
  KeepForEver(std::move(port_), std::move(mailboxes_));
}

Status MpiTransport::CheckPeers(const SendReceivePlan& plan) const {
  const auto check = [this](int peer) {
    if (peer >= 0 && peer < size() && peer != rank()) return OkStatus();
    return FailedPreconditionError(
        "rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
        " has no peer of number " + std::to_string(peer));
  };
  for (const Outgoing& outgoing : plan.outgoing) {
    KR_RETURN_IF_ERROR(check(outgoing.peer));
  }
  for (const Incoming& incoming : plan.incoming) {
    KR_RETURN_IF_ERROR(check(incoming.peer));
  }
  return OkStatus();
}

MpiTransport::Mailbox& MpiTransport::MailboxOf(int peer) {
  std::unique_ptr<Mailbox>& mailbox = mailboxes_[peer];
  if (mailbox == nullptr) {
    const int first_id = peer * kMpiIdsPerPeer;
    mailbox = std::make_unique<Mailbox>(Mailbox{
        MpiOutbox(peer, first_id), MpiInbox(peer, first_id + kMpiMessages)});
  }
  return *mailbox;
}

Result<bool> MpiTransport::Look() {
  bool any = false;
  while (const std::optional<MpiDone> done = port_->Test()) {
    any = true;
    const int peer = done->id / kMpiIdsPerPeer;
    const bool is_sent = done->id % kMpiIdsPerPeer < kMpiMessages;
    if (!done->status.ok()) {
      return done->status.WithContext(
          (is_sent ? "sending to " : "receiving from ") + RankText(peer));
    }
    Mailbox& mailbox = *mailboxes_[peer];
    if (is_sent) {
      mailbox.out.Done(done->id);
    } else {
      mailbox.in.Done(done->id, done->bytes);
    }
  }
  return any;
}

Result<bool> MpiTransport::Move(Streams& streams) {
  KR_ASSIGN_OR_RETURN(const bool sent,
                      streams.Send(*port_, deps().counters.data_bytes_sent));
  // Tests now, so that sent messages leave even if a received one is an error.
  KR_ASSIGN_OR_RETURN(const bool any_done, Look());
  KR_ASSIGN_OR_RETURN(
      const bool taken,
      streams.Take(*port_, deps().counters.data_bytes_received));
  return sent || any_done || taken;
}

Status MpiTransport::Run(SendReceivePlan& plan) {
  if (is_broken()) return cause();
  KR_RETURN_IF_ERROR(CheckPeers(plan));
  if (plan.advance) plan.advance(plan);
  Streams streams(plan, *this);
  const Status opened = streams.Open(*port_);
  if (!opened.ok()) return Break(opened);
  RunningClock clock(SystemTime(), RunningClock::kWaitGap);
  TimePoint moved = clock.Skip();
  Duration next_report = deps().report_time;
  while (!streams.done() || plan.busy) {
    if (is_broken()) return cause();
    const Result<bool> any = Move(streams);
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
  }
  return OkStatus();
}

// Abort and `events` end it at once.
void MpiTransport::Nap(PlanEvents* events, Duration time) {
  if (events != nullptr && !events->Arm()) return;
  pollfd entries[] = {
      {wake_fd(), POLLIN, 0},
      {events != nullptr ? events->descriptor() : -1, POLLIN, 0}};
  const timespec timeout = AsTimespec(std::max(time, Duration::zero()));
  (void)ppoll(entries, 2, &timeout, nullptr);
  if (events != nullptr) events->Disarm();
}

Status MpiTransport::Await(const Streams& streams, const SendReceivePlan& plan,
                           RunningClock& clock, TimePoint moved,
                           Duration* next_report) {
  PlanEvents* const events = plan.events;
  if (events != nullptr) KR_RETURN_IF_ERROR(events->Check());
  if (events == nullptr && !streams.waits()) {
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
    Status failure;
    const bool ready = spinner().Until([&] {
      if (is_broken() || (events != nullptr && events->Happened())) return true;
      const Result<bool> any = Look();
      if (!any.ok()) failure = any.status();
      return !any.ok() || *any;
    });
    KR_RETURN_IF_ERROR(failure);
    if (ready) return OkStatus();
    Nap(events, std::min(NapAfter(waited), limit - waited));
  }
  (void)clock.Look();
  const Duration idle = clock.Now() - moved;
  if (idle >= limit) {
    return DeadlineExceededError(SilenceText(
        streams.senders(), streams.receivers(), events, limit, deps().ranks));
  }
  if (idle < *next_report) return OkStatus();
  KR_LOG(kWarning) << SilenceText(streams.senders(), streams.receivers(),
                                  events, idle, deps().ranks)
                   << "; a rank is slow, or waits for another one that is";
  *next_report *= 2;
  return OkStatus();
}

}  // namespace keras_ring
