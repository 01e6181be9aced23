// ElasticJob: a job that goes on without the ranks that it loses.
#ifndef KERAS_RING_RUNTIME_ELASTIC_ELASTIC_JOB_H_
#define KERAS_RING_RUNTIME_ELASTIC_ELASTIC_JOB_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/base/options.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/rendezvous/membership.h"
#include "csrc/control/tensor_entry.h"
#include "csrc/runtime/elastic/result_log.h"
#include "csrc/runtime/elastic/step_ledger.h"
#include "csrc/runtime/process_sets.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

// The ranks of an elastic job are its members, and while they are the same they
// form a *generation*: a job as others are, with a runtime of its own. When it
// loses a rank, the runtimes of the others end, and these meet as the next
// generation, with ranks counted anew. What was submitted meanwhile waits for
// it, and so does what had not begun. Programs see neither.
//
// Processes may join a job that runs. Each is alone at first, in a job of its
// own, until the ranks let them in (Admit).
//
// One thread, `kr-elastic`, goes from one generation to the next.
class ElasticJob {
 public:
  // What it is made of. Functions are called by one thread at a time.
  struct Parts {
    // Of the first generation.
    Options options;
    // This process joins a job that runs; its number there. -1: it is of the
    // first generation.
    int32_t joins_as = -1;
    // Starts a generation. Blocks.
    std::function<Result<std::shared_ptr<ProcessSets>>(
        const Options& options, const LossHandling& on_loss)>
        start;
    // A further generation has started, in place of the one before it.
    std::function<void(std::shared_ptr<ProcessSets>)> publish;
    // Listens where this rank would serve the store of the next generation: at
    // an address by which the others reach it.
    std::function<Result<Socket>(const std::string& address)> listen;
  };

  // Starts the first generation.
  static Result<std::unique_ptr<ElasticJob>> Start(
      Parts parts, std::unique_ptr<Membership> membership);
  ~ElasticJob();
  // From now on further ones follow it.
  Status Watch();

  std::shared_ptr<ProcessSets> sets() const KR_EXCLUDES(mutex_);

  // The present generation, whichever that is.
  static constexpr int64_t kPresent = -1;

  // As Runtime::Enqueue. `commit_group`: that of the step that the operation is
  // of; null for one that is of no step. An operation of a step that is
  // discarded ends well, and its results have no meaning.
  //
  // `generation`: that in which the root of a broadcast is counted. The root
  // stays the same process when the ranks are counted anew. kAborted, here or
  // at the end: the job has lost it, and no other rank has its values.
  Status Enqueue(TensorEntry entry,
                 std::shared_ptr<const std::string> commit_group,
                 int64_t generation = kPresent) KR_EXCLUDES(mutex_);

  // Asks for the commit of the step of `group` that this rank is in, once all
  // of its operations have ended. `done` is called once: with whether the step
  // is committed, on all ranks alike, or with an error. After an error of this
  // function it is not.
  using Committed = std::function<void(const Result<bool>& committed)>;
  Status Commit(const std::string& group, Committed done) KR_EXCLUDES(mutex_);

  // How the steps of this rank have ended, of all groups.
  struct Steps {
    uint64_t committed = 0;
    uint64_t discarded = 0;
    // Of the last that was committed: the generation whose shares it has.
    int64_t generation = 0;
  };
  Steps steps() const KR_EXCLUDES(mutex_);

  // Whether this process joins, and has not been let in. It may commit a few
  // steps alone until then; kFailedPrecondition after these.
  bool IsWaiting() const KR_EXCLUDES(mutex_);
  static constexpr uint64_t kMostStepsAlone = 16;
  // How many processes wait to be let in, as far as this rank has heard. Others
  // may not have heard of it.
  uint64_t NumWaiting() { return membership_->NumWaiting(); }
  // Lets in who waits: the next generation has them as well. All ranks must
  // call this between the same two steps, with nothing submitted that has not
  // ended; a rank that waits, to be let in. Blocks until all have, and then
  // returns true: the ranks may be others. False at the deadline: to be called
  // again, since the others may have been told.
  Result<bool> Admit(Deadline deadline) KR_EXCLUDES(mutex_);

  // What the ranks of a generation told each other when it began.
  struct Told {
    int64_t generation = 0;
    std::vector<int32_t> members;
    std::vector<std::string> texts;  // like members; "" if it had none
  };
  // Sets what this rank tells the others about `key` when the next generation
  // begins. `generation` is the present one for the caller: kAborted if the
  // ranks have told each other meanwhile, and it is over or about to be.
  Status Tell(const std::string& key, std::string text, int64_t generation)
      KR_EXCLUDES(mutex_);
  // What was told about `key` in the generations after `generation`, in their
  // order. Only that of the last kMostTold is kept.
  std::vector<Told> ToldAfter(int64_t generation, const std::string& key) const
      KR_EXCLUDES(mutex_);
  static constexpr size_t kMostTold = 64;

  // Leaves the job. See Runtime::Shutdown.
  void Shutdown(const std::string& reason) KR_EXCLUDES(mutex_);

 private:
  // A submitted operation, until it has ended.
  struct Operation {
    TensorEntry entry;  // without its completion
    Completion completion;
    std::shared_ptr<const std::string> commit_group;
    // Of an operation of no step.
    ResultLog::Use use;
    // The root of a broadcast; -1: it has none that there is.
    int32_t root_member = -1;
    // Where its results are that it has allocated: memory and bytes.
    std::vector<std::pair<void*, size_t>> allocated;
  };
  using OperationPtr = std::shared_ptr<Operation>;
  enum class State {
    kRunning,
    kChanging,  // the next generation is not there yet
    kEnded,     // there is none
  };

  ElasticJob(Parts parts, std::unique_ptr<Membership> membership);
  Result<std::shared_ptr<ProcessSets>> StartGeneration(const Options& options);
  Status Submit(const OperationPtr& operation) KR_EXCLUDES(mutex_);
  // The member with a rank of a generation; -1 if there is none.
  int32_t MemberOf(int64_t generation, int32_t rank) KR_REQUIRES(mutex_);
  // The request of an operation, with its root counted in this generation.
  Result<RequestPtr> RequestNow(const Operation& operation) KR_REQUIRES(mutex_);
  void OnEnd(const OperationPtr& operation, const Status& status)
      KR_EXCLUDES(mutex_);
  // Asks the other ranks for a commit that waits in `commits_`.
  Status AskOthers(const std::string& group) KR_EXCLUDES(mutex_);
  void OnAnswer(const std::string& group, int64_t generation,
                const Status& status) KR_EXCLUDES(mutex_);
  void Count(bool committed, int64_t generation) KR_REQUIRES(mutex_);
  Committed TakeCommit(const std::string& group) KR_REQUIRES(mutex_);
  void OnBroken(const Status& cause) KR_EXCLUDES(mutex_);
  void OnOver(const GenerationOver& over) KR_EXCLUDES(mutex_);
  // Breaks the present generation if the launcher has said that it is over.
  void BreakIfOver() KR_EXCLUDES(mutex_);

  void Run() KR_EXCLUDES(mutex_);
  // Goes on as the next generation, however often it has to be tried. `cause`:
  // why this one has broken, if it has.
  Status GoOn(Status cause) KR_EXCLUDES(mutex_);
  // Reports to the launcher; returns who goes on. `listener`: at `address`.
  // `admitted`: those who waited are members already.
  Result<NextGeneration> AskLauncher(const Socket& listener,
                                     const std::string& address,
                                     const Options& options,
                                     const Status& cause, bool admitted)
      KR_EXCLUDES(mutex_);
  // Ends the runtimes of a generation; null if that has been done.
  void Leave(std::shared_ptr<ProcessSets>& sets) KR_EXCLUDES(mutex_);
  void CountUsesAnew() KR_REQUIRES(mutex_);
  Status Settle(const NextGeneration& next) KR_EXCLUDES(mutex_);
  // Ends operations of no step with the results that other ranks have.
  Status ShareResults(Runtime& runtime) KR_EXCLUDES(mutex_);
  // Tells the others what there is to tell; returns what all have told.
  Result<std::vector<std::map<std::string, std::string>>> TellOthers(
      Runtime& runtime, int64_t generation) KR_EXCLUDES(mutex_);
  // The ranks of a generation have connected, and tell each other things.
  void Meet(std::shared_ptr<ProcessSets> sets, int64_t generation)
      KR_EXCLUDES(mutex_);
  void Resume(std::shared_ptr<ProcessSets> sets) KR_EXCLUDES(mutex_);
  void EndAll(const Status& status) KR_EXCLUDES(mutex_);
  // Ends what `kr-elastic` was left to end.
  void FireEnded() KR_EXCLUDES(mutex_);

  const Parts parts_;
  mutable Mutex mutex_;
  CondVar changed_;
  State state_ KR_GUARDED_BY(mutex_) = State::kChanging;
  Status end_ KR_GUARDED_BY(mutex_);       // why there is no next generation
  Options options_ KR_GUARDED_BY(mutex_);  // of the generation
  // By generation: the members, by their ranks in it.
  std::map<int64_t, std::vector<int32_t>> members_ KR_GUARDED_BY(mutex_);
  std::shared_ptr<ProcessSets> sets_ KR_GUARDED_BY(mutex_);
  // That of the next generation; null: its ranks have not met.
  std::shared_ptr<ProcessSets> meeting_ KR_GUARDED_BY(mutex_);
  int64_t meeting_generation_ KR_GUARDED_BY(mutex_) = 0;
  Status broken_ KR_GUARDED_BY(mutex_);  // why the generation has ended
  // What the launcher has said last of a generation that is over.
  std::optional<GenerationOver> over_ KR_GUARDED_BY(mutex_);
  bool stop_ KR_GUARDED_BY(mutex_) = false;
  bool waits_ KR_GUARDED_BY(mutex_) = false;  // see IsWaiting
  // Whether this rank is to let others in, or to be let in; and whether Admit
  // has begun, and not told its caller that this is done.
  bool admitting_ KR_GUARDED_BY(mutex_) = false;
  bool admit_called_ KR_GUARDED_BY(mutex_) = false;
  StepLedger ledger_ KR_GUARDED_BY(mutex_);
  ResultLog log_ KR_GUARDED_BY(mutex_);
  std::vector<OperationPtr> waiting_ KR_GUARDED_BY(mutex_);
  // Have begun, and lost their results with a rank.
  std::vector<OperationPtr> torn_ KR_GUARDED_BY(mutex_);
  std::map<std::string, Committed> commits_ KR_GUARDED_BY(mutex_);
  Steps steps_ KR_GUARDED_BY(mutex_);
  std::map<std::string, std::string> to_tell_ KR_GUARDED_BY(mutex_);
  // That for which `to_tell_` was read last.
  int64_t told_in_ KR_GUARDED_BY(mutex_) = 0;
  // By generation, and by rank in it.
  std::map<int64_t, std::vector<std::map<std::string, std::string>>> told_
      KR_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> ended_ KR_GUARDED_BY(mutex_);
  std::thread thread_;
  // The last: its thread calls OnOver.
  const std::unique_ptr<Membership> membership_;
};

// Returns the elastic job of this process; null if its job is none. It is never
// destroyed, since a thread of the program may be in a call of it when it shuts
// down. In the child of a fork it is the parent's.
ElasticJob* CurrentElasticJob();
// Null: there is none any more. The one before is kept.
void SetCurrentElasticJob(std::unique_ptr<ElasticJob> job);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_ELASTIC_ELASTIC_JOB_H_
