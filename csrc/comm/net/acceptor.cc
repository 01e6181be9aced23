#include "csrc/comm/net/acceptor.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {
namespace {

constexpr Duration kOutOfDescriptorsPause = std::chrono::milliseconds(100);
// After this number, the connections already accepted get a turn, even if more
// wait.
constexpr int kAcceptsInARow = 64;

TimePoint Now() { return std::chrono::steady_clock::now(); }

}  // namespace

Acceptor::Acceptor(Socket listener, const JobKey& key, Admit admit,
                   Connected connected, Counters& counters,
                   AcceptorOptions options)
    : key_(key),
      admit_(std::move(admit)),
      connected_(std::move(connected)),
      options_(options),
      rejections_(counters),
      listener_(std::move(listener)) {}

Acceptor::~Acceptor() { Stop(); }

Status Acceptor::Start() {
  KR_ASSIGN_OR_RETURN(wake_, NewEventFd());
  auto body = [this] {
    SetThreadName("kr-accept");
    try {
      Run();
    } catch (...) {
      // Out of memory, in effect. New connections fail; the job goes on.
      KR_LOG(kError) << "the acceptor has stopped after an exception";
    }
  };
  KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-accept", body));
  return OkStatus();
}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  Signal(wake_);
  thread_.join();
  pending_.clear();
  listener_.Close();
}

void Acceptor::Run() {
  std::vector<pollfd> entries;
  std::vector<std::list<Pending>::iterator> ready;
  while (!stopping_) {
    const bool accepting = Now() >= accept_again_;
    entries.clear();
    entries.push_back({wake_.fd(), POLLIN, 0});
    // poll skips a negative descriptor.
    entries.push_back({accepting ? listener_.fd() : -1, POLLIN, 0});
    for (const Pending& pending : pending_) {
      entries.push_back(
          {pending.handshake.fd(), pending.handshake.wanted_events(), 0});
    }
    if (poll(entries.data(), entries.size(), TimeoutMs(accepting)) < 0 &&
        errno != EINTR) {
      KR_LOG(kError) << "the acceptor has stopped: poll: " << ErrnoText(errno);
      return;
    }
    if (stopping_) return;
    ready.clear();
    size_t entry = 2;
    for (auto it = pending_.begin(); it != pending_.end(); ++it, ++entry) {
      if (entries[entry].revents != 0) ready.push_back(it);
    }
    for (auto it : ready) Drive(it);
    Expire();
    if (entries[1].revents != 0) AcceptWaiting();
  }
}

// Returns the milliseconds until the oldest handshake expires or, if not
// `accepting`, until accepting resumes; -1, for no limit, if there is neither.
// The caller must decide once whether it accepts: if a pause ended between two
// decisions, nothing would wake the thread for waiting connections.
int Acceptor::TimeoutMs(bool accepting) const {
  TimePoint until = TimePoint::max();
  if (!pending_.empty()) {
    until = pending_.front().since + options_.handshake_limit;
  }
  if (!accepting) until = std::min(until, accept_again_);
  return until == TimePoint::max() ? -1 : Deadline(until).PollTimeoutMs();
}

void Acceptor::AcceptWaiting() {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    if (pending_.size() >= options_.max_pending) {
      MakeRoom();
      if (pending_.size() >= options_.max_pending) return;
    }
    Result<Socket> socket = Accept(listener_);
    if (!socket.ok()) {
      KR_LOG(kError) << "cannot accept connections for now: "
                     << socket.status().message();
      accept_again_ = Now() + kOutOfDescriptorsPause;
      return;
    }
    if (!socket->valid()) return;
    std::string peer = PeerName(*socket);
    pending_.push_back(
        {ServerHandshake(std::move(socket).value(), key_, options_.tls),
         std::move(peer), Now()});
    // The client's first message has often arrived with the connection.
    Drive(std::prev(pending_.end()));
  }
}

TimePoint Acceptor::EvictedAt(const Pending& pending) const {
  return pending.since + (pending.handshake.opened() ? options_.eviction_age
                                                     : options_.silence_age);
}

// Drops the handshake that is the first to be evictable, or waits for it.
void Acceptor::MakeRoom() {
  auto first = std::min_element(pending_.begin(), pending_.end(),
                                [this](const Pending& a, const Pending& b) {
                                  return EvictedAt(a) < EvictedAt(b);
                                });
  if (Now() < EvictedAt(*first)) {
    accept_again_ = EvictedAt(*first);
    return;
  }
  Reject(*first, DeadlineExceededError("no handshake in time, others wait"));
  pending_.erase(first);
}

void Acceptor::Drive(std::list<Pending>::iterator it) {
  ServerHandshake::State state = it->handshake.Advance();
  if (state == ServerHandshake::State::kHello) {
    state = it->handshake.Answer(admit_(it->handshake.hello()));
  }
  switch (state) {
    case ServerHandshake::State::kPending:
    case ServerHandshake::State::kHello:
      return;
    case ServerHandshake::State::kFailed:
      Reject(*it, it->handshake.error());
      break;
    case ServerHandshake::State::kDone:
      // A refused client only had to get the verdict.
      if (it->handshake.accepted()) {
        connected_(it->handshake.hello(), it->handshake.TakeLink());
      }
      break;
  }
  pending_.erase(it);
  // A pending handshake has ended.
  if (pending_.size() + 1 == options_.max_pending) accept_again_ = Now();
}

void Acceptor::Expire() {
  TimePoint limit = Now() - options_.handshake_limit;
  while (!pending_.empty() && pending_.front().since <= limit) {
    Reject(pending_.front(), DeadlineExceededError("no handshake in time"));
    pending_.pop_front();
  }
}

void Acceptor::Reject(const Pending& pending, const Status& why) {
  rejections_.Add(pending.peer, why.message(), Now());
}

}  // namespace keras_ring
