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
      running_(running) {}

BackgroundLoop::~BackgroundLoop() { KR_CHECK(!thread_.joinable()); }

Status BackgroundLoop::Start(ControlTree tree) {
  const TimePoint now = clock_.Now();
  for (int peer : tree.Peers()) peers_[peer] = {now, now};
  for (int peer : tree.deputies) peers_.at(peer).is_deputy = true;
  (void)running_.Skip();  // the time before
  KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-loop", [this] {
                        SetThreadName("kr-loop", options_.ranks.number());
                        Run();
                      }));
  return OkStatus();
}

void BackgroundLoop::OnLaunched() {
  ++launched_;
  channel_.Wake();
}

void BackgroundLoop::OnDataFailure(const Status& status) {
  {
    MutexLock lock(mutex_);
    suspicion_ = status;
  }
  channel_.Wake();
}

void BackgroundLoop::OnDeath(int rank) {
  {
    MutexLock lock(mutex_);
    deaths_.push_back(rank);
  }
  channel_.Wake();
}

void BackgroundLoop::Tune(Tunable tunable, int64_t value) {
  {
    MutexLock lock(mutex_);
    tuned_.push_back({tunable, value});
  }
  channel_.Wake();
}

void BackgroundLoop::HandleTuned() {
  std::vector<TuneDecision> tuned;
  {
    MutexLock lock(mutex_);
    tuned.swap(tuned_);
  }
  if (finished()) return;
  for (const TuneDecision& one : tuned) {
    controller_.Tune(one.tunable, one.value);
  }
}

void BackgroundLoop::Break(const Status& cause) {
  {
    MutexLock lock(mutex_);
    if (break_.ok()) break_ = cause;
  }
  channel_.Wake();
}

void BackgroundLoop::SetBrokenListener(
    std::function<void(const Status&)> listener) {
  Status told;
  {
    MutexLock lock(mutex_);
    broken_listener_ = listener;
    told = notified_failure_;
  }
  if (listener && !told.ok()) listener(told);
}

void BackgroundLoop::TellBroken(const Status& cause) {
  std::function<void(const Status&)> listener;
  {
    MutexLock lock(mutex_);
    if (!notified_failure_.ok()) return;
    notified_failure_ = cause;
    listener = broken_listener_;
  }
  if (listener) listener(cause);
}

Status BackgroundLoop::status() const {
  MutexLock lock(mutex_);
  return status_;
}

void BackgroundLoop::Leave(const std::string& reason, Deadline deadline) {
  {
    MutexLock lock(mutex_);
    if (!leaving_) leaving_ = reason;
  }
  channel_.Wake();
  bool agreed;
  {
    MutexLock lock(mutex_);
    agreed = changed_.WaitUntil(mutex_, deadline.at(),
                                [this]() KR_REQUIRES(mutex_) { return over_; });
  }
  if (!agreed) {
    KR_LOG(kWarning) << "the end of " << options_.ranks.Text()
                     << " was not agreed on in time; leaving anyway";
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
    // In this order, so that what was asked for upon a result comes after it.
    controller_.OnLaunched(launched_.exchange(0));
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
  for (const auto& [peer, message] : messages) {
    channel_.Send(peer, message);
    peers_.at(peer).spoken = clock_.Now();
  }
}

void BackgroundLoop::Listen(const TimePoint* until) {
  std::vector<int> deaths = TakeDeaths();
  const TimePoint now = clock_.Now();
  const std::vector<MessageChannel::Event> events =
      Poll(deaths.empty() ? until : &now);
  for (const MessageChannel::Event& event : events) HandleEvent(event);
  // What the dead have said comes first: it may be why they ended. They had
  // said it before this look, and it may take several to hear all.
  for (int rank : deaths) {
    const bool heard = std::any_of(events.begin(), events.end(),
                                   [rank](const MessageChannel::Event& event) {
                                     return event.peer == rank;
                                   });
    heard ? OnDeath(rank) : HandleDeath(rank);
  }
}

std::vector<int> BackgroundLoop::TakeDeaths() {
  MutexLock lock(mutex_);
  return std::exchange(deaths_, {});
}

void BackgroundLoop::HandleEvent(const MessageChannel::Event& event) {
  if (event.kind == MessageChannel::Event::Kind::kClosed) {
    return HandleClosed(event.peer, event.status);
  }
  // After an agreed end a peer may still say that it leaves, or who was lost.
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
  // First what it said before: it may have left because of another.
  Collect();
  // In shared memory it is marked before this rank gives up its collective:
  // who waits for this one then blames the other.
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
         (agreed() || EndIsNext() || peers_.at(peer).is_deputy);
}

void BackgroundLoop::HandleTimers() {
  const TimePoint now = running_.Outside(running_.Now());
  bool leave_now = false;
  std::string reason;
  Status suspicion, broken;
  {
    MutexLock lock(mutex_);
    leave_now = leaving_.has_value() && !leave_sent_;
    if (leave_now) reason = *leaving_;
    suspicion = suspicion_;
    broken = break_;
  }
  if (!broken.ok()) AbortAtOnce(broken, -1);
  if (finished()) {
    // A peer may go, or stop, before the last bucket is through.
    if (agreed()) HandleSuspicion(suspicion, now);
    if (state_ == State::kDraining) Heartbeat(now);
    return;
  }
  if (leave_now) {
    leave_sent_ = true;
    controller_.Leave(reason);
  }
  if (loss_reported_) return;  // the job's word comes next
  HandleSuspicion(suspicion, now);
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
  // A loop that watches nobody sleeps for any time.
  if (until == nullptr || peers_.empty()) {
    (void)running_.Skip();
  } else if (const Duration lost = running_.Look(); lost > Duration::zero()) {
    Pardon(lost);
  }
  return events;
}

// What was lost does not count. Where that is long, this process was stopped,
// and most likely the whole job: the others go on somewhat later, perhaps one
// after the other, so they have all of the time again. Where it is short, the
// processor was busy, and a peer that is gone must be found all the same.
void BackgroundLoop::Pardon(Duration lost) {
  const TimePoint now = clock_.Now();
  const bool stopped = lost >= options_.heartbeat_timeout / 3;
  for (auto& [peer, contact] : peers_) {
    contact.silent_since =
        stopped ? now : std::min(now, SilentSince(peer, contact) + lost);
  }
  if (stopped && options_.ranks.is_job()) {
    KR_LOG(kInfo)
        << "this process did not run for some "
        << std::chrono::duration_cast<std::chrono::seconds>(lost).count()
        << " s; it waits for the other ranks anew";
  }
}

TimePoint BackgroundLoop::SilentSince(int peer, const Contact& contact) const {
  return std::max(contact.silent_since, channel_.LastHeard(peer));
}

void BackgroundLoop::Heartbeat(TimePoint now) {
  static const std::string ping = EncodeMessage(PingMessage{});
  for (auto& [peer, contact] : peers_) {
    if (HasLeft(peer)) continue;
    if (now - SilentSince(peer, contact) >= options_.heartbeat_timeout) {
      std::ostringstream seconds;
      seconds
          << std::chrono::duration<double>(options_.heartbeat_timeout).count();
      Abort(UnavailableError(
                "lost " + options_.describe_peer(peer) +
                ": nothing was heard from it for " + seconds.str() +
                " s (KERAS_RING_HEARTBEAT_TIMEOUT); its process is stopped or "
                "its host or network is gone"),
            peer);
      return;
    }
    if (now - contact.spoken >= LongestSleep(options_.heartbeat_timeout)) {
      channel_.Send(peer, ping);
      contact.spoken = now;
    }
  }
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

// A rank may be lost while its bucket runs, and others may depend on what this
// one passes on. New commands wait their turn.
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
  if (finished()) return TellBroken(cause);
  TellCause(cause, reported_by);
  if (options_.ranks.is_job()) LogLoss(cause);
  // As things stood when it happened.
  std::vector<FlightRecord> records = queue_.recorder().Records();
  // First of all nothing new is taken: whoever hears of the end from the
  // executor must find it everywhere.
  Finish(State::kBroken, cause);
  executor_.Abort(cause);
  TellBroken(cause);
  if (options_.broken) options_.broken(cause, std::move(records));
}

void BackgroundLoop::TellCause(const Status& cause, int reported_by) {
  TellPeers(controller_.AbortMessages(cause, reported_by));
  // Before the program learns of it, which may end at once.
  if (options_.death_watch != nullptr) options_.death_watch->Leave();
}

void BackgroundLoop::LogLoss(const Status& cause) const {
  const std::string text = "the job is broken: " + cause.message();
  if (loss_heard_ && !options_.repeats_loss) {
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
  End(queue_.Close(status), status);
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
  for (const auto& [peer, contact] : peers_) {
    if (HasLeft(peer)) continue;
    consider(SilentSince(peer, contact) + options_.heartbeat_timeout);
    consider(contact.spoken + LongestSleep(options_.heartbeat_timeout));
  }
  return next;
}

}  // namespace keras_ring
