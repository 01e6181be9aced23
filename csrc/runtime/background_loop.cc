#include "csrc/runtime/background_loop.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {
namespace {

// How long a rank that leaves waits for its last words to be on their way.
constexpr Duration kByeLimit = std::chrono::seconds(1);

}  // namespace

BackgroundLoop::BackgroundLoop(const BackgroundLoopOptions& options, int rank,
                               Controller& controller, MessageChannel& channel,
                               TensorQueue& queue, Executor& executor,
                               const Clock& clock, RunningClock& running)
    : options_(options),
      rank_(rank),
      controller_(controller),
      channel_(channel),
      queue_(queue),
      executor_(executor),
      clock_(clock),
      running_(running),
      inbox_(channel),
      contacts_(options.heartbeat_timeout, channel, clock) {}

BackgroundLoop::~BackgroundLoop() { KR_CHECK(!thread_.joinable()); }

Status BackgroundLoop::Start(ControlTree tree) {
  contacts_.Start(tree);
  (void)running_.Skip();  // the time before
  KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-loop", [this] {
                        SetThreadName("kr-loop", options_.ranks.number());
                        Run();
                      }));
  return OkStatus();
}

void BackgroundLoop::HandleTuned() {
  const std::vector<TuneDecision> tuned = inbox_.TakeTuned();
  if (finished()) return;
  for (const TuneDecision& one : tuned) {
    controller_.Tune(one.tunable, one.value);
  }
}

Status BackgroundLoop::status() const {
  MutexLock lock(mutex_);
  return status_;
}

void BackgroundLoop::Leave(const std::string& reason, Deadline deadline) {
  inbox_.Leave(reason);
  bool agreed;
  {
    MutexLock lock(mutex_);
    agreed = changed_.WaitUntil(mutex_, deadline.at(),
                                [this]() KR_REQUIRES(mutex_) { return over_; });
  }
  if (!agreed) {
    KR_LOG(kWarning) << "the end of " << options_.ranks.Text()
                     << " was not agreed on in time "
                        "(KERAS_RING_SHUTDOWN_TIMEOUT); leaving anyway";
  }
}

void BackgroundLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  channel_.Wake();
  if (thread_.joinable()) thread_.join();
}

void BackgroundLoop::Run() {
  // Both were used by the thread that has made them.
  controller_.DetachFromThread();
  channel_.DetachFromThread();
  for (;;) {
    const std::optional<TimePoint> until = NextWakeUp();
    Listen(until ? &*until : nullptr);
    queue_.PopRequests(requests_);
    // In this order, so that requests made after a result are handled after its
    // launch.
    controller_.OnLaunched(inbox_.TakeLaunched());
    HandleTuned();
    for (const RequestPtr& request : requests_) controller_.Submit(request);
    HandleTimers();
    CarryOut();
    {
      MutexLock lock(mutex_);
      if (finished() && !over_ && channel_.Flushed()) {
        over_ = true;
        changed_.NotifyAll();
      }
      if (stop_) break;
    }
  }
  // Left without an agreement: nothing may stay pending.
  if (!finished()) {
    Finish(State::kBroken, UnavailableError("this rank has shut down"));
  }
  if (agreed()) SayBye();
}

void BackgroundLoop::SayBye() {
  if (state_ == State::kDraining) TellPeers(controller_.ByeMessages());
  const TimePoint until = clock_.Now() + kByeLimit;
  while (!channel_.Flushed() && clock_.Now() < until) {
    (void)channel_.Poll(&until);
  }
}

void BackgroundLoop::TellPeers(
    const std::vector<std::pair<int, std::string>>& messages) {
  for (const auto& [peer, message] : messages) contacts_.Send(peer, message);
}

void BackgroundLoop::Listen(const TimePoint* until) {
  const std::vector<int> deaths = inbox_.TakeDeaths();
  const TimePoint now = clock_.Now();
  const std::vector<MessageChannel::Event> events =
      Poll(deaths.empty() ? until : &now);
  for (const MessageChannel::Event& event : events) HandleEvent(event);
  // Messages of dead ranks are handled first: they may say why the ranks ended.
  // They were sent before this poll, and several polls may be needed to read
  // all of them.
  for (int rank : deaths) {
    const bool heard = std::any_of(events.begin(), events.end(),
                                   [rank](const MessageChannel::Event& event) {
                                     return event.peer == rank;
                                   });
    heard ? inbox_.Died(rank) : HandleDeath(rank);
  }
}

void BackgroundLoop::HandleEvent(const MessageChannel::Event& event) {
  if (event.kind == MessageChannel::Event::Kind::kClosed) {
    return HandleClosed(event.peer, event.status);
  }
  // After an agreed end a peer may still say that it leaves, or which rank was
  // lost.
  if (state_ == State::kBroken) return;
  Status status = controller_.OnMessage(event.peer, event.message);
  if (!status.ok() && !agreed()) {
    Abort(status.WithContext("rank " +
                             std::to_string(options_.ranks.Global(rank_)) +
                             " cannot go on with what " +
                             options_.describe_peer(event.peer) + " sent"),
          -1);
  }
}

void BackgroundLoop::HandleClosed(int peer, const Status& why) {
  // First its earlier messages: it may have left because of another rank.
  Collect();
  // Marks it in shared memory before this rank gives up its collective: ranks
  // that wait for this one then blame the other.
  executor_.PeerGone(peer);
  // The end is agreed on, and some buckets are still to run. A peer that was
  // faster may go.
  if (HasLeft(peer)) return;
  // All say the same, whether they have heard of it in this way or in that.
  if (options_.death_watch != nullptr && options_.death_watch->HasDied(peer)) {
    return HandleDeath(peer);
  }
  Abort(UnavailableError("lost " + options_.describe_peer(peer) +
                         ": its control connection ended: " + why.message()),
        peer);
}

void BackgroundLoop::HandleDeath(int rank) {
  Collect();
  executor_.PeerGone(rank);
  Abort(UnavailableError("lost " + options_.describe_peer(rank) +
                         ": its process has ended"),
        rank);
}

bool BackgroundLoop::EndIsNext() const {
  if (commands_.empty()) return false;
  const Command& last = commands_.back();
  return std::holds_alternative<EndCommand>(last) ||
         std::holds_alternative<ReconfigureCommand>(last);
}

bool BackgroundLoop::HasLeft(int peer) const {
  return controller_.HasSaidBye(peer) &&
         (agreed() || EndIsNext() || contacts_.IsDeputy(peer));
}

void BackgroundLoop::HandleTimers() {
  const TimePoint now = running_.Outside(running_.Now());
  const LoopInbox::Standing told = inbox_.standing();
  if (!told.broken.ok()) AbortAtOnce(told.broken, -1);
  if (finished()) {
    // A peer may go, or stop, before the last bucket is through.
    if (agreed()) HandleSuspicion(told.suspicion, now);
    if (state_ == State::kDraining) Heartbeat(now);
    return;
  }
  if (told.leaving && !std::exchange(leave_sent_, true)) {
    controller_.Leave(*told.leaving);
  }
  if (loss_reported_) return;  // the job's word comes next
  HandleSuspicion(told.suspicion, now);
  if (finished() || loss_reported_) return;
  std::optional<TimePoint> timer = controller_.NextTimer();
  if (timer && running_.Now() >= *timer) controller_.OnTimer();
  Heartbeat(now);
}

void BackgroundLoop::HandleSuspicion(const Status& suspicion, TimePoint now) {
  if (suspicion.ok()) return;
  if (!suspicion_due_) suspicion_due_ = now + options_.suspicion_grace;
  if (now >= *suspicion_due_) Abort(suspicion, -1);
}

std::vector<MessageChannel::Event> BackgroundLoop::Poll(
    const TimePoint* until) {
  std::vector<MessageChannel::Event> events = channel_.Poll(until);
  // A loop without peers may sleep for any time.
  if (until == nullptr || contacts_.empty()) {
    (void)running_.Skip();
  } else if (const Duration lost = running_.Look(); lost > Duration::zero()) {
    Pardon(lost);
  }
  return events;
}

void BackgroundLoop::Pardon(Duration lost) {
  const bool stopped = contacts_.Pardon(lost);
  if (stopped && options_.ranks.is_job()) {
    KR_LOG(kInfo)
        << "this process did not run for some "
        << std::chrono::duration_cast<std::chrono::seconds>(lost).count()
        << " s; it waits for the other ranks anew";
  }
}

void BackgroundLoop::Heartbeat(TimePoint now) {
  if (const std::optional<int> peer = contacts_.FindSilent(now, has_left_)) {
    std::ostringstream seconds;
    seconds
        << std::chrono::duration<double>(options_.heartbeat_timeout).count();
    Abort(UnavailableError(
              "lost " + options_.describe_peer(*peer) +
              ": nothing was heard from it for " + seconds.str() +
              " s (KERAS_RING_HEARTBEAT_TIMEOUT); its process is stopped or "
              "its host or network is gone"),
          *peer);
    return;
  }
  contacts_.Ping(now, has_left_);
}

void BackgroundLoop::Collect() {
  Controller::Output output = controller_.Take();
  TellPeers(output.messages);
  for (const std::string& report : output.reports) {
    KR_LOG(kWarning) << report;
  }
  std::move(output.commands.begin(), output.commands.end(),
            std::back_inserter(commands_));
  if (output.clock && options_.clock_read) options_.clock_read(*output.clock);
  if (!output.aborted.ok()) {
    loss_heard_ = true;
    Abort(output.aborted, -1);
  }
}

void BackgroundLoop::CarryOut() {
  Collect();
  while (!commands_.empty() && !finished()) {
    Command command = std::move(commands_.front());
    commands_.pop_front();
    std::visit([this](auto&& one) { CarryOut(std::move(one)); },
               std::move(command));
  }
}

void BackgroundLoop::CarryOut(ExecuteCommand command) {
  Bucket bucket;
  bucket.decided = clock_.Now();
  if (!command.joined.Contains(rank_)) {
    const Status status = queue_.Take(command.items, rank_, bucket.entries);
    if (!status.ok()) {
      Abort(status.WithContext("rank " +
                               std::to_string(options_.ranks.Global(rank_)) +
                               " cannot go on with what was decided"),
            -1);
      commands_.clear();  // they come after what this rank cannot do
      return End(std::move(bucket.entries), status);
    }
    LastReady last = command.last;
    if (last.rank != LastReady::kNone) {
      last.rank = options_.ranks.Global(last.rank);
    }
    queue_.recorder().Decided(bucket.entries, command.sequence, last,
                              bucket.decided);
  }
  bucket.command = std::move(command);
  executor_.RunOrPush(std::move(bucket), keep_in_touch_);
}

void BackgroundLoop::CarryOut(FailCommand command) {
  for (const std::string& name : command.names) {
    End(queue_.TakeIfNegotiating(name), command.status);
  }
}

void BackgroundLoop::CarryOut(EndCommand command) {
  Finish(State::kDraining, command.status);
}

void BackgroundLoop::CarryOut(PlanCommand command) {
  queue_.SetPlan(command.buckets);
}

void BackgroundLoop::CarryOut(JoinCommand command) {
  if (!command.last_rank) return;
  for (TensorEntry& entry : queue_.TakeJoin()) {
    *static_cast<int32_t*>(entry.outputs.front()) = *command.last_rank;
    entry.completion.Fire(OkStatus());
  }
}

void BackgroundLoop::CarryOut(TuneCommand command) {
  executor_.Tune(std::move(command));
}

void BackgroundLoop::CarryOut(ReconfigureCommand command) {
  Finish(State::kDraining, command.status);
}

// A rank may be lost while its bucket runs, and others may depend on messages
// that this one passes on. New commands wait until the bucket has run.
void BackgroundLoop::PollControl() {
  const TimePoint now = clock_.Now();
  Listen(&now);
  HandleTimers();
  if (!finished()) Collect();
}

void BackgroundLoop::Abort(const Status& cause, int reported_by) {
  if (!options_.report_loss) return AbortAtOnce(cause, reported_by);
  if (state_ == State::kBroken || std::exchange(loss_reported_, true)) return;
  if (!options_.report_loss(cause)) AbortAtOnce(cause, reported_by);
}

void BackgroundLoop::AbortAtOnce(const Status& cause, int reported_by) {
  // After an agreed end, sets may still run.
  if (agreed()) AbortTheRest(cause, reported_by);
  if (finished()) return broken_.Tell(cause);
  TellCause(cause, reported_by);
  if (options_.ranks.is_job()) LogLoss(cause);
  // The records at the moment when the job broke.
  std::vector<FlightRecord> records = queue_.recorder().Records();
  // First of all, stops taking entries: code that learns of the end from the
  // executor must see it everywhere.
  Finish(State::kBroken, cause);
  executor_.Abort(options_.status_of_running ? options_.status_of_running(cause)
                                             : cause);
  broken_.Tell(cause);
  if (options_.broken) options_.broken(cause, std::move(records));
}

void BackgroundLoop::TellCause(const Status& cause, int reported_by) {
  TellPeers(controller_.AbortMessages(cause, reported_by));
  // Before the program learns of it, which may end at once.
  if (options_.death_watch != nullptr) options_.death_watch->Leave();
}

void BackgroundLoop::LogLoss(const Status& cause) const {
  // The launcher of a job that goes on says who is lost.
  const bool goes_on = options_.status_of_waiting != nullptr;
  const std::string text = "the job is broken: " + cause.message();
  if (goes_on || (loss_heard_ && !options_.repeats_loss)) {
    KR_LOG(kInfo) << text;
  } else {
    KR_LOG(kError) << text;
  }
}

void BackgroundLoop::AbortTheRest(const Status& cause, int reported_by) {
  if (state_ == State::kDrainAborted) return;
  state_ = State::kDrainAborted;
  TellCause(cause, reported_by);
  executor_.Abort(cause);
}

// From here on everything fails with `status`. What was decided before an
// agreed end still runs on the data thread: its peers count on it.
void BackgroundLoop::Finish(State state, const Status& status) {
  state_ = state;
  {
    MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  Status of_waiting = status;
  if (state == State::kBroken && options_.status_of_waiting) {
    of_waiting = options_.status_of_waiting(status);
  }
  End(queue_.Close(of_waiting), of_waiting);
}

void BackgroundLoop::End(std::vector<TensorEntry> entries,
                         const Status& status) {
  queue_.recorder().Ended(entries, status, clock_.Now());
  for (TensorEntry& entry : entries) entry.completion.Fire(status);
}

std::optional<TimePoint> BackgroundLoop::NextWakeUp() const {
  if (loss_reported_ || state_ == State::kBroken ||
      state_ == State::kDrainAborted) {
    return std::nullopt;
  }
  std::optional<TimePoint> next;
  if (!finished()) next = controller_.NextTimer();
  if (next) next = running_.Outside(*next);
  auto consider = [&next](TimePoint at) {
    if (!next || at < *next) next = at;
  };
  if (suspicion_due_) consider(*suspicion_due_);
  if (std::optional<TimePoint> release = queue_.NextRelease()) {
    consider(*release);
  }
  if (std::optional<TimePoint> look = contacts_.NextLook(has_left_)) {
    consider(*look);
  }
  return next;
}

}  // namespace keras_ring
