// What a decoded message of the control plane is known to obey.
#ifndef KERAS_RING_TESTS_FUZZ_MESSAGE_LIMITS_H_
#define KERAS_RING_TESTS_FUZZ_MESSAGE_LIMITS_H_

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

#include "csrc/control/message.h"

namespace keras_ring {

inline constexpr size_t kMaxSlots = 1 << 22;

inline void CheckLimits(const Request& request) {
  KR_CHECK(request.name.size() <= kMaxNameBytes);
  KR_CHECK(static_cast<int>(request.kind) < kNumRequestKinds);
  KR_CHECK(request.tensors.empty() == (request.kind == RequestKind::kBarrier));
  for (const TensorSpec& spec : request.tensors) {
    KR_CHECK(spec.shape.size() <= kMaxTensorRank);
    // UBSAN would tell of a product that overflows.
    KR_CHECK(spec.num_bytes() >= 0);
  }
  KR_CHECK(request.num_bytes() >= 0);
  KR_CHECK(!request.Label().empty());
}

template <typename Number>
void CheckAscending(const std::vector<Number>& numbers) {
  KR_CHECK(std::adjacent_find(numbers.begin(), numbers.end(),
                              std::greater_equal<Number>()) == numbers.end());
}

inline void CheckRanks(const std::vector<int32_t>& ranks, int size) {
  KR_CHECK(!ranks.empty() && ranks.front() >= 0 && ranks.back() < size);
  CheckAscending(ranks);
}

// As Executor reckons.
inline void CheckLimits(const Response& agreed, int size) {
  CheckLimits(agreed.request);
  if (agreed.rows.empty()) {
    KR_CHECK(!TakesAnyRows(agreed.request.kind));
    return;
  }
  const size_t tensors = agreed.request.tensors.size();
  KR_CHECK(agreed.rows.size() == tensors * size);
  for (size_t i = 0; i < tensors; ++i) {
    TensorSpec row = agreed.request.tensors[i];
    row.shape.front() = 1;
    int64_t bytes = 0;
    for (int64_t rows : agreed.RowsOf(i)) {
      bytes += rows * row.num_bytes();
      KR_CHECK(rows >= 0 && bytes >= 0);
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    KR_CHECK(agreed.RequestOf(rank).num_bytes() >= 0);
  }
  if (agreed.request.kind != RequestKind::kAlltoall) return;
  KR_CHECK(agreed.splits.size() == static_cast<size_t>(size));
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      KR_CHECK(agreed.RowsBetween(from, to) >= 0);
    }
  }
}

inline void CheckLimits(const LastReady& last, int size) {
  KR_CHECK(last.late.count() >= 0);
  KR_CHECK(last.rank == LastReady::kNone ? last.late.count() == 0
                                         : last.rank >= 0 && last.rank < size);
}

inline void CheckLimits(const ReadyMessage& message, int size) {
  CheckLimits(message.last, size);
  CheckAscending(message.slots);
  KR_CHECK(message.slots.size() <= kMaxSlots);
  for (const std::vector<RequestVariant>& variants : message.uncached) {
    KR_CHECK(!variants.empty());
    for (const RequestVariant& variant : variants) {
      CheckLimits(variant.request);
      CheckRanks(variant.ranks, size);
      KR_CHECK(IsWhole(variant));
      KR_CHECK(variant.request.name == variants.front().request.name);
    }
  }
}

inline void CheckLimits(const WaitingMessage& message, int size) {
  for (const WaitingMessage::Waiting& waiting : message.waiting) {
    KR_CHECK(waiting.name.size() <= kMaxNameBytes);
    CheckRanks(waiting.ranks, size);
  }
}

inline void CheckLimits(const LeaveMessage& message, int size) {
  KR_CHECK(message.rank >= 0 && message.rank < size);
}

// The checks of a decision; return how many slots are in it.
inline size_t CheckDecision(const ExecuteDecision& decision, int size) {
  CheckLimits(decision.last, size);
  CheckAscending(decision.slots);
  for (const auto& agreed : decision.uncached) CheckLimits(*agreed, size);
  return decision.slots.size();
}
inline size_t CheckDecision(const FailDecision& decision, int) {
  for (const auto& name : decision.names) {
    KR_CHECK(name.size() <= kMaxNameBytes);
  }
  KR_CHECK(!decision.status.ok());
  return 0;
}
inline size_t CheckDecision(const EndDecision& decision, int) {
  KR_CHECK(!decision.status.ok());
  return 0;
}
inline size_t CheckDecision(const PlanDecision& decision, int) {
  size_t slots = 0;
  for (const auto& bucket : decision.plan) {
    slots += bucket.size();
    CheckAscending(bucket);
  }
  return slots;
}
inline size_t CheckDecision(const JoinDecision& decision, int size) {
  CheckRanks(decision.ranks, size);
  return 0;
}
inline size_t CheckDecision(const TuneDecision& decision, int) {
  KR_CHECK(static_cast<int>(decision.tunable) < kNumTunables);
  KR_CHECK(decision.value >= 0 && decision.value <= kMaxTunedValue);
  return 0;
}
inline size_t CheckDecision(const ReconfigureDecision&, int) { return 0; }

inline void CheckLimits(const DecisionMessage& message, int size) {
  size_t slots = 0;
  for (const Decision& decision : message.decisions) {
    slots += std::visit(
        [size](const auto& one) { return CheckDecision(one, size); }, decision);
  }
  KR_CHECK(slots <= kMaxSlots);
}

inline void CheckLimits(const AbortMessage& message, int) {
  KR_CHECK(!message.cause.ok());
}

inline void CheckLimits(const PingMessage&, int) {}
inline void CheckLimits(const ClockQuery&, int) {}
inline void CheckLimits(const ClockReply& message, int) {
  KR_CHECK(message.error_ns >= 0);
}

inline void CheckLimits(const JoinMessage& message, int size) {
  CheckRanks(message.ranks, size);
}

inline void CheckLimits(const ByeMessage&, int) {}

inline void CheckNames(const std::vector<std::string>& names) {
  KR_CHECK(names.size() <= kMaxActivityNames);
  for (const auto& name : names) KR_CHECK(name.size() <= kMaxNameBytes);
}

inline void CheckLimits(const StallQuery& message, int size) {
  CheckRanks(message.ranks, size);
  CheckNames(message.awaits);
}

inline void CheckLimits(const ActivityReply& message, int size) {
  KR_CHECK(message.rank >= 0 && message.rank < size);
  KR_CHECK(message.activity.text.size() <= kMaxActivityBytes);
  CheckNames(message.activity.waits);
  KR_CHECK(message.activity.knows.size() <= kMaxActivityNames);
}

// A template, which no message without a check of its own converts to.
template <typename Any, std::enable_if_t<std::is_same_v<Any, Message>, int> = 0>
void CheckLimits(const Any& message, int size) {
  std::visit([size](const auto& body) { CheckLimits(body, size); }, message);
}

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_FUZZ_MESSAGE_LIMITS_H_
