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

// Up: "my whole subtree is ready with these".
struct ReadyMessage {
  // Number of decisions the sender had applied.
  uint64_t sequence = 0;
  // What the cache knows, by slot; ascending.
  std::vector<uint64_t> slots;
  // What it does not know, or where the ranks below differ from it: the
  // variants of one name, which together come from the whole subtree.
  std::vector<std::vector<RequestVariant>> uncached;
  LastReady last;  // of the subtree, with all of these
};

// Up, after the stall time: what waits below the sender, for the report.
struct WaitingMessage {
  // Number of decisions the sender had applied.
  uint64_t sequence = 0;
  struct Waiting {
    std::string label;
    std::string name;
    std::vector<int32_t> ranks;  // that have it
    // Since the first of them asked for it, and since the last did. On the
    // wire in microseconds.
    Duration since_first = Duration::zero();
    Duration since_last = Duration::zero();
  };
  std::vector<Waiting> waiting;
};

// Up: a rank has shut down.
struct LeaveMessage {
  int32_t rank = 0;
  std::string reason;  // empty: its program came to its end
};

// Down: the next decisions.
struct DecisionMessage {
  std::vector<Decision> decisions;
};

// Both ways: a rank is lost or the job is broken; stop now.
struct AbortMessage {
  Status cause;
};

// Both ways, when nothing else was said for a while: still here.
struct PingMessage {};

// Up: these ranks bring nothing from now on, until all have said so. All that
// they asked for before is decided.
struct JoinMessage {
  std::vector<int32_t> ranks;  // ascending, not empty
};

// Both ways, the last word after an agreed end: the sender has carried out all
// that was decided. Who goes without it was lost.
struct ByeMessage {};

// Down: others wait for these ranks. What do they do?
struct StallQuery {
  uint64_t question = 0;
  std::vector<int32_t> ranks;       // ascending, not empty
  std::vector<std::string> awaits;  // names that wait for some of them
};

// Up: the answer of one of them.
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
// `size`: of the job; ranks outside it are malformed. The error says which
// part of which message is wrong.
Result<Message> DecodeMessage(std::string_view bytes, int size);

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_MESSAGE_H_
