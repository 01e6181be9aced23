#include "csrc/collective/shm/chunk_barrier.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

#include "csrc/base/futex.h"
#include "csrc/base/logging.h"
#include "csrc/base/running_clock.h"

namespace keras_ring {
namespace {

// A sleeper looks at its deadline, and calls `progress`, at least this often.
constexpr Duration kNap = std::chrono::milliseconds(200);
constexpr Duration kDutyNap = std::chrono::milliseconds(1);

}  // namespace

ChunkBarrier::ChunkBarrier(std::vector<ProgressPage*> pages,
                           std::vector<int> ranks, int index,
                           const ChunkBarrierOptions& options,
                           const Meter& meter)
    : pages_(std::move(pages)),
      ranks_(std::move(ranks)),
      local_rank_(index),
      options_(options),
      meter_(meter),
      spinner_(options.spin) {}

// Why no call is lost. All accesses below are sequentially consistent:
//
//   publisher: done <- chunk;  look at `asleep`; if set: ++calls, wake
//   sleeper:   c = calls; asleep <- 1;  look at `done`; if too low: sleep
//              while calls == c
//
// Of the two looks at least one sees what the other side has written before. If
// the sleeper's does not see `done`, the publisher's sees `asleep` and changes
// `calls` after the sleeper has read it, so the sleep ends or does not begin.
void ChunkBarrier::Publish(Phase phase, uint64_t chunk) {
  if (phase == Phase::kPacked) {
    pages_[local_rank_]->tags[chunk % ProgressPage::kNumTags].store(
        tag_, std::memory_order_relaxed);
  }
  pages_[local_rank_]->phases[static_cast<int>(phase)].done.store(chunk);
  WakeOthers();
}

void ChunkBarrier::SetLeft(int local_rank, ProgressPage::PeerState left) {
  uint32_t here = ProgressPage::kAlive;
  pages_[local_rank]->left.compare_exchange_strong(here, left);
  Wake(local_rank_);
  WakeOthers();
}

void ChunkBarrier::Wake(int local_rank) {
  ProgressPage::WaitWord& wait = pages_[local_rank]->wait;
  wait.calls.fetch_add(1);
  FutexWakeAll(wait.calls);
  if (wait.asleep.load() == ProgressPage::WaitWord::kOnBell &&
      !options_.bells.empty()) {
    Signal(*options_.bells[local_rank]);
  }
}

void ChunkBarrier::WakeSelf() {
  if (pages_[local_rank_]->wait.asleep.load() != 0) Wake(local_rank_);
}

void ChunkBarrier::WakeOthers() {
  for (int local_rank = 0; local_rank < static_cast<int>(pages_.size());
       ++local_rank) {
    if (local_rank != local_rank_ &&
        pages_[local_rank]->wait.asleep.load() != 0)
      Wake(local_rank);
  }
}

Status ChunkBarrier::AwaitAll(Phase phase, uint64_t chunk) {
  // Not all from the same one: each begins with its neighbour.
  const int size = static_cast<int>(pages_.size());
  for (int i = 1; i < size; ++i) {
    KR_RETURN_IF_ERROR(Await((local_rank_ + i) % size, phase, chunk));
  }
  return OkStatus();
}

Status ChunkBarrier::Await(int local_rank, Phase phase, uint64_t chunk) {
  if (!HasDone(local_rank, phase, chunk)) {
    TimedPhase time(meter_, TracePhase::kWait, tag_, ranks_[local_rank]);
    KR_RETURN_IF_ERROR(Wait(local_rank, phase, chunk));
  }
  return phase == Phase::kPacked ? CheckTag(local_rank, chunk) : OkStatus();
}

bool ChunkBarrier::AllHaveDone(Phase phase, uint64_t chunk) const {
  const int size = static_cast<int>(pages_.size());
  for (int local_rank = 0; local_rank < size; ++local_rank) {
    if (local_rank != local_rank_ && !HasDone(local_rank, phase, chunk)) {
      return false;
    }
  }
  return true;
}

Status ChunkBarrier::CheckTags(uint64_t chunk) const {
  const int size = static_cast<int>(pages_.size());
  for (int local_rank = 0; local_rank < size; ++local_rank) {
    if (local_rank == local_rank_ ||
        !HasDone(local_rank, Phase::kPacked, chunk)) {
      continue;
    }
    KR_RETURN_IF_ERROR(CheckTag(local_rank, chunk));
  }
  return OkStatus();
}

Status ChunkBarrier::CheckNobodyLost(Phase phase, uint64_t chunk) {
  if (aborted_.load()) {
    MutexLock lock(mutex_);
    return cause_;
  }
  const int lost = FirstLost(phase, chunk);
  return lost < 0 ? OkStatus() : HasLeft(lost);
}

uint64_t ChunkBarrier::NumEvents() const {
  uint64_t total = aborted_.load() ? 1 : 0;
  const int size = static_cast<int>(pages_.size());
  for (int local_rank = 0; local_rank < size; ++local_rank) {
    // Changes once, from kAlive.
    total += pages_[local_rank]->left.load();
    if (local_rank == local_rank_) continue;
    for (const ProgressPage::Count& phase : pages_[local_rank]->phases) {
      total += phase.done.load();
    }
  }
  return total;
}

void ChunkBarrier::BeginSleep() {
  pages_[local_rank_]->wait.asleep.store(ProgressPage::WaitWord::kOnBell);
}

void ChunkBarrier::EndSleep() {
  pages_[local_rank_]->wait.asleep.store(ProgressPage::WaitWord::kAwake);
}

Status ChunkBarrier::CheckTag(int local_rank, uint64_t chunk) const {
  const uint64_t tag =
      pages_[local_rank]->tags[chunk % ProgressPage::kNumTags].load(
          std::memory_order_relaxed);
  if (tag == tag_) return OkStatus();
  return InternalError("rank " + std::to_string(ranks_[local_rank]) +
                       " runs collective " + std::to_string(tag) +
                       " while this rank runs " + std::to_string(tag_));
}

int ChunkBarrier::FirstLost(Phase phase, uint64_t chunk) const {
  auto find = [&](auto condition) {
    for (int local_rank = 0; local_rank < static_cast<int>(pages_.size());
         ++local_rank) {
      if (condition(pages_[local_rank]->left.load(), local_rank))
        return local_rank;
    }
    return -1;
  };
  const int lost = find([&](uint32_t left, int local_rank) {
    return left != ProgressPage::kAlive && !HasDone(local_rank, phase, chunk);
  });
  if (lost < 0) return -1;
  // The ones because of which that one has left were marked before it.
  const int gone = find([&](uint32_t left, int local_rank) {
    return left == ProgressPage::kDead && !HasDone(local_rank, phase, chunk);
  });
  return gone >= 0 ? gone : FailedPeer(lost);
}

int ChunkBarrier::FailedPeer(int left) const {
  for (int local_rank = 0; local_rank < static_cast<int>(pages_.size());
       ++local_rank) {
    if (pages_[local_rank]->left.load() == ProgressPage::kDead)
      return local_rank;
  }
  return left;
}

Status ChunkBarrier::Wait(int local_rank, Phase phase, uint64_t chunk) {
  auto done = [&] {
    return HasDone(local_rank, phase, chunk) || aborted_.load();
  };
  if (spinner_.Until(done))
    return Outcome(local_rank, phase, chunk, local_rank);
  ProgressPage::WaitWord& wait = pages_[local_rank_]->wait;
  RunningClock clock(*options_.clock, RunningClock::kWaitGap);
  const TimePoint began = clock.Skip();
  Duration next_report = options_.report_time;
  while (true) {
    if (progress_ != nullptr) (*progress_)();
    const uint32_t calls = wait.calls.load();
    wait.asleep.store(ProgressPage::WaitWord::kOnWord);
    // A rank that has left without doing this will not do it, and then the
    // awaited rank may not get so far either.
    const int lost = FirstLost(phase, chunk);
    const bool over = lost >= 0 || done();
    (void)clock.Look();
    const Duration idle = clock.Now() - began;
    const Duration limit = options_.limit->get();
    if (!over && idle < limit) {
      FutexWait(wait.calls, calls,
                std::min(limit - idle, progress_ != nullptr ? kDutyNap : kNap));
    }
    wait.asleep.store(ProgressPage::WaitWord::kAwake);
    if (over) {
      return Outcome(local_rank, phase, chunk, lost >= 0 ? lost : local_rank);
    }
    if (idle >= limit)
      return DeadlineExceededError(IdleText(local_rank, limit));
    if (idle >= next_report) {
      KR_LOG(kWarning) << IdleText(local_rank, next_report)
                       << " in a collective that this rank is in; it is waited "
                          "for as long as its heartbeats come";
      next_report *= 2;
    }
  }
}

std::string ChunkBarrier::IdleText(int local_rank, Duration idle) const {
  std::ostringstream text;
  text << "rank " << ranks_[local_rank] << " has not moved for "
       << std::chrono::duration<double>(idle).count() << " s";
  return text.str();
}

Status ChunkBarrier::Outcome(int local_rank, Phase phase, uint64_t chunk,
                             int lost) {
  // Whatever else has happened, a phase that is done stays done.
  if (HasDone(local_rank, phase, chunk)) return OkStatus();
  MutexLock lock(mutex_);
  if (!cause_.ok()) return cause_;
  return HasLeft(lost);
}

Status ChunkBarrier::HasLeft(int local_rank) const {
  return UnavailableError("rank " + std::to_string(ranks_[local_rank]) +
                          " has left the job's collectives");
}

Status ChunkBarrier::CheckNobodyLeft() const {
  for (int local_rank = 0; local_rank < static_cast<int>(pages_.size());
       ++local_rank) {
    if (local_rank != local_rank_ &&
        pages_[local_rank]->left.load() != ProgressPage::kAlive) {
      return HasLeft(FailedPeer(local_rank));
    }
  }
  return OkStatus();
}

void ChunkBarrier::Abort(const Status& cause) {
  {
    MutexLock lock(mutex_);
    if (aborted_.load()) return;
    cause_ = cause;
    aborted_.store(true);
  }
  Wake(local_rank_);
}

}  // namespace keras_ring
