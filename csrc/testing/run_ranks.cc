#include "csrc/testing/run_ranks.h"

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

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
      [&] { return progress.running.empty(); });
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
  for (int rank = 0; rank < size; ++rank) progress.running.insert(rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      function(rank);
      MutexLock lock(progress.mutex);
      progress.running.erase(rank);
      progress.changed.NotifyAll();
    });
  }
  AwaitAll(progress, limit);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace keras_ring
