#include "csrc/testing/run_ranks.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

// A thread that does one thing after the other, for as long as the process is
// there.
class Worker {
 public:
  Worker() {
    std::thread([this] { Run(); }).detach();
  }

  void Begin(std::function<void()> work) {
    MutexLock lock(mutex_);
    work_ = std::move(work);
    changed_.NotifyAll();
  }

  // Returns once it can begin with something else.
  void AwaitEnd() {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_,
                  [this]() KR_REQUIRES(mutex_) { return work_ == nullptr; });
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> work;
      {
        MutexLock lock(mutex_);
        changed_.Wait(
            mutex_, [this]() KR_REQUIRES(mutex_) { return work_ != nullptr; });
        work = work_;
      }
      work();
      MutexLock lock(mutex_);
      work_ = nullptr;
      changed_.NotifyAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::function<void()> work_ KR_GUARDED_BY(mutex_);
};

// Workers without work. Under TSAN it takes milliseconds to make a thread, and
// the tests of a collective would need tens of thousands of them.
class Crew {
 public:
  static Crew& Get() {
    static Crew& crew = *new Crew;
    return crew;
  }

  std::vector<std::unique_ptr<Worker>> Hire(int count) {
    std::vector<std::unique_ptr<Worker>> hired(count);
    MutexLock lock(mutex_);
    for (auto& worker : hired) {
      if (idle_.empty()) {
        worker = std::make_unique<Worker>();
      } else {
        worker = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    return hired;
  }

  void TakeBack(std::vector<std::unique_ptr<Worker>> workers) {
    MutexLock lock(mutex_);
    for (auto& worker : workers) idle_.push_back(std::move(worker));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Worker>> idle_ KR_GUARDED_BY(mutex_);
};

struct Progress {
  Mutex mutex;
  CondVar changed;
  std::set<int> running KR_GUARDED_BY(mutex);
};

// Returns when no rank runs any more.
void AwaitAll(Progress& progress, std::chrono::seconds limit) {
  MutexLock lock(progress.mutex);
  const bool done = progress.changed.WaitUntil(
      progress.mutex, std::chrono::steady_clock::now() + limit,
      [&]() KR_REQUIRES(progress.mutex) { return progress.running.empty(); });
  if (done) return;
  std::string ranks;
  for (int rank : progress.running) ranks += " " + std::to_string(rank);
  std::fprintf(stderr,
               "RunRanks: still running after %lld s, so this is a hang; "
               "ranks:%s\n",
               static_cast<long long>(limit.count()), ranks.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace

void RunRanks(int size, const std::function<void(int rank)>& function,
              std::chrono::seconds limit) {
  Progress progress;
  {
    MutexLock lock(progress.mutex);
    for (int rank = 0; rank < size; ++rank) progress.running.insert(rank);
  }
  std::vector<std::unique_ptr<Worker>> workers = Crew::Get().Hire(size);
  for (int rank = 0; rank < size; ++rank) {
    workers[rank]->Begin([&, rank] {
      function(rank);
      MutexLock lock(progress.mutex);
      progress.running.erase(rank);
      progress.changed.NotifyAll();
    });
  }
  AwaitAll(progress, limit);
  for (auto& worker : workers) worker->AwaitEnd();
  Crew::Get().TakeBack(std::move(workers));
}

}  // namespace keras_ring
