// SlotStreams: streams of bytes between the ranks of a host, through slots of
// memory that each rank writes and all read.
//
// Each rank has a stream of bytes, which goes through its slots chunk by chunk;
// the others take what they want of it:
//
//   pack(i), take(i - 1)    or, of slots for one chunk, take(i)
//
// pack(i) overwrites what the others took of the chunk that was in the slot
// before: kReduced of it.
#ifndef KERAS_RING_COLLECTIVE_SHM_SLOT_STREAMS_H_
#define KERAS_RING_COLLECTIVE_SHM_SLOT_STREAMS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "csrc/base/meter.h"
#include "csrc/base/round.h"
#include "csrc/base/status.h"
#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

struct SlotStreams {
  ChunkBarrier& barrier;
  const Meter& meter;
  int size = 1;  // ranks of the host
  int local_rank = 0;
  int64_t slot_bytes = 0;
  uint64_t depth = 1;  // slots of a rank
  std::function<char*(int local_rank, uint64_t chunk)> slot;

  // Waits until no rank reads the current contents of this rank's slot for
  // `chunk`.
  Status AwaitSlot(uint64_t chunk) const {
    return chunk > depth ? barrier.AwaitAll(Phase::kReduced, chunk - depth)
                         : OkStatus();
  }

  // stream_bytes[local_rank] is the length of a stream. give(to, range) packs a
  // part of this rank's stream; take(local_rank, data, range) gets a part of
  // another's. Both are called in stream order. Numbers its chunks from
  // `next_chunk`.
  template <typename Give, typename Take>
  Status Move(const std::vector<int64_t>& stream_bytes, uint64_t& next_chunk,
              const Give& give, const Take& take) const {
    const int64_t longest =
        *std::max_element(stream_bytes.begin(), stream_bytes.end());
    const int64_t chunks = size == 1 ? 0 : DivideUp(longest, slot_bytes);
    const auto chunk_of = [&](int of, int64_t i) {
      return Range{std::min(i * slot_bytes, stream_bytes[of]),
                   std::min((i + 1) * slot_bytes, stream_bytes[of])};
    };
    const uint64_t first = next_chunk;
    next_chunk += chunks;
    const int64_t lag = depth > 1 ? 1 : 0;
    for (int64_t i = 0; i < chunks + lag; ++i) {
      if (i < chunks) {
        const uint64_t number = first + i;
        const Range own = chunk_of(local_rank, i);
        KR_RETURN_IF_ERROR(AwaitSlot(number));
        const TimedPhase time(meter, TracePhase::kPack, barrier.tag());
        if (own.count() > 0) give(slot(local_rank, number), own);
        barrier.Publish(Phase::kPacked, number);
      }
      if (i >= lag) {
        const uint64_t number = first + i - lag;
        for (int k = 1; k < size; ++k) {
          const int from = (local_rank + k) % size;
          const Range range = chunk_of(from, i - lag);
          if (range.count() == 0) continue;
          KR_RETURN_IF_ERROR(barrier.Await(from, Phase::kPacked, number));
          const TimedPhase time(meter, TracePhase::kUnpack, barrier.tag());
          take(from, slot(from, number), range);
        }
        barrier.Publish(Phase::kReduced, number);
      }
    }
    return OkStatus();
  }
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SHM_SLOT_STREAMS_H_
