// RankSet: the ranks that a runtime joins, all of the job or a process set.
#ifndef KERAS_RING_BASE_RANK_SET_H_
#define KERAS_RING_BASE_RANK_SET_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace keras_ring {

// Inside a set, ranks are counted from 0 in the order of the job's, so that
// what serves a job serves a set. Users know the job's ranks only: what they
// read and what they pass is translated here.
class RankSet {
 public:
  RankSet() = default;  // the whole job
  // `members`: ranks of the job, ascending. `number` is above 0.
  RankSet(uint32_t number, std::vector<int32_t> members)
      : number_(number), members_(std::move(members)) {}

  // The number of the process set; 0 for the whole job.
  uint32_t number() const { return number_; }
  bool is_job() const { return number_ == 0; }
  // A number that tells the messages of sets apart where the range of numbers
  // is small. No two sets that live at the same time share one, and none has
  // that of the job (0): ProcessSets gives out no number whose tag is in use.
  static constexpr int kMaxTag = 32767;  // any MPI takes so many
  int tag() const { return TagOf(number_); }
  static int TagOf(uint32_t number) {
    return number == 0 ? 0 : 1 + static_cast<int>((number - 1) % kMaxTag);
  }
  // Ranks of the job; empty for the whole of it.
  const std::vector<int32_t>& members() const { return members_; }

  // Converts a rank of the set to its rank in the job, and back. Local returns
  // -1 if `global` is not a member.
  int32_t Global(int32_t rank) const {
    return is_job() ? rank : members_[rank];
  }
  std::vector<int32_t> Global(std::vector<int32_t> ranks) const;
  int32_t Local(int32_t global) const;

  // "the job", "process set 2 (ranks 0, 3)".
  std::string Text() const;

 private:
  uint32_t number_ = 0;
  std::vector<int32_t> members_;
};

// {0, 1, 2, 5} as "0-2, 5".
std::string RankList(const std::vector<int32_t>& ranks);
// "rank 5", "ranks 0-2, 5".
std::string RanksText(const std::vector<int32_t>& ranks);

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_RANK_SET_H_
