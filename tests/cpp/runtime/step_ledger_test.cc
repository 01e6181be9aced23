#include "csrc/runtime/elastic/step_ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace keras_ring {
namespace {

constexpr char kGroup[] = "weights";

StepReport OnlyReport(const StepLedger& ledger) {
  const std::vector<StepReport> reports = ledger.Reports();
  EXPECT_EQ(reports.size(), 1u);
  return reports.empty() ? StepReport() : reports.front();
}

// A step of one operation, up to the question whether it counts.
bool RunStep(StepLedger& ledger) {
  ledger.Ended(kGroup, /*torn=*/false);
  return ledger.Ask(kGroup);
}

TEST(StepLedger, CountsStepsThatAllHaveAskedFor) {
  StepLedger ledger;
  EXPECT_TRUE(ledger.Reports().empty());
  for (uint64_t step = 0; step < 3; ++step) {
    ledger.Ended(kGroup, /*torn=*/false);
    EXPECT_EQ(OnlyReport(ledger).settled, step);
    EXPECT_TRUE(OnlyReport(ledger).begun);
    EXPECT_FALSE(OnlyReport(ledger).whole);
    EXPECT_TRUE(ledger.Ask(kGroup));
    EXPECT_TRUE(OnlyReport(ledger).whole);
    ledger.Committed(kGroup);
    EXPECT_EQ(OnlyReport(ledger).settled, step + 1);
    EXPECT_FALSE(OnlyReport(ledger).begun);
  }
}

TEST(StepLedger, AStepWithALostResultIsNotWhole) {
  StepLedger ledger;
  ledger.Ended(kGroup, /*torn=*/true);
  ledger.Ended(kGroup, /*torn=*/false);
  ledger.Ask(kGroup);
  EXPECT_FALSE(OnlyReport(ledger).whole);
}

TEST(StepLedger, AnswersWhoWaitsForTheCommit) {
  for (const bool committed : {true, false}) {
    StepLedger ledger;
    ASSERT_TRUE(RunStep(ledger));
    const auto answers = ledger.Settle(
        {{kGroup, 0,
          committed ? StepOutcome::kCommitted : StepOutcome::kDiscarded}});
    ASSERT_TRUE(answers.ok());
    ASSERT_EQ(answers->size(), 1u);
    EXPECT_EQ(answers->front().committed, committed);
    EXPECT_FALSE(ledger.IsDiscarded(kGroup));
    EXPECT_EQ(OnlyReport(ledger).settled, 1u);
  }
}

TEST(StepLedger, GoesThroughADiscardedStepAlone) {
  StepLedger ledger;
  ledger.Ended(kGroup, /*torn=*/false);
  const auto answers = ledger.Settle({{kGroup, 0, StepOutcome::kDiscarded}});
  ASSERT_TRUE(answers.ok());
  EXPECT_TRUE(answers->empty());
  EXPECT_TRUE(ledger.IsDiscarded(kGroup));
  EXPECT_EQ(OnlyReport(ledger).settled, 1u);
  // Up to its commit, and no further.
  EXPECT_FALSE(ledger.Ask(kGroup));
  EXPECT_FALSE(ledger.IsDiscarded(kGroup));
  EXPECT_TRUE(RunStep(ledger));
}

TEST(StepLedger, CommitsTheStepBeforeForWhoIsBehind) {
  StepLedger ledger;
  ASSERT_TRUE(RunStep(ledger));
  const auto answers = ledger.Settle({{kGroup, 1, StepOutcome::kDiscarded}});
  ASSERT_TRUE(answers.ok());
  ASSERT_EQ(answers->size(), 1u);
  EXPECT_TRUE(answers->front().committed);
  EXPECT_TRUE(ledger.IsDiscarded(kGroup));
  EXPECT_EQ(OnlyReport(ledger).settled, 2u);
}

TEST(StepLedger, AnOpenStepGoesOn) {
  StepLedger ledger;
  ASSERT_TRUE(ledger.Settle({{kGroup, 0, StepOutcome::kOpen}}).ok());
  EXPECT_FALSE(ledger.IsDiscarded(kGroup));
  EXPECT_TRUE(RunStep(ledger));
}

TEST(StepLedger, RefusesWhatCannotBe) {
  StepLedger ledger;
  ledger.Ended(kGroup, /*torn=*/true);
  ASSERT_TRUE(ledger.Ask(kGroup));
  for (const StepSettlement& wrong :
       {StepSettlement{kGroup, 0, StepOutcome::kCommitted},
        StepSettlement{kGroup, 1, StepOutcome::kOpen},
        StepSettlement{kGroup, 2, StepOutcome::kOpen}}) {
    // The first one may be taken alone.
    const auto answers =
        ledger.Settle({{"another", 0, StepOutcome::kDiscarded}, wrong});
    ASSERT_FALSE(answers.ok());
    EXPECT_EQ(answers.status().code(), StatusCode::kInternal);
    EXPECT_FALSE(ledger.IsDiscarded("another"));
  }
  ASSERT_TRUE(ledger.Settle({{kGroup, 0, StepOutcome::kDiscarded}}).ok());
}

TEST(StepLedger, BeginsWhereTheOthersAre) {
  StepLedger ledger;
  ledger.Adopt(
      {{kGroup, 7, StepOutcome::kOpen}, {"other", 4, StepOutcome::kDiscarded}});
  std::map<std::string, uint64_t> settled;
  for (const StepReport& report : ledger.Reports()) {
    EXPECT_FALSE(report.begun);
    settled[report.group] = report.settled;
  }
  EXPECT_EQ(settled,
            (std::map<std::string, uint64_t>{{kGroup, 7}, {"other", 5}}));
  // It has been in no step, so there is none that it goes through alone.
  EXPECT_FALSE(ledger.IsDiscarded("other"));
  EXPECT_TRUE(RunStep(ledger));
}

}  // namespace
}  // namespace keras_ring
