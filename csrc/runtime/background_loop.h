// BackgroundLoop: the control thread. The only part of the control plane that
// waits.
#ifndef KERAS_RING_RUNTIME_BACKGROUND_LOOP_H_
#define KERAS_RING_RUNTIME_BACKGROUND_LOOP_H_

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/running_clock.h"
#include "csrc/base/status.h"
#include "csrc/comm/host/death_watch.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/control/controller.h"
#include "csrc/control/flight_recorder.h"
#include "csrc/control/tensor_queue.h"
#include "csrc/runtime/broken_notice.h"
#include "csrc/runtime/executor.h"
#include "csrc/runtime/loop_inbox.h"
#include "csrc/runtime/peer_contacts.h"

namespace keras_ring {

struct BackgroundLoopOptions {
  Duration heartbeat_timeout = std::chrono::seconds(30);
  // How long a failed collective waits for the control plane to name the cause
  // before its own failure is taken for the cause.
  Duration suspicion_grace = std::chrono::milliseconds(300);
  // "rank 2 (host a, pid 71)", for messages.
  std::function<std::string(int rank)> describe_peer;
  RankSet ranks;
  // For a process set: reports a cause to break to the job, which calls Break
  // later, with the job's cause, so that both end with the same text. Returns
  // false if the job has ended.
  std::function<bool(const Status& cause)> report_loss;
  // If true, this rank logs causes as errors that another rank has reported to
  // it, and has logged already.
  bool repeats_loss = true;
  // Called with the offset of this rank's clock to rank 0's. May be null.
  std::function<void(const ClockReading& reading)> clock_read;
  // Called when the job breaks, with the flight records of that moment. Must
  // not block.
  std::function<void(const Status& cause, std::vector<FlightRecord> records)>
      broken;
  // The death watch of this host's ranks. Must outlive the loop. Null: there is
  // none.
  DeathWatch* death_watch = nullptr;
  // Return the status of operations that had not begun when the job broke for
  // this cause, and of those that had. Null: the cause itself.
  std::function<Status(const Status& cause)> status_of_waiting;
  std::function<Status(const Status& cause)> status_of_running;
};

class BackgroundLoop {
 public:
  // References must outlive the loop. `clock` is the clock of the channel, and
  // `running`, which the loop advances, that of the controller.
  BackgroundLoop(const BackgroundLoopOptions& options, int rank,
                 Controller& controller, MessageChannel& channel,
                 TensorQueue& queue, Executor& executor, const Clock& clock,
                 RunningClock& running);
  ~BackgroundLoop();

  Status Start(ControlTree tree);

  // --- Any thread ---

  // The queue has new entries.
  void Wake() { channel_.Wake(); }
  // The executor's callbacks.
  void OnLaunched() { inbox_.Launched(); }
  void OnDataFailure(const Status& status) { inbox_.Suspect(status); }
  // The callback of the death watch.
  void OnDeath(int rank) { inbox_.Died(rank); }
  // For the coordinator; see Controller::Tune.
  void Tune(Tunable tunable, int64_t value) { inbox_.Tune({tunable, value}); }
  // Leaves the job: waits until its end is agreed on and sent to the peers, at
  // most until `deadline`. The loop goes on, since the executor may still need
  // it.
  void Leave(const std::string& reason, Deadline deadline) KR_EXCLUDES(mutex_);
  // Joins the thread. Pending entries finish with an error. Idempotent.
  void Stop() KR_EXCLUDES(mutex_);
  // OK while the job runs; afterwards the reason why it does not, for good.
  Status status() const KR_EXCLUDES(mutex_);
  // Another thread reports that the job is broken. Does not wait.
  void Break(const Status& cause) { inbox_.Break(cause); }
  // `listener` is called once with the cause when the job breaks, on the loop's
  // thread; at once if it has broken already. Not called for an agreed end.
  // Null removes the listener.
  void SetBrokenListener(BrokenNotice::Listener listener) {
    broken_.SetListener(std::move(listener));
  }

 private:
  enum class State {
    kRunning,
    kDraining,      // the end is agreed on; what was decided before still runs
    kDrainAborted,  // a peer was lost then, and what still ran has failed
    kBroken,        // ended without an agreement
  };
  bool finished() const { return state_ != State::kRunning; }
  bool agreed() const {
    return state_ == State::kDraining || state_ == State::kDrainAborted;
  }

  void Run();
  // Sleeps until `until` (null: without a limit), or until an event arrives
  // from outside, and handles it.
  void Listen(const TimePoint* until);
  // Polls the channel, and detects whether this process was stopped.
  std::vector<MessageChannel::Event> Poll(const TimePoint* until);
  // This process has not run for the time `lost`. Peers are not blamed for
  // that.
  void Pardon(Duration lost);
  void HandleEvent(const MessageChannel::Event& event);
  // Returns whether the remaining commands end with the job's end.
  bool EndIsNext() const;
  // Returns whether `peer` has gone after an agreed end: one that this rank
  // knows of, or will hear of. A deputy may hear of it sooner than a peer on
  // another host.
  bool HasLeft(int peer) const;
  void HandleTimers();
  void HandleTuned();
  void HandleClosed(int peer, const Status& why);
  void HandleDeath(int rank);
  // Takes the failure of the data plane for the cause, if the control plane
  // names no better one in time.
  void HandleSuspicion(const Status& suspicion, TimePoint now);
  // Sends the bye messages, and all that is still queued.
  void SayBye();
  // Sends the controller's messages, and collects its commands.
  void Collect();
  void CarryOut();
  void CarryOut(ExecuteCommand command);
  void CarryOut(FailCommand command);
  void CarryOut(EndCommand command);
  void CarryOut(PlanCommand command);
  void CarryOut(JoinCommand command);
  void CarryOut(TuneCommand command);
  void CarryOut(ReconfigureCommand command);
  // Keeps the control plane going while this thread runs a collective.
  void PollControl();
  void Heartbeat(TimePoint now);
  void Abort(const Status& cause, int reported_by);
  void AbortAtOnce(const Status& cause, int reported_by);
  void LogLoss(const Status& cause) const;
  // A peer was lost after the end was agreed on, while buckets still run.
  void AbortTheRest(const Status& cause, int reported_by);
  void TellPeers(const std::vector<std::pair<int, std::string>>& messages);
  // Sends the cause of an abort to the peers. From here on this process may end
  // without being reported as lost.
  void TellCause(const Status& cause, int reported_by);
  // Leaves State::kRunning.
  void Finish(State state, const Status& status);
  // Records the outcome of the entries, and fires their completions.
  void End(std::vector<TensorEntry> entries, const Status& status);
  std::optional<TimePoint> NextWakeUp() const;

  const BackgroundLoopOptions options_;
  const int rank_;
  Controller& controller_;
  MessageChannel& channel_;
  TensorQueue& queue_;
  Executor& executor_;
  const Clock& clock_;
  RunningClock& running_;

  LoopInbox inbox_;
  BrokenNotice broken_;

  // Guards the state that other threads read.
  mutable Mutex mutex_;
  CondVar changed_;
  Status status_ KR_GUARDED_BY(mutex_);
  bool over_ KR_GUARDED_BY(mutex_) = false;  // ended or aborted, peers told
  bool stop_ KR_GUARDED_BY(mutex_) = false;

  // Loop thread only.
  State state_ = State::kRunning;
  bool leave_sent_ = false;
  bool loss_reported_ = false;  // to the job, which has not answered yet
  bool loss_heard_ = false;     // from a peer, not found by this rank
  std::optional<TimePoint> suspicion_due_;
  PeerContacts contacts_;
  const PeerContacts::HasLeft has_left_ = [this](int peer) {
    return HasLeft(peer);
  };
  std::vector<RequestPtr> requests_;  // just popped
  std::deque<Command> commands_;
  const std::function<void()> keep_in_touch_ = [this] { PollControl(); };
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_BACKGROUND_LOOP_H_
