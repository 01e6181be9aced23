// The controller, its queue and the bucket gate, with peers that say anything.
// It may end the job with an error; it may do nothing else that is wrong.
#include <algorithm>
#include <deque>

#include "csrc/control/bucket_gate.h"
#include "csrc/control/controller.h"
#include "csrc/control/tensor_queue.h"
#include "tests/fuzz/controller_script.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_limits.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

class Rank {
 public:
  Rank(int rank, int capacity)
      : rank_(rank),
        capacity_(capacity),
        requests_(ScriptRequests(rank)),
        peers_(ScriptTree(rank).Peers()),
        controller_(ScriptTree(rank), ScriptOptions(capacity), clock_,
                    counters_) {}

  ~Rank() {
    for (TensorEntry& entry : queue_.Close(CancelledError("over"))) {
      entry.completion.Fire(CancelledError("over"));
    }
    // Each operation ends exactly once: Completion checks the rest.
    KR_CHECK(finished_ == submitted_);
  }

  // False once the job is over.
  bool Step(Script& script) {
    const int what = script.Byte();
    if (!Do(static_cast<ScriptStep>((what & ~kScriptHold) % kNumScriptSteps),
            script)) {
      for (const auto& [peer, message] :
           controller_.AbortMessages(InternalError("broken"), -1)) {
        CheckOutput(peer, message);
      }
      return false;
    }
    return (what & kScriptHold) != 0 || Collect();
  }

 private:
  bool Do(ScriptStep step, Script& script) {
    switch (step) {
      case ScriptStep::kSubmit:
        Submit(requests_[script.Choice(static_cast<int>(requests_.size()))]);
        return true;
      case ScriptStep::kMessage: {
        const int peer = script.Choice(kScriptSize + 1) - 1;
        const Status status = controller_.OnMessage(peer, script.Text());
        KR_CHECK(status.ok() || status.code() == StatusCode::kInternal);
        return status.ok();
      }
      case ScriptStep::kTimer:
        clock_.Advance(script.Byte() * std::chrono::milliseconds(100));
        controller_.OnTimer();
        (void)controller_.NextTimer();
        return true;
      case ScriptStep::kExecuted:
        if (unexecuted_ == 0) return true;
        --unexecuted_;
        controller_.OnLaunched(1);
        return true;
      case ScriptStep::kLeave:
        controller_.Leave(std::string(script.Text()));
        return true;
      case ScriptStep::kJoin:
        Join();
        return true;
    }
    return true;
  }

  // As the queue does it: when all that was asked for before is through.
  void Join() {
    if (joined_ || queue_.size() > 0) return;
    joined_ = true;
    auto request = std::make_shared<Request>();
    request->name = "join";
    request->kind = RequestKind::kJoin;
    controller_.Submit(request);
  }

  void Submit(const RequestPtr& request) {
    if (joined_) return;
    TensorEntry entry;
    entry.request = request;
    entry.completion = Completion([this](const Status&) { ++finished_; });
    // An error: the name is in flight.
    if (!queue_.Add(std::move(entry)).ok()) return;
    ++submitted_;
    std::vector<RequestPtr> popped;
    queue_.PopRequests(popped);
    for (const RequestPtr& each : popped) controller_.Submit(each);
  }

  bool Collect() {
    Controller::Output output = controller_.Take();
    for (const auto& [peer, message] : output.messages) {
      CheckOutput(peer, message);
    }
    for (const Command& command : output.commands) {
      KR_CHECK(SequenceOf(command) == ++sequence_);
      if (!CarryOut(command)) return false;
    }
    KR_CHECK(controller_.sequence() == sequence_);
    KR_CHECK(controller_.cache().size() <= static_cast<size_t>(capacity_));
    return output.aborted.ok();
  }

  // What this rank says, its peers must be able to read.
  void CheckOutput(int peer, const std::string& bytes) const {
    KR_CHECK(std::find(peers_.begin(), peers_.end(), peer) != peers_.end());
    Result<Message> message = DecodeMessage(bytes, kScriptSize);
    KR_CHECK(message.ok());
    CheckLimits(*message, kScriptSize);
  }

  // Whether the job goes on.
  bool CarryOut(const Command& command) {
    return std::visit([this](const auto& one) { return CarryOut(one); },
                      command);
  }
  bool CarryOut(const ExecuteCommand& command) {
    ++unexecuted_;
    KR_CHECK(!command.items.empty());
    // After its join, this rank has nothing to take.
    if (command.joined.Contains(rank_)) return true;
    std::vector<TensorEntry> entries;
    const Status status = queue_.Take(command.items, rank_, entries);
    for (size_t i = 0; i < entries.size(); ++i) {
      CheckLimits(*command.items[i], kScriptSize);
      KR_CHECK(entries[i].request->name == command.items[i]->request.name);
      KR_CHECK(entries[i].request->kind == command.items[0]->request.kind);
      entries[i].completion.Fire(status);
    }
    return status.ok();
  }
  bool CarryOut(const FailCommand& command) {
    KR_CHECK(!command.status.ok());
    for (const std::string& name : command.names) {
      for (TensorEntry& entry : queue_.TakeIfNegotiating(name)) {
        entry.completion.Fire(command.status);
      }
    }
    return true;
  }
  bool CarryOut(const EndCommand& command) {
    KR_CHECK(!command.status.ok());
    return false;
  }
  bool CarryOut(const PlanCommand& command) {
    CheckPlan(command.buckets);
    return true;
  }
  bool CarryOut(const JoinCommand& command) {
    if (!command.last_rank) return true;
    KR_CHECK(*command.last_rank >= 0 && *command.last_rank < kScriptSize);
    joined_ = false;
    return true;
  }
  bool CarryOut(const TuneCommand& command) {
    KR_CHECK(command.value >= 0 && command.value <= kMaxTunedValue);
    return true;
  }
  bool CarryOut(const ReconfigureCommand& command) {
    KR_CHECK(!command.status.ok());
    return false;
  }

  // A gate of its own: that of the queue goes by the real time.
  void CheckPlan(const std::vector<std::vector<std::string>>& plan) {
    BucketGate gate;
    std::vector<RequestPtr> released;
    gate.SetPlan(plan, released);
    for (int round = 0; round < 3; ++round) {
      for (const RequestPtr& request : requests_) {
        gate.Add(request, clock_.Now(), released);
      }
    }
    gate.ReleaseDue(clock_.Now() + BucketGate::kMaxHold, released);
    KR_CHECK(!gate.holds() && !gate.NextRelease());
    KR_CHECK(released.size() == 3 * requests_.size());
  }

  const int rank_;
  const int capacity_;
  const std::vector<RequestPtr> requests_;
  const std::vector<int> peers_;
  ManualClock clock_;
  Counters counters_;
  Controller controller_;
  TensorQueue queue_{[] {}};
  uint64_t sequence_ = 0;
  int unexecuted_ = 0;
  bool joined_ = false;
  int submitted_ = 0;
  int finished_ = 0;
};

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace keras_ring;
  Script script(AsText(data, size));
  const int rank = kScriptPlaces[script.Choice(kNumScriptPlaces)];
  const int capacity =
      kScriptCacheCapacities[script.Choice(kNumScriptCacheCapacities)];
  Rank one(rank, capacity);
  while (!script.AtEnd() && one.Step(script)) {
  }
  return 0;
}
