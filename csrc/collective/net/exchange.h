// Exchange schedules: reductions in which each rank talks to every other one.
//
// Nomenclature. The elements of a bucket are one *row*. A *step* is what one
// rank folds at a time: it takes a range of the row from all ranks, in the
// order of the ranks, so that sums do not depend on timing, and values of 16
// bits travel as such: nobody sends a partial sum. A *block* is what travels
// from one rank to another for one step: *values*, which the other one folds,
// or the *result* of a fold.
//
//   one shot   everybody sends all of the row to everybody and folds all of it:
//              one hop; n - 1 times the row leaves each rank
//   two shots  each rank folds one part of the row and sends the result to the
//              others (a pairwise reduce-scatter and allgather): two hops;
//              2 (n - 1) / n times the row, which is the least possible
//   by chunks  the same for each of some ranges of the row in turn, the first
//              of which is exchanged while the next is not there yet; and only
//              the *owners*, the first ranks of the group, need fold
//   by ranges  by chunks, where not all ranks have values of all, or want all
//              results
//
// Between two ranks they move the same bytes, so that one shot is better.
//
// Order. Each stream carries its blocks in an order that both ends know: the
// values of `lag` steps, then by turns a result and the values of a further
// step. A rank reads the values of a step only once it has folded those of the
// step `lag` before, so that `lag` pieces of memory for each peer suffice.
//
// Why it cannot come to a standstill. What is needed to fold step s on any rank
// are values of step s and, before them in the streams, values of earlier steps
// and results of steps up to s - lag; and these are there, by induction, since
// all ranks have folded the steps up to s - lag. The result of step s follows
// the values of steps up to s + lag - 1, which may be read once s - 1 is
// folded.
//
// All functions here are pure: from place, size and lag to lists.
#ifndef KERAS_RING_COLLECTIVE_NET_EXCHANGE_H_
#define KERAS_RING_COLLECTIVE_NET_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "csrc/collective/spans.h"

namespace keras_ring {

struct ExchangeBlock {
  enum class Kind : uint8_t { kValues, kResult };
  Kind kind = Kind::kValues;
  int64_t step = 0;  // that folds the values, or whose result it is
  Range range;       // of the row; may be empty
};

// The part of one rank.
struct ExchangeSchedule {
  int rank = 0;
  int size = 1;
  int64_t lag = 1;
  // if true, the same values go to all
  bool one_shot = false;
  // if true, fold results go to all
  bool has_results = false;
  // The range that this rank folds, by step.
  std::vector<Range> folds;
  // The range that all ranks fold together, by step, if it is contiguous for
  // each step; else empty.
  std::vector<Range> covers;
  // Every other rank, and the blocks that go to it and come from it: values of
  // a part of what the receiver folds, results of a part of what the sender
  // folds. Each rank begins with its successor, so that not all of them talk to
  // the same rank.
  std::vector<int> peers;
  std::vector<std::vector<ExchangeBlock>> sends;     // by peer
  std::vector<std::vector<ExchangeBlock>> receives;  // by peer

  // The most elements of a block, and of a cover.
  int64_t max_block() const;
  int64_t max_cover() const;
};

struct ExchangeShape {
  int rank = 0;
  int size = 1;
  int64_t max_step = 1;  // elements of a step, at most
  int64_t lag = 1;
};

// For a row of `count` elements.
ExchangeSchedule PlanOneShot(const ExchangeShape& shape, int64_t count);
ExchangeSchedule PlanTwoShots(const ExchangeShape& shape, int64_t count);
// Chunk after chunk, each of which is a step, in one shot. Ignores `max_step`.
ExchangeSchedule PlanChunksOneShot(const ExchangeShape& shape,
                                   const std::vector<Range>& chunks);
// The same in two shots. Ranks from `owners` on fold nothing.
ExchangeSchedule PlanChunksTwoShots(const ExchangeShape& shape,
                                    const std::vector<Range>& chunks,
                                    int owners);
// The parts of each chunk that move, equal on all ranks: parts of chunks[step].
struct ExchangeRanges {
  // The part that `rank` folds.
  std::function<Range(int rank, int64_t step)> folds;
  // The part of what `to` folds for which `from` has values.
  std::function<Range(int from, int to, int64_t step)> values;
  // The part of what `from` folds whose results `to` gets. Null: no rank gets
  // any.
  std::function<Range(int from, int to, int64_t step)> results;
};
ExchangeSchedule PlanChunks(const ExchangeShape& shape,
                            const std::vector<Range>& chunks,
                            const ExchangeRanges& ranges);
// Returns the part that rank `rank` folds of a chunk of which the first
// `owners` ranks fold a part each.
Range OwnedPart(const Range& chunk, int rank, int owners);
// Only the first of the two shots: rank r folds parts[r] of the row, and keeps
// the result.
ExchangeSchedule PlanReduceScatter(const ExchangeShape& shape,
                                   const std::vector<Range>& parts);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_EXCHANGE_H_
