// StepLedger: how far this rank has come in the steps of an elastic job.
#ifndef KERAS_RING_RUNTIME_ELASTIC_STEP_LEDGER_H_
#define KERAS_RING_RUNTIME_ELASTIC_STEP_LEDGER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "csrc/comm/rendezvous/membership.h"

namespace keras_ring {

// A *step* is the operations of a commit group that a rank submits between two
// commits of that group, such as the gradients of one optimizer. All ranks
// commit a step, or all discard it. Steps of a group are numbered from 0, alike
// on all ranks.
//
// While no rank is lost, a step is committed when all ranks have asked for it.
// A loss may leave the results of a step complete on some ranks and not on
// others. Then each rank reports how far it has come (Reports), and is told
// what becomes of the step (Settle); see membership.h. If the step is
// discarded, its results have no meaning, and the rest of its operations are
// not run: the rank goes through it alone, up to its commit.
//
// Not thread-safe.
class StepLedger {
 public:
  // Returns whether the step that this rank is in was discarded: then its
  // operations must end without being run.
  bool IsDiscarded(const std::string& group) const;

  // An operation of the step has ended: with its result, or `torn`, because a
  // rank was lost while it ran.
  void Ended(const std::string& group, bool torn);

  // The rank asks for the commit of its step, of which nothing is pending.
  // Returns false if the step was discarded; the next one begins. Otherwise the
  // other ranks must be asked, and Committed or Settle gives the answer.
  bool Ask(const std::string& group);

  // All ranks have asked for the commit. The next step begins.
  void Committed(const std::string& group);

  std::vector<StepReport> Reports() const;

  // The answers to those who have asked for a commit.
  struct Answer {
    std::string group;
    bool committed = false;
  };
  // Takes note of what becomes of the steps that were open when ranks were
  // lost. Returns the answers that are known now, in order. kInternal if a
  // settlement contradicts what this rank knows: nothing is changed then.
  Result<std::vector<Answer>> Settle(const std::vector<StepSettlement>& all);

  // Takes over where the others are, for a rank that has been in no step.
  void Adopt(const std::vector<StepSettlement>& all);

 private:
  struct Group {
    uint64_t settled = 0;    // steps whose outcome is known
    bool begun = false;      // an operation of the open step has been run
    bool torn = false;       // one has lost its result
    bool asked = false;      // for the commit of the open step
    bool discarded = false;  // the program is in the last settled step yet
  };
  static Status Check(const Group& group, const StepSettlement& settlement);
  static void BeginStep(Group& group) { group = Group{group.settled + 1}; }

  std::map<std::string, Group> groups_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_ELASTIC_STEP_LEDGER_H_
