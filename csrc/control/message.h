// The messages of the control plane, as values and as bytes.
#ifndef KERAS_RING_CONTROL_MESSAGE_H_
#define KERAS_RING_CONTROL_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/control/clock_offset.h"
#include "csrc/control/decision.h"
#include "csrc/control/last_ready.h"
#include "csrc/control/rank_activity.h"
#include "csrc/control/request.h"

namespace keras_ring {

// Sent up: the whole subtree is ready with these names.
struct ReadyMessage {
  // Number of decisions the sender had applied.
  uint64_t sequence = 0;
  // Names that are in the cache, by slot; ascending.
  std::vector<uint64_t> slots;
  // Other names, and those for which the ranks below differ from the cache: for
  // each, the variants, which together cover the whole subtree.
  std::vector<std::vector<RequestVariant>> uncached;
  LastReady last;  // of the subtree, with all of these
};

// Sent up after the stall time: what waits below the sender, for the report.
struct WaitingMessage {
  // Number of decisions the sender had applied.
  uint64_t sequence = 0;
  struct Waiting {
    std::string label;
    std::string name;
    std::vector<int32_t> ranks;  // that have it
    // The time since the first of them asked for it, and since the last did. On
    // the wire in microseconds.
    Duration since_first = Duration::zero();
    Duration since_last = Duration::zero();
  };
  std::vector<Waiting> waiting;
};

// Sent up: a rank has shut down.
struct LeaveMessage {
  int32_t rank = 0;
  std::string reason;  // empty: its program came to its end
};

// Sent down: the next decisions.
struct DecisionMessage {
  std::vector<Decision> decisions;
};

// Sent both ways: a rank is lost or the job is broken; stop now.
struct AbortMessage {
  Status cause;
};

// Sent both ways when nothing else was sent for a while: still alive.
struct PingMessage {};

// Sent up: these ranks contribute nothing from now on, until all have joined.
// Everything that they asked for before is decided.
struct JoinMessage {
  std::vector<int32_t> ranks;  // ascending, not empty
};

// Sent both ways, as the last message after an agreed end: the sender has
// carried out all that was decided. A peer that goes without it was lost.
struct ByeMessage {};

// Sent down: others wait for these ranks. Asks what they are doing.
struct StallQuery {
  uint64_t question = 0;
  std::vector<int32_t> ranks;       // ascending, not empty
  std::vector<std::string> awaits;  // names that wait for some of them
};

// Sent up: the answer of one of them.
struct ActivityReply {
  uint64_t question = 0;
  int32_t rank = 0;
  RankActivity activity;
};

using Message =
    std::variant<ReadyMessage, WaitingMessage, LeaveMessage, DecisionMessage,
                 AbortMessage, PingMessage, JoinMessage, ByeMessage, StallQuery,
                 ActivityReply, ClockQuery, ClockReply>;

std::string EncodeMessage(const Message& message);
// `size`: of the job; ranks outside it make a message malformed. The error
// names the part of the message that is wrong.
Result<Message> DecodeMessage(std::string_view bytes, int size);

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_MESSAGE_H_
