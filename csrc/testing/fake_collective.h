// FakeCollective: a collective of one rank that records, waits and fails as a
// test wants, for tests of what stands above collectives.
#ifndef KERAS_RING_TESTING_FAKE_COLLECTIVE_H_
#define KERAS_RING_TESTING_FAKE_COLLECTIVE_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/collective/collective.h"

namespace keras_ring {

// Thread-safe. Every output becomes a copy of its input, as if all other ranks
// held the neutral element (rounded to the wire dtype if the reduction is
// compressed); no scale is applied. In an allgather and an
// alltoall the blocks of the others become zero.
class FakeCollective final : public BlockingCollective, public InlineExecution {
 public:
  enum class Kind {
    kAllreduce,
    kAllgather,
    kBroadcast,
    kReducescatter,
    kAlltoall
  };
  struct Call {
    Kind kind = Kind::kAllreduce;
    // That of the kind.
    AllreduceArgs allreduce;
    AllgatherArgs allgather;
    BroadcastArgs broadcast;
    ReducescatterArgs reducescatter;
    AlltoallArgs alltoall;               // without its function
    std::vector<size_t> alltoall_bytes;  // [from * size + to]
    std::thread::id thread;              // that called
    int64_t one_shot_bytes = 0;          // as tuned until then
  };

  explicit FakeCollective(int rank = 0, int64_t inline_bytes = -1)
      : rank_(rank), inline_bytes_(inline_bytes) {}

  Status Allreduce(const AllreduceArgs& args) override;
  Status Allgather(const AllgatherArgs& args) override;
  Status Broadcast(const BroadcastArgs& args) override;
  Status Reducescatter(const ReducescatterArgs& args) override;
  Status Alltoall(const AlltoallArgs& args) override;
  InlineExecution* inline_execution() override {
    return inline_bytes_ < 0 ? nullptr : this;
  }
  int64_t InlineBytes() const override { return inline_bytes_; }
  // A call that waits does them every millisecond.
  void SetProgressCallback(const std::function<void()>* progress) override {
    progress_ = progress;
  }
  // One, which a call records and which changes nothing.
  std::vector<TunableRange> Tunables() const override {
    return {{Tunable::kOneShotBytes, one_shot_bytes_, 0, 1000}};
  }
  void PeerGone(int) override {}
  void Abort(const Status& cause) override KR_EXCLUDES(mutex_);

  // From now on every call waits (after it was recorded) until Release or
  // Abort.
  void Block() KR_EXCLUDES(mutex_);
  void Release() KR_EXCLUDES(mutex_);
  // From now on every call fails with `status`.
  void Fail(const Status& status) KR_EXCLUDES(mutex_);

  // Waits until so many calls were begun; false if that takes more than 30 s.
  bool AwaitCalls(size_t count) KR_EXCLUDES(mutex_);
  std::vector<Call> calls() KR_EXCLUDES(mutex_);

 private:
  void Set(Tunable, int64_t value) override { one_shot_bytes_ = value; }
  // Records, waits, then copies by `copy` unless broken.
  Status Run(Call call, const std::function<void()>& copy) KR_EXCLUDES(mutex_);
  // Waits a moment; whether the call may go on.
  bool AwaitTurn() KR_EXCLUDES(mutex_);

  const int rank_;
  const int64_t inline_bytes_;
  int64_t one_shot_bytes_ = 0;                       // of the thread that calls
  const std::function<void()>* progress_ = nullptr;  // of the calling thread
  Mutex mutex_;
  CondVar changed_;
  bool blocked_ KR_GUARDED_BY(mutex_) = false;
  Status broken_ KR_GUARDED_BY(mutex_);  // the first of Abort and Fail
  std::vector<Call> calls_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_FAKE_COLLECTIVE_H_
