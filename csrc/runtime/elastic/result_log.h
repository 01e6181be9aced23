// ResultLog: what this rank remembers of operations between steps.
#ifndef KERAS_RING_RUNTIME_ELASTIC_RESULT_LOG_H_
#define KERAS_RING_RUNTIME_ELASTIC_RESULT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/base/status.h"

namespace keras_ring {

// An operation of no step, such as a broadcast or the average of a metric, may
// have ended on some ranks when another one was lost. These ranks will not ask
// for it again, so the others get the result from them: in the next generation
// each rank says what it lacks (EncodeWanted), and gets it from those that have
// it (EncodeFound). Only results that are equal on all ranks can be given so.
//
// An operation is the n-th use of its name, counted alike by all ranks: a name
// is used again only after its last use has ended.
//
// Not thread-safe.
class ResultLog {
 public:
  struct Use {
    std::string name;
    uint64_t number = 0;
    bool operator<(const Use& other) const {
      return std::tie(name, number) < std::tie(other.name, other.number);
    }
  };
  using Results = std::vector<std::string>;  // bytes
  // Of operations that have ended on some rank. No results: they are too large,
  // or each rank has its own.
  using Found = std::map<Use, std::optional<Results>>;

  // Results up to these sizes are remembered, the newest of them.
  static constexpr size_t kMostOfOne = 1 << 20;
  static constexpr size_t kMostOfAll = 16 << 20;

  // Counts a use of a name, which begins.
  Use Begin(const std::string& name) { return {name, uses_[name]++}; }
  // It has not begun after all.
  void TakeBack(const Use& use) { --uses_[use.name]; }
  // Counts all uses from 0 again, and forgets the results.
  void Clear() { *this = ResultLog(); }
  // It has ended, with results that are equal on all ranks, or with others.
  void Add(const Use& use, std::optional<Results> results);

  static std::string EncodeWanted(const std::vector<Use>& wanted);
  static Result<std::vector<Use>> DecodeWanted(std::string_view bytes);
  // The results that are wanted and that this rank has.
  std::string EncodeFound(const std::vector<Use>& wanted) const;
  // Adds what a rank has found to `found`.
  static Status DecodeFound(std::string_view bytes, Found& found);

 private:
  std::map<std::string, uint64_t> uses_;
  std::deque<std::pair<Use, std::optional<Results>>> newest_;
  size_t bytes_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_ELASTIC_RESULT_LOG_H_
