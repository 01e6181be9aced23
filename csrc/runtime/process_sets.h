// ProcessSets: a job and the process sets that its ranks have created.
#ifndef KERAS_RING_RUNTIME_PROCESS_SETS_H_
#define KERAS_RING_RUNTIME_PROCESS_SETS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/runtime/runtime.h"
#include "csrc/runtime/set_numbers.h"

namespace keras_ring {

// A process set is a separate runtime among its members: connections, control
// and data threads, memory. So a set waits only for its own ranks.
//
// Sets have numbers that are equal on all ranks and never assigned twice in a
// process, because all ranks of the job make every change together: the change
// that each rank asks for, and the numbers that it has free, are first compared
// through the job's runtime. The job itself, every job, is set number 0.
//
// A failure of a set breaks the job, and a failure of the job breaks all sets,
// with one cause. An agreed end does not: a rank may leave the job while sets
// of others go on.
class ProcessSets {
 public:
  // Makes the parts of a set on a member, until `deadline`. Called on all
  // members at once; for several sets in the same order.
  using Connect =
      std::function<Result<RuntimeDeps>(const RankSet& set, Deadline deadline)>;

  // `numbers`: the set numbers of the process; must outlive the object.
  ProcessSets(std::shared_ptr<Runtime> job, Connect connect,
              SetNumbers& numbers);
  ~ProcessSets();  // shuts down

  const std::shared_ptr<Runtime>& job() const { return job_; }

  // Makes a set of each of these lists of ranks of the job, in any order, and
  // returns their numbers. Every rank of the job calls it with the same.
  // However many they are, ranks exchange as much as for one. All are made, or
  // none. Fails alike on all ranks:
  //   kFailedPrecondition  the ranks call for different changes,
  //   kInvalidArgument     no ranks, no such ranks, or there is such a set,
  //   kResourceExhausted   there are too many sets,
  //   else                 a member could not connect, or the job is over.
  Result<std::vector<uint32_t>> AddAll(std::vector<std::vector<int32_t>> lists)
      KR_EXCLUDES(change_mutex_);
  // Adds one set.
  Result<uint32_t> Add(std::vector<int32_t> ranks);

  // Ends a set on all its members. Like AddAll; kInvalidArgument if there is no
  // such set, or for number 0.
  Status Remove(int64_t number) KR_EXCLUDES(change_mutex_);

  // Returns the ranks of a set; those of number 0 are listed, too.
  // kFailedPrecondition if there is no such set, or no longer.
  Result<RankSet> Find(int64_t number) const KR_EXCLUDES(mutex_);

  // Returns the runtime of a set. Also kInvalidArgument if this rank is not a
  // member.
  Result<std::shared_ptr<Runtime>> RuntimeOf(int64_t number) const
      KR_EXCLUDES(mutex_);

  // Writes flight logs of the job and of the sets that this rank is in.
  void WriteFlightLogs(const std::string& reason) const KR_EXCLUDES(mutex_);

  // Ends the sets in agreement with their members, then the job; see
  // Runtime::Shutdown. Also ends a change that waits. Idempotent; thread-safe.
  void Shutdown(const std::string& reason) KR_EXCLUDES(mutex_);

 private:
  struct Member {
    RankSet ranks;
    std::shared_ptr<Runtime> runtime;  // null where this rank is no member
  };

  // Returns the lowest number that is free on all ranks, if all make this call.
  Result<uint32_t> AgreeOn(const std::string& call);
  // Returns an error that says which ranks make which call, if they differ.
  Status Difference(const std::string& call);
  Status Check(const std::vector<int32_t>& ranks) const KR_EXCLUDES(mutex_);
  // Returns the next `count` numbers, from `number` on, whose tags (RankSet) no
  // live set has: the same on all ranks, which all know all sets.
  Result<std::vector<uint32_t>> NumbersFrom(uint32_t number, size_t count) const
      KR_EXCLUDES(mutex_);
  // Returns the parts of the sets that this rank is a member of, once all
  // members of all sets have connected.
  Result<std::vector<std::optional<RuntimeDeps>>> ConnectAll(
      const std::vector<RankSet>& sets);
  Status Insert(std::vector<Member> made) KR_EXCLUDES(mutex_);
  void OnJobBroken(const Status& cause) KR_EXCLUDES(mutex_);
  Status NoSuchSet(int64_t number) const KR_REQUIRES(mutex_);

  const std::shared_ptr<Runtime> job_;
  const Connect connect_;
  SetNumbers& numbers_;
  const uint32_t first_number_;  // what is below was of other jobs

  // Held during a change; taken before all others.
  Mutex change_mutex_;

  mutable Mutex mutex_;
  std::map<int64_t, Member> sets_ KR_GUARDED_BY(mutex_);  // but the job
  int64_t last_number_ KR_GUARDED_BY(mutex_) = 0;         // of sets_, ever
  Status broken_ KR_GUARDED_BY(mutex_);                   // of the job
  bool shut_down_ KR_GUARDED_BY(mutex_) = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PROCESS_SETS_H_
