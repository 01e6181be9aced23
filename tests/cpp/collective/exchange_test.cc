#include "csrc/collective/net/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/collective/kernels/kernels.h"
#include "csrc/collective/net/exchange_run.h"
#include "csrc/collective/net/levels.h"
#include "csrc/collective/net/levels_run.h"
#include "csrc/testing/plan_simulation.h"

namespace keras_ring {
namespace {

using Block = ExchangeBlock;
using Schedules = std::vector<ExchangeSchedule>;

template <typename Planner>
Schedules OfAllRanks(int size, int64_t max_step, int64_t lag,
                     const Planner& plan) {
  Schedules schedules;
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(plan(ExchangeShape{rank, size, max_step, lag}));
  }
  return schedules;
}

bool Same(const Block& a, const Block& b) {
  return a.kind == b.kind && a.step == b.step &&
         a.range.begin == b.range.begin && a.range.end == b.range.end;
}

// What goes out at one end is what is expected at the other, in that order.
void ExpectEndsAgree(const Schedules& schedules) {
  const int size = static_cast<int>(schedules.size());
  for (const ExchangeSchedule& from : schedules) {
    ASSERT_EQ(from.peers.size(), static_cast<size_t>(size - 1));
    for (size_t k = 0; k < from.peers.size(); ++k) {
      const ExchangeSchedule& to = schedules[from.peers[k]];
      const size_t back =
          std::find(to.peers.begin(), to.peers.end(), from.rank) -
          to.peers.begin();
      ASSERT_LT(back, to.peers.size());
      ASSERT_EQ(from.sends[k].size(), to.receives[back].size());
      for (size_t b = 0; b < from.sends[k].size(); ++b) {
        EXPECT_TRUE(Same(from.sends[k][b], to.receives[back][b]));
      }
    }
  }
}

// Each fold of `rank` finds the values of all peers for its range.
void ExpectValuesForEachFold(const ExchangeSchedule& schedule) {
  for (const auto& blocks : schedule.receives) {
    size_t step = 0;
    for (const Block& block : blocks) {
      if (block.kind != Block::Kind::kValues) continue;
      ASSERT_LT(step, schedule.folds.size());
      EXPECT_EQ(block.step, static_cast<int64_t>(step));
      EXPECT_EQ(block.range.begin, schedule.folds[step].begin);
      EXPECT_EQ(block.range.end, schedule.folds[step].end);
      ++step;
    }
    EXPECT_EQ(step, schedule.folds.size());
  }
}

int64_t ElementsSent(const ExchangeSchedule& schedule) {
  int64_t sum = 0;
  for (const auto& blocks : schedule.sends) {
    for (const Block& block : blocks) sum += block.range.count();
  }
  return sum;
}

class ExchangeScheduleTest
    : public testing::TestWithParam<std::tuple<int, int64_t, int64_t>> {};

TEST_P(ExchangeScheduleTest, OneShot) {
  const auto [size, count, max_step] = GetParam();
  const int64_t elements = count;
  const Schedules schedules =
      OfAllRanks(size, max_step, 3, [elements](const ExchangeShape& shape) {
        return PlanOneShot(shape, elements);
      });
  ExpectEndsAgree(schedules);
  for (const ExchangeSchedule& schedule : schedules) {
    ExpectValuesForEachFold(schedule);
    int64_t end = 0;
    for (const Range& fold : schedule.folds) {
      EXPECT_EQ(fold.begin, end);
      EXPECT_LE(fold.count(), max_step);
      end = fold.end;
    }
    EXPECT_EQ(end, count);
    EXPECT_EQ(ElementsSent(schedule), (size - 1) * count);
  }
}

TEST_P(ExchangeScheduleTest, TwoShots) {
  const auto [size, count, max_step] = GetParam();
  const int64_t elements = count;
  const Schedules schedules =
      OfAllRanks(size, max_step, 3, [elements](const ExchangeShape& shape) {
        return PlanTwoShots(shape, elements);
      });
  ExpectEndsAgree(schedules);
  // Each element is folded by one rank, and its result goes to all others.
  std::vector<int> folded(count);
  std::vector<std::vector<int>> results(size, std::vector<int>(count));
  int64_t sent = 0;
  for (const ExchangeSchedule& schedule : schedules) {
    ExpectValuesForEachFold(schedule);
    for (const Range& fold : schedule.folds) {
      for (int64_t i = fold.begin; i < fold.end; ++i) ++folded[i];
    }
    for (const auto& blocks : schedule.receives) {
      for (const Block& block : blocks) {
        if (block.kind != Block::Kind::kResult) continue;
        for (int64_t i = block.range.begin; i < block.range.end; ++i) {
          ++results[schedule.rank][i];
        }
      }
    }
    sent += ElementsSent(schedule);
  }
  EXPECT_EQ(folded, std::vector<int>(count, 1));
  for (const ExchangeSchedule& schedule : schedules) {
    std::vector<int> expected(count, 1);
    for (const Range& fold : schedule.folds) {
      for (int64_t i = fold.begin; i < fold.end; ++i) expected[i] = 0;
    }
    EXPECT_EQ(results[schedule.rank], expected);
  }
  EXPECT_EQ(sent, 2 * (size - 1) * count);
}

INSTANTIATE_TEST_SUITE_P(All, ExchangeScheduleTest,
                         testing::Combine(testing::Values(2, 3, 4, 7, 32),
                                          testing::Values(0, 1, 63, 64, 65,
                                                          1000, 5000),
                                          testing::Values(1, 16, 100, 9000)));

// Ranks that are each other's neighbours do not all begin with rank 0.
TEST(ExchangeScheduleTest, RanksBeginWithTheirSuccessors) {
  for (int rank = 0; rank < 5; ++rank) {
    const ExchangeSchedule schedule =
        PlanOneShot(ExchangeShape{rank, 5, 8, 2}, 8);
    EXPECT_EQ(schedule.peers.front(), (rank + 1) % 5);
  }
}

struct Trial {
  int size = 2;
  int64_t lag = 1;
  int64_t max_step = 1;
  size_t pipe_bytes = 16;
  bool one_shot = false;
  bool staged = false;
  bool in_place = false;
  Compression compression = Compression::kNone;
  std::vector<int64_t> counts;  // of the tensors
};

// Some of each: with so little room on the way, what could come to a standstill
// does.
Trial RandomTrial(std::mt19937_64& random) {
  const auto below = [&random](int64_t n) {
    return static_cast<int64_t>(random() % n);
  };
  Trial trial;
  trial.size = 2 + static_cast<int>(below(4));
  trial.lag = 1 + below(4);
  trial.max_step = 1 + below(40);
  trial.pipe_bytes = 9 + below(300);
  trial.one_shot = below(2) == 0;
  trial.staged = below(2) == 0;
  trial.in_place = below(2) == 0;
  trial.compression =
      below(3) == 0 ? Compression::kBfloat16 : Compression::kNone;
  const int64_t tensors = 1 + below(6);
  for (int64_t t = 0; t < tensors; ++t) trial.counts.push_back(below(300));
  return trial;
}

using Tensors = std::vector<std::vector<float>>;  // by tensor

std::vector<TensorSpan> SpansOf(const Tensors& inputs, Tensors& outputs) {
  std::vector<TensorSpan> spans;
  for (size_t t = 0; t < inputs.size(); ++t) {
    spans.push_back({inputs[t].data(), outputs[t].data(),
                     static_cast<int64_t>(inputs[t].size())});
  }
  return spans;
}

// To the last bit: the values of all ranks in the order of the ranks.
Tensors Expected(const std::vector<Tensors>& inputs, const FoldMethod& method) {
  Tensors outputs = inputs.front();
  for (size_t t = 0; t < outputs.size(); ++t) {
    const int64_t count = static_cast<int64_t>(outputs[t].size());
    if (count == 0) continue;
    std::vector<std::vector<char>> wires;
    std::vector<const void*> sources;
    for (const Tensors& of_rank : inputs) {
      SpanPiece piece;
      piece.count = count;
      piece.bytes = count * sizeof(float);
      piece.input = reinterpret_cast<const char*>(of_rank[t].data());
      wires.emplace_back(count * method.wire_size + 1);
      method.Encode(wires.back().data(), piece);
      sources.push_back(wires.back().data());
    }
    SpanPiece piece;
    piece.count = count;
    piece.output = reinterpret_cast<char*>(outputs[t].data());
    method.Fold(piece, sources.data(), static_cast<int>(sources.size()),
                nullptr, false);
  }
  return outputs;
}

// All that a rank's plan refers to.
class Rank {
 public:
  Rank(const Trial& trial, int rank, const FoldMethod& method,
       std::vector<TensorSpan> tensors)
      : tensors_(std::move(tensors)), row_(RowOf(tensors_, method)) {
    const ExchangeShape shape{rank, trial.size, trial.max_step, trial.lag};
    schedule_ = trial.one_shot ? PlanOneShot(shape, row_.count())
                               : PlanTwoShots(shape, row_.count());
    ExchangeBinding binding{method, row_};
    binding.staged = trial.staged;
    run_ = std::make_unique<ExchangeRun>(schedule_, binding, scratch_, Meter());
  }

  SendReceivePlan Plan() { return run_->Plan(/*tag=*/7).value(); }

 private:
  static Spans RowOf(const std::vector<TensorSpan>& tensors,
                     const FoldMethod& method) {
    Spans row;
    row.Assign(tensors, method.element_size, method.wire_size);
    return row;
  }

  const std::vector<TensorSpan> tensors_;
  const Spans row_;
  ExchangeSchedule schedule_;
  ScratchBuffer scratch_;
  std::unique_ptr<ExchangeRun> run_;
};

TEST(ExchangeRunTest, GivesTheSameBitsWhateverTheShapeAndNeverStandsStill) {
  std::mt19937_64 random(20261123);
  for (int i = 0; i < 300; ++i) {
    const Trial trial = RandomTrial(random);
    SCOPED_TRACE(testing::Message()
                 << "trial " << i << ": " << trial.size << " ranks, lag "
                 << trial.lag << ", steps of " << trial.max_step
                 << ", pipes of " << trial.pipe_bytes
                 << (trial.one_shot ? ", one shot" : "")
                 << (trial.staged ? ", staged" : "")
                 << (trial.in_place ? ", in place" : ""));
    Reduction reduction;
    reduction.op = ReduceOp::kAverage;
    reduction.divisor = trial.size;
    reduction.prescale = 0.3;
    reduction.compression = trial.compression;
    const FoldMethod method(reduction);
    std::vector<Tensors> inputs(trial.size);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (Tensors& of_rank : inputs) {
      for (int64_t elements : trial.counts) {
        of_rank.emplace_back(elements);
        for (float& value : of_rank.back()) {
          value = std::exp(4 * normal(random)) * normal(random);
        }
      }
    }
    const Tensors expected = Expected(inputs, method);
    std::vector<Tensors> outputs = inputs;
    std::vector<std::unique_ptr<Rank>> ranks;
    std::vector<SendReceivePlan> plans;
    for (int rank = 0; rank < trial.size; ++rank) {
      ranks.push_back(std::make_unique<Rank>(
          trial, rank, method,
          SpansOf(trial.in_place ? outputs[rank] : inputs[rank],
                  outputs[rank])));
      plans.push_back(ranks.back()->Plan());
    }
    PlanSimulationOptions options;
    options.seed = i;
    options.pipe_bytes = trial.pipe_bytes;
    ASSERT_TRUE(RunPlans(plans, options));
    for (int rank = 0; rank < trial.size; ++rank) {
      EXPECT_EQ(outputs[rank], expected) << "rank " << rank;
    }
    if (HasFailure()) return;
  }
}

// A lowest level without others: sums are its values. `direct`: results go into
// the outputs, and nowhere else.
class OneRank final : public InnerLevel, private SumMethod {
 public:
  OneRank(const Spans& row, const std::vector<Range>& chunks, int64_t lag,
          const FoldMethod& method, bool direct)
      : row_(row),
        chunks_(chunks),
        lag_(lag),
        method_(method),
        direct_(direct) {
    int64_t most = 0;
    for (const Range& chunk : chunks) most = std::max(most, chunk.count());
    results_.resize(lag, std::vector<float>(most));
  }

  bool IsReady(int64_t step) const override { return step < done_ + lag_; }
  // Another thread would do it: they are there at the second question.
  void StartReduce(int64_t step, char* sums) override {
    row_.ForEach(chunks_[step], [&](const SpanPiece& piece) {
      method_.Encode(sums + piece.at, piece);
    });
  }
  bool HasReduced(int64_t step) override {
    if (step == reduced_ && ++questions_ % 2 == 0) ++reduced_;
    return step < reduced_;
  }
  SumMethod& method() override { return *this; }
  char* ResultsOf(int64_t step, const SpanPiece& piece, size_t at) override {
    return direct_ ? piece.output
                   : reinterpret_cast<char*>(results_[step % lag_].data()) + at;
  }
  void Done(int64_t step) override {
    EXPECT_EQ(step, done_);
    ++done_;
  }

  int64_t num_done() const { return done_; }

 private:
  // SumMethod:
  size_t size() const override { return sizeof(float); }
  void Add(int, const Range& range, const void* const* sums, int num_sums,
           char* to) override {
    SpanPiece piece;
    piece.count = range.count();
    piece.bytes = range.count() * sizeof(float);
    piece.output = to;
    method_.Fold(piece, sums, num_sums, nullptr, false);
  }
  void Fold(const SpanPiece& piece, const void* const* sums, int num_sums,
            char* copy) override {
    method_.Fold(piece, sums, num_sums, copy, false);
  }

  const Spans& row_;
  const std::vector<Range>& chunks_;
  const int64_t lag_;
  const FoldMethod& method_;
  const bool direct_;
  std::vector<std::vector<float>> results_;
  int64_t reduced_ = 0;
  int64_t questions_ = 0;
  int64_t done_ = 0;
};

// With so little room on the way, and a random order of events.
TEST(LevelsRunTest, NeverStandsStill) {
  std::mt19937_64 random(20261124);
  const auto below = [&random](int64_t n) {
    return static_cast<int64_t>(random() % n);
  };
  Reduction reduction;
  reduction.op = ReduceOp::kSum;
  const FoldMethod method(reduction);
  for (int trial = 0; trial < 100; ++trial) {
    const int size = 1 + static_cast<int>(below(9));
    const int side = 2 + static_cast<int>(below(3));
    const int64_t count = below(2000);
    LevelsShape shape;
    shape.lag = 1 + below(4);
    shape.is_small = below(3) == 0;
    std::vector<Range> chunks;
    for (int64_t begin = 0; begin < count;) {
      const int64_t end = std::min(count, begin + 1 + below(500));
      chunks.push_back({begin, end});
      begin = end;
    }
    SCOPED_TRACE(testing::Message()
                 << "trial " << trial << ": " << size << " ranks, side " << side
                 << ", lag " << shape.lag << ", " << chunks.size()
                 << " chunks of " << count
                 << (shape.is_small ? ", small" : ""));
    std::vector<int> ranks(size);
    std::iota(ranks.begin(), ranks.end(), 0);
    // Each row is a tensor, reduced in place; sums are exact.
    std::vector<std::vector<float>> values(size, std::vector<float>(count));
    std::vector<float> expected(count);
    for (auto& of_rank : values) {
      for (int64_t i = 0; i < count; ++i) {
        of_rank[i] = static_cast<float>(below(1000));
        expected[i] += of_rank[i];
      }
    }
    std::vector<std::vector<TensorSpan>> tensors;
    std::vector<Spans> rows(size);
    std::vector<std::vector<Group>> groups;
    std::vector<std::deque<ScratchBuffer>> scratch(size);
    std::deque<OneRank> lowest;
    std::deque<LevelsRun> runs;
    std::vector<SendReceivePlan> plans(size);
    for (int rank = 0; rank < size; ++rank) {
      tensors.push_back({{values[rank].data(), values[rank].data(), count}});
    }
    for (int rank = 0; rank < size; ++rank) {
      rows[rank].Assign(tensors[rank], sizeof(float));
      groups.push_back(PlanLevels(rank, size, side));
      scratch[rank].resize(groups[rank].size());
      lowest.emplace_back(rows[rank], chunks, shape.lag, method,
                          /*direct=*/(trial + rank) % 2 == 0);
      runs.emplace_back(groups[rank], ranks, chunks, shape, lowest[rank],
                        method, rows[rank], scratch[rank], Meter());
      plans[rank].tag = 7;
      ASSERT_TRUE(runs[rank].AddTo(plans[rank]).ok());
      plans[rank].advance = [&runs, rank](SendReceivePlan& plan) {
        runs[rank].Advance(plan);
      };
    }
    PlanSimulationOptions options;
    options.seed = trial;
    options.pipe_bytes = 9 + below(300);
    ASSERT_TRUE(RunPlans(plans, options));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(lowest[rank].num_done(), static_cast<int64_t>(chunks.size()));
      EXPECT_EQ(values[rank], expected) << "rank " << rank;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace keras_ring
