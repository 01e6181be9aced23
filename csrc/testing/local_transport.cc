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

// How far a Run has come.
struct Progress {
  explicit Progress(SendReceivePlan& d)
      : duplex(d), tag_sent(d.to < 0), tag_received(d.from < 0) {}

  bool all_sent() const { return tag_sent && sends == duplex.sends.size(); }
  bool all_received() const {
    return tag_received && receives == duplex.receives.size();
  }
  bool done() const { return all_sent() && all_received(); }

  SendReceivePlan& duplex;
  bool tag_sent;
  bool tag_received;
  size_t sends = 0;  // segments
  size_t send_offset = 0;
  size_t receives = 0;
  size_t receive_offset = 0;
  // receives[receives] is complete; on_received is to be called for it.
  bool arrived = false;
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

  Status Run(SendReceivePlan& duplex) override;

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

  // Moves bytes until a segment has arrived or all is done.
  Status Move(Progress& progress) KR_EXCLUDES(group_->mutex);
  // Move what can be moved now; return whether anything was.
  bool MoveOut(Progress& progress) KR_REQUIRES(group_->mutex);
  bool MoveIn(Progress& progress) KR_REQUIRES(group_->mutex);
  // Fails if what is still to be moved never can be.
  void CheckPeers(const Progress& progress) KR_REQUIRES(group_->mutex);

  const int rank_;
  const std::shared_ptr<Group> group_;
};

Status LocalTransport::Run(SendReceivePlan& duplex) {
  Progress progress(duplex);
  do {
    KR_RETURN_IF_ERROR(Move(progress));
    if (!progress.arrived) continue;
    // Without the lock: it reduces, and may abort this very transport.
    if (duplex.on_received) {
      duplex.released = duplex.on_received(progress.receives);
    }
    progress.arrived = false;
    progress.receive_offset = 0;
    ++progress.receives;
  } while (!progress.done());
  return OkStatus();
}

Status LocalTransport::Move(Progress& progress) {
  MutexLock lock(group_->mutex);
  Group::Rank& self = group_->ranks[rank_];
  auto now = [] { return std::chrono::steady_clock::now(); };
  auto until = now() + group_->options.limit;
  while (self.broken.ok()) {
    const bool out = MoveOut(progress);
    const bool in = MoveIn(progress);
    if (!self.broken.ok() || progress.arrived || progress.done()) break;
    if (out || in) {
      until = now() + group_->options.limit;
      continue;
    }
    CheckPeers(progress);
    if (!self.broken.ok()) break;
    const uint64_t seen = self.events;
    if (!self.raised.WaitUntil(group_->mutex, until,
                               [&] { return self.events != seen; })) {
      Break(DeadlineExceededError(
          "no byte moved to rank " + std::to_string(progress.duplex.to) +
          " nor from rank " + std::to_string(progress.duplex.from) +
          " within the limit"));
    }
  }
  return self.broken;
}

bool LocalTransport::MoveOut(Progress& progress) {
  SendReceivePlan& duplex = progress.duplex;
  if (progress.all_sent() || group_->ranks[duplex.to].closed) return false;
  std::string& pipe = group_->pipes[{rank_, duplex.to}];
  const size_t capacity = group_->options.pipe_bytes;
  bool moved = false;
  if (!progress.tag_sent) {
    if (pipe.size() + sizeof(duplex.tag) > capacity) return false;
    pipe.append(reinterpret_cast<const char*>(&duplex.tag), sizeof(duplex.tag));
    progress.tag_sent = moved = true;
  }
  const size_t ready = std::min(duplex.released, duplex.sends.size());
  while (progress.sends < ready && pipe.size() < capacity) {
    const ConstSegment& segment = duplex.sends[progress.sends];
    const size_t bytes =
        std::min(segment.bytes - progress.send_offset, capacity - pipe.size());
    pipe.append(static_cast<const char*>(segment.data) + progress.send_offset,
                bytes);
    progress.send_offset += bytes;
    if (progress.send_offset == segment.bytes) {
      ++progress.sends;
      progress.send_offset = 0;
    }
    moved = true;
  }
  if (moved) group_->Raise(duplex.to);
  return moved;
}

bool LocalTransport::MoveIn(Progress& progress) {
  SendReceivePlan& duplex = progress.duplex;
  if (progress.all_received()) return false;
  std::string& pipe = group_->pipes[{duplex.from, rank_}];
  bool moved = false;
  if (!progress.tag_received) {
    uint64_t tag;
    if (pipe.size() < sizeof(tag)) return false;
    std::memcpy(&tag, pipe.data(), sizeof(tag));
    pipe.erase(0, sizeof(tag));
    if (tag != duplex.tag) {
      Break(InternalError("rank " + std::to_string(duplex.from) +
                          " runs collective " + std::to_string(tag) +
                          " while this rank runs " +
                          std::to_string(duplex.tag)));
      return false;
    }
    progress.tag_received = moved = true;
  }
  if (progress.receives < duplex.receives.size()) {
    const Segment& segment = duplex.receives[progress.receives];
    const size_t bytes =
        std::min(segment.bytes - progress.receive_offset, pipe.size());
    if (bytes > 0) {
      pipe.copy(static_cast<char*>(segment.data) + progress.receive_offset,
                bytes);
      pipe.erase(0, bytes);
      progress.receive_offset += bytes;
      moved = true;
    }
    progress.arrived = progress.receive_offset == segment.bytes;
  }
  if (moved) group_->Raise(duplex.from);
  return moved;
}

void LocalTransport::CheckPeers(const Progress& progress) {
  const SendReceivePlan& duplex = progress.duplex;
  auto check = [&](bool finished, int peer) KR_REQUIRES(group_->mutex) {
    if (finished || !group_->ranks[peer].closed) return;
    Break(UnavailableError("rank " + std::to_string(peer) +
                           " closed the connection"));
  };
  check(progress.all_received(), duplex.from);
  check(progress.all_sent(), duplex.to);
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
