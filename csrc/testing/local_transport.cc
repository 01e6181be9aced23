#include "csrc/testing/local_transport.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

// One lock for the whole group: simple to see through, and fast enough for
// tests. Each rank sleeps on a condition of its own.
struct Group {
  struct Rank {
    // Raised with each byte that comes or goes, each close and each abort that
    // concerns the rank.
    uint64_t events = 0;
    CondVar raised;
    bool closed = false;
    Status broken;  // the first failure, or what Abort gave
  };

  Group(int size, const LocalTransportOptions& options)
      : options(options), ranks(size) {}

  void Raise(int rank) KR_REQUIRES(mutex) {
    ++ranks[rank].events;
    ranks[rank].raised.NotifyAll();
  }

  const LocalTransportOptions options;
  Mutex mutex;
  std::vector<Rank> ranks;
  // Bytes under way, by (from, to).
  std::map<std::pair<int, int>, std::string> pipes KR_GUARDED_BY(mutex);
};

// How far the streams of a Run have come.
struct Progress {
  struct Stream {
    bool tagged = false;  // the tag has gone before, or come
    size_t offset = 0;    // of the first segment that is not moved in full
  };

  explicit Progress(SendReceivePlan& p)
      : plan(p), out(p.outgoing.size()), in(p.incoming.size()) {}

  bool sent(size_t i) const {
    const Outgoing& stream = plan.outgoing[i];
    return out[i].tagged && stream.sent == stream.segments.size();
  }
  bool received(size_t i) const {
    const Incoming& stream = plan.incoming[i];
    return in[i].tagged && stream.received == stream.segments.size();
  }
  bool done() const {
    for (size_t i = 0; i < out.size(); ++i) {
      if (!sent(i)) return false;
    }
    for (size_t i = 0; i < in.size(); ++i) {
      if (!received(i)) return false;
    }
    return true;
  }

  SendReceivePlan& plan;
  std::vector<Stream> out;
  std::vector<Stream> in;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(int rank, std::shared_ptr<Group> group)
      : rank_(rank), group_(std::move(group)) {}

  ~LocalTransport() override {
    MutexLock lock(group_->mutex);
    group_->ranks[rank_].closed = true;
    for (int peer = 0; peer < size(); ++peer) group_->Raise(peer);
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }

  Status Run(SendReceivePlan& plan) override;

  void Abort(const Status& cause) override {
    MutexLock lock(group_->mutex);
    Break(cause);
    group_->Raise(rank_);
  }

 private:
  Status& broken() KR_REQUIRES(group_->mutex) {
    return group_->ranks[rank_].broken;
  }
  void Break(const Status& cause) KR_REQUIRES(group_->mutex) {
    if (broken().ok()) broken() = cause;
  }

  // Moves bytes until some have moved.
  Status Move(Progress& progress) KR_EXCLUDES(group_->mutex);
  // Move what can be moved now on stream `i`; return whether anything was.
  bool MoveOut(Progress& progress, size_t i) KR_REQUIRES(group_->mutex);
  bool MoveIn(Progress& progress, size_t i) KR_REQUIRES(group_->mutex);
  // Fails if what is still to be moved never can be.
  void CheckPeers(const Progress& progress) KR_REQUIRES(group_->mutex);
  // " to rank 2 from rank 0": whom it still waits for.
  static std::string PeersText(const Progress& progress);

  const int rank_;
  const std::shared_ptr<Group> group_;
};

Status LocalTransport::Run(SendReceivePlan& plan) {
  Progress progress(plan);
  // Without the lock: it reduces, and may abort this very transport.
  if (plan.advance) plan.advance(plan);
  while (!progress.done() || plan.busy) {
    KR_RETURN_IF_ERROR(Move(progress));
    if (plan.advance) plan.advance(plan);
  }
  MutexLock lock(group_->mutex);
  return broken();
}

Status LocalTransport::Move(Progress& progress) {
  MutexLock lock(group_->mutex);
  Group::Rank& self = group_->ranks[rank_];
  const auto until = std::chrono::steady_clock::now() + group_->options.limit;
  while (self.broken.ok()) {
    bool moved = false;
    for (size_t i = 0; i < progress.out.size(); ++i) {
      moved = MoveOut(progress, i) || moved;
    }
    for (size_t i = 0; i < progress.in.size(); ++i) {
      moved = MoveIn(progress, i) || moved;
    }
    if (!self.broken.ok() || moved) break;
    PlanEvents* const events = progress.plan.events;
    if (events != nullptr) {
      if (events->Happened()) break;
      Break(events->Check());
    }
    CheckPeers(progress);
    if (!self.broken.ok()) break;
    const uint64_t seen = self.events;
    if (events != nullptr && std::chrono::steady_clock::now() < until) {
      // They are looked at now and then: no descriptor can be waited for here.
      self.raised.WaitUntil(
          group_->mutex,
          std::chrono::steady_clock::now() + std::chrono::microseconds(200),
          [&] { return self.events != seen; });
      continue;
    }
    if (!self.raised.WaitUntil(group_->mutex, until,
                               [&] { return self.events != seen; })) {
      Break(DeadlineExceededError("no byte moved " + PeersText(progress) +
                                  " within the limit"));
    }
  }
  return self.broken;
}

std::string LocalTransport::PeersText(const Progress& progress) {
  std::string text;
  for (size_t i = 0; i < progress.out.size(); ++i) {
    if (progress.sent(i)) continue;
    text += " to rank " + std::to_string(progress.plan.outgoing[i].peer);
  }
  for (size_t i = 0; i < progress.in.size(); ++i) {
    if (progress.received(i)) continue;
    text += " from rank " + std::to_string(progress.plan.incoming[i].peer);
  }
  return text;
}

bool LocalTransport::MoveOut(Progress& progress, size_t i) {
  Outgoing& stream = progress.plan.outgoing[i];
  Progress::Stream& at = progress.out[i];
  if (progress.sent(i) || group_->ranks[stream.peer].closed) return false;
  std::string& pipe = group_->pipes[{rank_, stream.peer}];
  const size_t capacity = group_->options.pipe_bytes;
  const uint64_t tag = progress.plan.tag;
  bool moved = false;
  if (!at.tagged) {
    if (pipe.size() + sizeof(tag) > capacity) return false;
    pipe.append(reinterpret_cast<const char*>(&tag), sizeof(tag));
    at.tagged = moved = true;
  }
  const size_t ready = std::min(stream.released, stream.segments.size());
  while (stream.sent < ready && pipe.size() < capacity) {
    const ConstSegment& segment = stream.segments[stream.sent];
    const size_t bytes =
        std::min(segment.bytes - at.offset, capacity - pipe.size());
    pipe.append(static_cast<const char*>(segment.data) + at.offset, bytes);
    at.offset += bytes;
    if (at.offset == segment.bytes) {
      ++stream.sent;
      at.offset = 0;
    }
    moved = true;
  }
  if (moved) group_->Raise(stream.peer);
  return moved;
}

bool LocalTransport::MoveIn(Progress& progress, size_t i) {
  Incoming& stream = progress.plan.incoming[i];
  Progress::Stream& at = progress.in[i];
  if (progress.received(i)) return false;
  std::string& pipe = group_->pipes[{stream.peer, rank_}];
  bool moved = false;
  if (!at.tagged) {
    uint64_t tag;
    if (pipe.size() < sizeof(tag)) return false;
    std::memcpy(&tag, pipe.data(), sizeof(tag));
    pipe.erase(0, sizeof(tag));
    if (tag != progress.plan.tag) {
      Break(InternalError("rank " + std::to_string(stream.peer) +
                          " runs collective " + std::to_string(tag) +
                          " while this rank runs " +
                          std::to_string(progress.plan.tag)));
      return false;
    }
    at.tagged = moved = true;
  }
  const size_t allowed = std::min(stream.allowed, stream.segments.size());
  while (stream.received < allowed) {
    const Segment& segment = stream.segments[stream.received];
    const size_t bytes = std::min(segment.bytes - at.offset, pipe.size());
    pipe.copy(static_cast<char*>(segment.data) + at.offset, bytes);
    pipe.erase(0, bytes);
    at.offset += bytes;
    moved = moved || bytes > 0;
    if (at.offset < segment.bytes) break;
    ++stream.received;
    at.offset = 0;
    moved = true;
  }
  if (moved) group_->Raise(stream.peer);
  return moved;
}

void LocalTransport::CheckPeers(const Progress& progress) {
  auto check = [&](bool finished, int peer) KR_REQUIRES(group_->mutex) {
    if (finished || !group_->ranks[peer].closed) return;
    Break(UnavailableError("rank " + std::to_string(peer) +
                           " closed the connection"));
  };
  const SendReceivePlan& plan = progress.plan;
  for (size_t i = 0; i < progress.in.size(); ++i) {
    check(progress.received(i), plan.incoming[i].peer);
  }
  for (size_t i = 0; i < progress.out.size(); ++i) {
    check(progress.sent(i), plan.outgoing[i].peer);
  }
}

}  // namespace

std::vector<std::unique_ptr<Transport>> CreateLocalTransports(
    int size, const LocalTransportOptions& options) {
  auto group = std::make_shared<Group>(size, options);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<LocalTransport>(rank, group));
  }
  return transports;
}

}  // namespace keras_ring
